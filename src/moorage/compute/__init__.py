"""Flavors, servers, their actions, and the hosts that run them: the Compute API v2.1 and the build of a server.

    service     use cases of the API: flavor_service, server_service, host_service, agent_service
    build       the task that schedules servers and gives allocations back; placing: from a server to a claim
    lifecycle   [pure] what each operation may do in which state
    messages    [pure] what a host is told
    client      what other services and host agents ask

Not here: what happens on a host (`moorage.agent`), and how a host is chosen (`moorage.scheduler`).
"""
