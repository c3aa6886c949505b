"""`moorage backup` and `moorage restore`."""
