"""The choice of a host for a server: pure decisions between a flavor and a claim.

    extra_specs        extra specs of a flavor (and of a device profile) -> parsed, or refused with key and remedy
    spec_table         all extra specs and image properties: what each becomes, and which component honours it
    spec_rules         extra specs + image properties -> refused, if no component honours one of them
    processors         hw:cpu_policy and related keys -> shared and dedicated processors
    flavor_resources   flavor + extra specs + image -> ResourceRequest
    prefilters         aggregates -> conditions on the aggregates that Placement searches
    candidate_query    request + search scope -> query of GET /allocation_candidates
    filters            HostState + ServerRequirements -> a reason against the host, or None; also the matching of
                       aggregate_instance_extra_specs:<KEY> with the metadata of aggregates
    server_groups      policy + hosts of the members -> a reason against a host, or a preference
    weighers           HostFacts -> numbers; more is better
    host_ranking       candidates -> hosts, best first
    reasons            counts and reasons of all these steps -> messages for users and administrators
    options            settings of all of these

Called by `moorage.compute.scheduling`, which asks Placement and claims the selected host. Not here: any I/O.
"""
