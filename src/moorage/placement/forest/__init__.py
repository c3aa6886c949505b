"""All resource providers as one immutable snapshot, with arrays per resource class. Pure."""
