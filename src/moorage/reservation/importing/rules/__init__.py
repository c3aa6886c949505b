"""Pure rules of the import: what each row of a Blazar database becomes here, and which findings are reported.

`leases` has leases, events and slots, `requests` what a reservation asks for, `hosts` hosts and floating IPs.
"""
