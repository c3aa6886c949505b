"""Tables and SQL of identity. Callers: `moorage.identity.account_database`."""
