"""Keeps Placement's tree of this host equal to the wanted tree: read, merge, diff, write."""
