"""Explains a search: why a request has no candidates, which hosts come closest, and which change would help. Pure.

    request + forest -> host_verdicts  the conditions that each host meets, kept until a provider near it changes
                     -> explanation    the funnel: how many hosts remain after each constraint
                     -> closest_hosts  the hosts that miss least
                     -> relaxation     the smallest change of the request that one of them can serve

`cloud_summary` sums up the whole cloud and pages its trees; it shares only the folder with the rest. Constraints come
from `search.constraints`, so an explanation and a search cannot disagree. Callers: the services.
"""
