"""Which host may hold a server: pure deciders between a flavor and a claim.

    extra_specs        keys of a flavor -> what is asked for, or a refusal that names key and remedy
    processors         hw:cpu_policy and its like -> shared and dedicated processors
    known_specs        values that only hypervisors read -> a refusal, from microversion 2.86 on
    flavor_resources   flavor + extra specs + image -> a request
    prefilters         aggregates -> where Placement shall look
    candidate_query    request + where -> the query to Placement
    hosts              what is known of a host, and what is wanted of one
    filters            a host -> a reason against it, or None
    server_groups      a policy and where the members are -> a reason against a host, or a preference
    weighers           a host -> numbers, more is better
    select             candidates -> an order of hosts
    reasons            all that was counted on the way -> words for users and for administrators

Not here: any I/O. `moorage.compute.scheduling.host_selection` asks Placement, and claims what was selected.
"""
