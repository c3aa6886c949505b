"""Decode, ask the service, encode: in Glance's shapes."""
