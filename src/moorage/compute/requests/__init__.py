"""What a request refers to and may use: images, flavors, zones, groups, quotas; and servers looked up."""
