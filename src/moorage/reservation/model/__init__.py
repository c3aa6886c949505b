"""Values and state tables: leases, reservations, events, steps, requests, limits and queries. Pure.

`leases` has the entities and their transition tables, `event_order` decides which events may run now, and `steps` has
the steps that the journal stores. `reservation_requests` are the requests of each resource type, `slot_demand` what a
slot of them needs on a host, `property_query` and `list_query` which hosts and leases are meant; `before_end_actions`,
`limits` and `ical` have what their names say. There is no pipeline: these are values.

Not here: the calendar of hosts (`capacity`), rows (`store`), the wire format (`api.schemas`). All of
`moorage.reservation` may import this package; it imports none of the rest.
"""
