"""Values, state tables and job payloads of compute. Pure."""
