"""The host agents' side of compute: the reports and reads of agents, and the handling of dead hosts.

    agent_service        registration, heartbeats, jobs, and reports on jobs; orders about provider configuration
    operation_reports    what a report on an operation changes: the server, a retry, a release
    domain_service       observed power states and consoles of guests
    disk_image_service   images that a host may read, and images of its servers' disks
    down_hosts           background task: ends the jobs of dead hosts
    outage_task          background task: notices when no heartbeat could be recorded

Called by the agents' routes (`api.handlers.agents`). Not here: the agent itself (`moorage.agent`).
"""
