"""The use cases of tenants: leases, their lists, availability, the calendar and maintenance windows.

    lease_service     create, update and delete a lease: decide, commit, then run the event that was committed
    availability      next free slots, holds on them, dry runs, the latest end of a lease
    list_service      lists in pages, timelines, results of before_end actions
    calendar_service  utilisation of the hosts, and the project's leases as a calendar feed
    maintenance       an administrator's ``physical:host`` lease, and the leases that it would affect

Decisions on capacity are made in `booking` and `capacity`. The handlers in `api` call these services.
"""
