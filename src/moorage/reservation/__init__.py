"""Who may hold how much of which host, from when to when; compatible with the Reservation API v1 (Blazar)."""
