"""Values, states and decisions of accelerators. Pure."""
