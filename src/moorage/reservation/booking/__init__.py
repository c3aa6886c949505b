"""Admission: turns a wish into allocations in the database, without overbooking by any number of processes.

    external_lookups -> capacity_requests -> admission ------> commit in the caller's transaction
    (flavors, traits)   (slots, hosts)       (plan, lock,        |-> enforcement (limits of the project)
                                              verify)            |-> address_booking (floating IPs)

`previews` holds what a create or an update would do. Placement decisions themselves are pure and live in `capacity`;
what happens in Placement and Nova afterwards is in `events` and `steps`. Callers: `leases` and `hosts`.
"""
