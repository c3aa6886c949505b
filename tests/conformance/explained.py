"""The differences that docs/wire/differences.md explains, one rule per heading of that page."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.conformance.compare import Difference


@dataclass(frozen=True)
class Explanation:
    heading: str
    covers: Callable[[Difference], bool]
    #: Whether the difference appears depends on the random order in the upstream process.
    by_chance: bool = False


def _detail(body: object) -> str:
    return body["errors"][0]["detail"] if isinstance(body, dict) and "errors" in body else ""


def _same_words_in_another_order(difference: Difference) -> bool:
    upstream, ours = _detail(difference.upstream), _detail(difference.ours)
    return bool(upstream) and sorted(re.findall(r"\w+", upstream)) == sorted(re.findall(r"\w+", ours))


def _another_choice(difference: Difference) -> bool:
    if difference.what != "body" or "limit=" not in difference.target or difference.status != 200:
        return False
    counts = [len(body["allocation_requests"]) for body in (difference.upstream, difference.ours)]
    return difference.target.startswith("/allocation_candidates") and counts[0] == counts[1]


def _too_complex(difference: Difference) -> bool:
    asked = difference.method == "GET" and difference.target.startswith("/allocation_candidates?")
    return asked and '"placement.query.too_complex"' in json.dumps(difference.ours)


def _more_than_the_name_of_the_rule(difference: Difference) -> bool:
    if difference.what != "body" or difference.status != 403:
        return False
    told = re.search(r"\n\n (placement:\S+)  $", _detail(difference.upstream))
    sentence = f"\n\n Policy does not allow {told[1]} to be performed.  " if told else ""
    return bool(told) and _detail(difference.ours).endswith(sentence)


def _no_vary(difference: Difference) -> bool:
    missing = difference.upstream is None and difference.ours == "openstack-api-version"
    return difference.what == "vary" and missing and difference.status in (400, 403, 404)


def _without_token(difference: Difference) -> bool:
    return difference.status == 401 and difference.what in ("body", "vary", "openstack-api-version")


def _upstream_shows_its_sql(difference: Difference) -> bool:
    return difference.status == 409 and "IntegrityError" in json.dumps(difference.upstream)


def _upstream_shows_its_code(difference: Difference) -> bool:
    return difference.status == 400 and "; invalid literal for int()" in _detail(difference.upstream)


def _old_delete(difference: Difference) -> bool:
    asked = difference.method == "DELETE" and difference.target.endswith("/inventories")
    return asked and difference.status == 405 and difference.what in ("body", "allow")


def _preflight(difference: Difference) -> bool:
    return difference.method == "OPTIONS" and difference.what == "x-openstack-request-id" and difference.ours is None


EXPLAINED: Sequence[Explanation] = (
    Explanation("Names in another order", _same_words_in_another_order, by_chance=True),
    Explanation("Which candidates a limit leaves", _another_choice, by_chance=True),
    Explanation("A search that would take too long", _too_complex, by_chance=True),
    Explanation("Refusals of system-scoped tokens", _more_than_the_name_of_the_rule),
    Explanation("Vary on every answer", _no_vary),
    Explanation("Without a token", _without_token),
    Explanation("An inventory that is there already", _upstream_shows_its_sql),
    Explanation("A version that is no version", _upstream_shows_its_code),
    Explanation("DELETE of all inventories before 1.5", _old_delete),
    Explanation("Preflights have no request id", _preflight),
)


def explanation_of(difference: Difference) -> Explanation | None:
    return next((one for one in EXPLAINED if one.covers(difference)), None)
