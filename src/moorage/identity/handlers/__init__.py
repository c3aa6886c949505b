"""Decode, ask the service, encode: in Keystone v3's shapes."""
