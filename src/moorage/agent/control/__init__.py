"""The HTTP interface of a host's agent for the commands of its machine, and provider-configuration reloads."""
