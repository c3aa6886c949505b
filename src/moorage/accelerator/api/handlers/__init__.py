"""Decode, call the service, encode: one module per kind of resource."""
