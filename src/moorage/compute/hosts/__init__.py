"""Use cases of compute services, hypervisors and aggregates, and what placement is told of hosts."""
