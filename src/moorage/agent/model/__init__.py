"""Values that jobs and drivers share: job payloads, config drives, power states. Pure."""
