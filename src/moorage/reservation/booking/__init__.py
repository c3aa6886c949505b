"""Turns requests into allocations in the database. Any number of processes may do so without overbooking.

    external_lookups -> capacity_requests -> admission ------> commit in the caller's transaction
    (flavors, traits)   (slots, hosts)       (plan, lock,        |-> enforcement (limits of the project)
                                              verify)            |-> address_booking (floating IPs)

`placement_capacity` keeps the hosts' capacity equal to Placement, and `external_enforcement` is the client of an
operator's own limits. `previews` has the values that describe a create or an update before it is written. The selection
of hosts is pure and in `capacity`; the later effects on Placement and Nova are in `events` and `steps`. Callers:
`leases` and `hosts`.
"""
