"""Explains a search: why a request has no candidates, which hosts come closest, and which change would help. Pure.

    request + forest -> host_verdicts  the conditions that each host meets, cached until a provider near it changes
                     -> explanation    the funnel: how many hosts remain after each constraint
                     -> closest_hosts  the hosts that lack least
                     -> relaxation     the smallest change of the request after which one of them can serve it

`cloud_summary` computes totals of the whole cloud, and pages of its trees; the other modules do not use it. Constraints
come from `search.constraints`, so an explanation and a search cannot disagree. Callers: the services.
"""
