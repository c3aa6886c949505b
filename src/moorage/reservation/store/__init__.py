"""SQL of the reservation database."""
