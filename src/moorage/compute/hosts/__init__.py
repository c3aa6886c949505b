"""Compute hosts as administrators see them: services, hypervisors, availability zones, aggregates.

    host_service           use cases: enable, disable, force down, delete a service; manage aggregates
    placement_publishing   what Placement is told: disabled hosts, aggregates, deleted hosts

The publishing functions are run by `scheduling.build_worker`. Not here: heartbeats and reports of host agents
(`agents`), and the publication of inventories, which the agents do themselves.
"""
