"""The host agents' side of compute: what agents report and fetch, and what happens if a host dies.

    agent_service            registration, heartbeats, jobs, and reports on jobs
    domain_service           observed power states and consoles of guests
    disk_image_service       images that a host may read, and images of its servers' disks
    provider_config_service  orders to the agent about provider configuration
    down_hosts               background task: ends the jobs of dead hosts

Called by the agents' routes (`api.handlers.agents`). Not here: the agent itself (`moorage.agent`).
"""
