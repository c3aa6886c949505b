"""SQL of the compute database. Every function works inside the caller's transaction."""
