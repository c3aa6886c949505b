"""Takes over an existing OpenStack Placement database in one transaction."""
