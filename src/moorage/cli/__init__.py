"""The `moorage` command: what the `openstack` clients cannot say. Exit codes: 0 done, 1 refused, 2 wrong usage."""
