"""Values that pages show, computed from the services' answers. Pure."""
