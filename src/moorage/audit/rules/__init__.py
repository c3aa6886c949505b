"""The rules of the audit: they find the faults in an `AuditSnapshot`. Pure.

    AuditSnapshot -> findings.all_findings -> servers (allocations, stuck operations)
                                           -> devices (accelerators)
                                           -> leases  (reservations)         -> [Finding], in a fixed order

`findings` itself covers providers, inventories, consumers and unused names. The same snapshot gives the same findings.
Not here: reading the services (`audit.collector`) and repairs (`audit.healing`). Callers: the command and the task.
"""
