"""What operators see of a running plane: logs now, metrics and health with later issues."""
