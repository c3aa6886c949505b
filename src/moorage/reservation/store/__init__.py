"""SQL of the reservation database: tables and one module of statements per subject.

Functions take a connection and work in the caller's transaction. All transactions lock in this order: leases, then
hosts by id, then networks. `event_store` fences writers by the epoch of their claim. A subject has its rows here under
its name: `lease_store`, `host_store`, `event_store`, ...; `capacity_store` reads what calendars need, and `meters` has
the Prometheus gauges. Nothing here decides, so there is no pipeline. Callers: `booking`, `events`, `steps`, `leases`,
`hosts` and `importing`.
"""
