"""Pure rules of the import: they convert the rows of a Blazar database and report findings.

    a row of Blazar -> its value in `reservation.model`, or None, and findings about repaired and omitted rows

`leases` converts leases, events and slots, `requests` the requests of reservations, `hosts` hosts and floating IPs.
Not here: reading Blazar's tables (`blazar_db`) and writing ours. Caller: `importing.importer`.
"""
