"""Values and decisions of compute, without I/O, which the other packages of compute share.

    servers              flavors, servers, hosts, aggregates, actions, key pairs, server groups
    lifecycle            operations: in which state each may begin, and where it leads; printed in the docs
    migration_workflow   moves: the steps of each kind, their order, and where failures lead
    interfaces           the interfaces of a server while hosts attach and detach them
    observed_state       what the observed power state of a guest, and failed devices, mean for their server
    outages              the time in which no heartbeat could be recorded, so that hosts are not silent
    quota                limits, amounts counted against them, and usage over a period
    job_payloads         the documents in the payloads of jobs for hosts, and for compute's own workers

These are tables and values, not steps of one flow. Not here: rows and SQL (`compute.store`), the choice of a host
(`moorage.scheduler`), and the wire format (`compute.api`).
"""
