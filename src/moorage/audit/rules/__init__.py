"""Compares what the services say with each other and lists findings. Pure."""
