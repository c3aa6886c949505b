"""Pure rules of the import: they convert the rows of a Blazar database and report findings.

`leases` converts leases, events and slots, `requests` the requests of reservations, `hosts` hosts and floating IPs.
"""
