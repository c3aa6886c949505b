"""Jobs of this host: claimed from the services, executed, reported."""
