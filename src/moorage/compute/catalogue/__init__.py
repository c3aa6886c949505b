"""Use cases of flavors and keypairs, and the migration of bare-metal flavors."""
