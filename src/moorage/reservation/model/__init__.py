"""Values, state tables and requests of reservations. Pure."""
