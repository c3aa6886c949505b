"""Values and decisions of compute, without I/O, which the other packages of compute share.

servers              flavors, servers, hosts, aggregates, actions, key pairs, server groups
lifecycle            operations: in which state each may begin, and where it leads; printed in the docs
migration_workflow   moves: the steps of each kind, their order, and where failures lead
device_faults        what failed devices mean for their server
power_sync           what the observed power state of a guest means for its server
quota                limits, amounts counted against them, and usage over a period
job_payloads         the documents in the payload of a host's job
service_jobs         the payloads of the jobs of compute's own workers
"""
