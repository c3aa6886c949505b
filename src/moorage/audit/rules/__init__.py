"""The rules of the audit: they find the faults in an `AuditSnapshot`. The same snapshot gives the same findings, in
the same order. Pure.

`findings.all_findings` is the entry; it covers providers, inventories, consumers and unused names itself, and calls
`servers` (allocations, stuck operations), `devices` (accelerators) and `leases` (reservations).
"""
