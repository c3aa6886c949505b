"""Capacity over time: which hosts and addresses a lease can have, and which steps its events take. Pure: no I/O.

    calendar (usage of all hosts as arrays, in usage_profiles; packing for nested providers)
      -> host_selection: capacity requests over a period -> {reservation: slots on hosts}, or a Shortage
      -> next_slot: the first start at which a lease fits
    addresses: the same for floating IPs
    lease_update: what an update may change; step_plans: the steps of each event, by resource type
    lost_slots: the slots that a host cannot hold any more

`resource_types` has the rules of each type. Reading and writing the database is done by `booking` and `leases`.
"""
