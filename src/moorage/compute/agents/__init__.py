"""Use cases of host agents: heartbeats, jobs and their results, domains, disk images, provider configuration."""
