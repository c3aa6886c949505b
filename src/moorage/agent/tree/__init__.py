"""The provider tree of a host: what is wanted, what Placement has, and the difference. Pure."""
