"""Values and state tables: leases, reservations, events, steps, requests, limits and queries. Pure.

`leases` has the entities and their transition tables, `event_order` decides which events may run now, `steps` are the
effects that the journal keeps. Everything in this package imports it; it imports nothing of the service.
"""
