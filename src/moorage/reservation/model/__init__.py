"""Values and state tables: leases, reservations, events, steps, requests, limits and queries. Pure.

`leases` has the entities and their transition tables, `event_order` decides which events may run now, and `steps` has
the steps that the journal stores. All of `moorage.reservation` may import this package; it imports none of the rest.
"""
