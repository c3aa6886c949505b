"""SQL of the reservation database: tables and one module of statements per subject.

Functions take a connection and work in the caller's transaction. All transactions lock in this order: leases, then
hosts by id, then networks. `event_store` fences writers by the epoch of their claim. Nothing here decides. Callers:
`booking`, `events`, `steps`, `leases`, `hosts` and `importing`.
"""
