"""The faults of upstream that random requests found, one rule per heading of docs/wire/differences.md.

`tests.conformance.explained` explains the differences that the suite's own requests show. For each rule here, a script
in test_known.py shows exactly this fault.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from urllib.parse import parse_qsl, unquote_plus

from tests.conformance.compare import Difference
from tests.conformance.explained import EXPLAINED, Explanation

#: A consumer without allocations that upstream keeps (`Twins` finds and removes them).
GHOST = "ghost"
#: Used instead of the document if the statuses differ: [status, document].
STATUS = "status"

_SEARCHES = ("/allocation_candidates?", "/resource_providers?")


def _crash_of_a_search(difference: Difference) -> bool:
    asked = difference.target.startswith("/allocation_candidates?")
    return asked and difference.what == STATUS and (difference.upstream[0], difference.ours[0]) == (500, 200)


def _amounts_of_another_candidate(difference: Difference) -> bool:
    """Upstream adds the amounts of two groups in an object that other candidates use, too.

    It does so unless the policy is ``none``, for a class that the unsuffixed and a suffixed group request. So
    candidates that only upstream has add up to more than was requested; if that does not fit, a candidate is missing.
    """
    if difference.what != "body" or difference.status != 200 or not difference.target.startswith(_SEARCHES[0]):
        return False
    query = parse_qsl(difference.target.partition("?")[2])
    asked: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    for name, value in query:
        if name.startswith("resources"):
            amounts = dict(part.split(":") for part in value.split(","))
            asked.update({resource_class: int(amount) for resource_class, amount in amounts.items()})
            groups.update(amounts.keys())
    if ("group_policy", "none") in query or max(groups.values()) < 2:
        return False
    theirs, own = (
        {json.dumps(one) for one in side["allocation_requests"]} for side in (difference.upstream, difference.ours)
    )
    too_much = all(_total(json.loads(candidate)) > asked for candidate in theirs - own)
    told = difference.ours["provider_summaries"].items()
    return too_much and all(summary in told for summary in difference.upstream["provider_summaries"].items())


def _total(candidate: dict) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in candidate["allocations"].values():
        total.update(one["resources"])
    return total


_FAULT = re.compile(
    r"(?:Got: |Got an empty trait in: |No such trait\(s\): |No such resource class |Allocation for resource provider '"
    r"|Conflicting resource provider (?:name|uuid): )([^\s']*?)[.']?(?: |$)"
)


def _fault(difference: Difference, document: object) -> str | None:
    """The part of the request that the refusal names, if the request contains it."""
    found = (
        _FAULT.search(document["errors"][0]["detail"]) if isinstance(document, dict) and "errors" in document else None
    )
    return found[1] if found and found[1] in unquote_plus(difference.target) + difference.request else None


def _another_of_its_faults(difference: Difference) -> bool:
    if difference.what != "body" or difference.status not in (400, 409):
        return False
    return None not in (_fault(difference, difference.upstream), _fault(difference, difference.ours))


def _wrong_name_not_reached(difference: Difference) -> bool:
    if difference.what != STATUS or not difference.target.startswith(_SEARCHES):
        return False
    (theirs, found), (own, refusal) = difference.upstream, difference.ours
    nothing = found.get("allocation_requests", found.get("resource_providers")) == []
    return (theirs, own) == (200, 400) and nothing and _fault(difference, refusal) is not None


def _usages_of_nobody_on_postgresql(difference: Difference) -> bool:
    asked = difference.target.startswith("/usages?") and "consumer_type=" in difference.target
    if not asked or difference.what != STATUS:
        return False
    (theirs, crash), (own, _) = difference.upstream, difference.ours
    return (theirs, own) == (500, 200) and "GroupingError" in crash["errors"][0]["detail"]


def _moved_at_no_time(difference: Difference) -> bool:
    asked = difference.method == "PUT" and difference.target.count("/") == 2 and difference.status == 200
    return asked and difference.what == "last-modified" and difference.upstream is None


def _ghost(difference: Difference) -> bool:
    return difference.what == GHOST


KNOWN: Sequence[Explanation] = (
    Explanation("A search among shared providers that are not roots", _crash_of_a_search),
    Explanation("Amounts of another candidate", _amounts_of_another_candidate),
    Explanation("Consumers that hold nothing", _ghost),
    Explanation("A wrong name that the peer does not reach", _wrong_name_not_reached),
    Explanation("Which of several faults is told", _another_of_its_faults),
    Explanation("A provider that moved has no time", _moved_at_no_time),
    Explanation("Usages of one consumer type on PostgreSQL", _usages_of_nobody_on_postgresql, by_chance=True),
)


def explanation_of(difference: Difference) -> Explanation | None:
    return next((one for one in (*KNOWN, *EXPLAINED) if one.covers(difference)), None)
