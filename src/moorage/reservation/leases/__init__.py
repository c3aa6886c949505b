"""The use cases of tenants: leases, their lists, availability, the calendar and maintenance windows.

    lease_service     create, update and delete a lease: decide, commit, then run the event that was committed
    slot_releases     the slots that a shrinking reservation gives up
    availability      next free slot, holds on them, dry runs, the latest end of a lease; an administrator's maintenance
                      windows (``physical:host`` leases), and the leases that they would affect
    list_service      lists in pages, timelines, results of before_end actions
    calendar_service  utilisation of the hosts, and calendar feeds with the project's leases

Decisions on capacity are made in `booking` and `capacity`. The handlers in `api` call these services.
"""
