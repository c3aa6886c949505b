"""Which host may hold a server: pure deciders between a flavor and a claim.

    flavor_resources   flavor + extra specs -> the query to Placement
    filters            a host of a candidate -> a reason against it, or None
    weighers           a host of a candidate -> a number, more is better
    select             candidates + hosts -> an order of hosts, and the reason for each one left out

Not here: any I/O. `moorage.compute.build` asks Placement, and claims what was selected.
"""
