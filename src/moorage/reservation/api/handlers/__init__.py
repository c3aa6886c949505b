"""One module per resource: decode, call the service, encode."""
