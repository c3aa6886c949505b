"""Audit: does what Placement has stored agree with what the other services know, and with itself?

::

    collector (all services, through their clients) -> AuditSnapshot -> rules.findings (pure) -> [Finding]
        -> the operator, or metrics and log events -> healing: repairs that are safe, each written to a journal first

`collector` reads leases with `lease_collector`; `model` has the snapshot and the finding.

Two callers: `moorage audit` (the only one that repairs), and `AuditTask`, which runs in the background in one process
at a time (`AuditSchedule`) and only reports. Not here: what the services themselves check when they write.
"""
