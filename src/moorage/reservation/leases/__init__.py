"""The use cases of tenants: leases, their lists, availability, the calendar and maintenance windows.

    lease_service     create, update and delete a lease: decide, commit, then run the event that was committed
    availability      next free slots, holds on them, dry runs, how far a lease can be prolonged
    list_service      lists in pages, timelines, results of before_end actions
    calendar_service  utilisation of the hosts, and the project's leases as a calendar feed
    maintenance       an administrator's lease of whole hosts, and the leases that it would affect

Decisions on capacity are made in `booking` and `capacity`. The handlers in `api` call these services.
"""
