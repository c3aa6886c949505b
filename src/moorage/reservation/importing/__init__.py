"""Takes over an existing Blazar database in one transaction."""
