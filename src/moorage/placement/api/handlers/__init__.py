"""HTTP to use cases and back, one module per resource. Only: decode, call the service, encode."""
