"""JSON schemas of the bodies that the Compute API and the agents' API read."""
