"""GET /allocation_candidates, and Moorage's GET /moorage/v1/explain, which explains the result"""

from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlencode

from moorage.placement.api.handlers.answers import VERSIONS, PlacementApiRequest, answer
from moorage.placement.api.handlers.candidate_body import candidates_body
from moorage.placement.api.schemas import candidate as schemas
from moorage.placement.explain.explanation import Explanation
from moorage.placement.search.request import CandidateRequest, parse_request, to_query
from moorage.wire.http import Response
from moorage.wire.microversion import Version

#: Header of a request with a limit: a seed that selects a sample of all candidates instead of the first ones. It is
#: a header because OpenStack Placement ignores unknown headers but refuses unknown parameters.
SAMPLE = "x-moorage-sample"


def list_candidates(request: PlacementApiRequest) -> Response:
    wanted = _request(request.query.pairs, request.version)
    forest, found = request.service.candidates.find(wanted, request.headers.get(SAMPLE) or None)
    return answer(request, candidates_body(request.version, forest, wanted, found))


def explain_candidates(request: PlacementApiRequest) -> Response:
    """In the microversion of the request; without one, in the newest."""
    version = request.version if "openstack-api-version" in request.headers else VERSIONS.maximum
    return answer(
        request, encode_explanation(request.service.candidates.explain(_request(request.query.pairs, version)))
    )


#: Number of cached queries, and the length of the longest: schedulers repeat the same queries.
REMEMBERED = 512
REMEMBERED_LENGTH = 2000


def _request(pairs: Sequence[tuple[str, str]], version: Version) -> CandidateRequest:
    """Raises `Invalid` as the peer does."""
    if sum(len(key) + len(value) for key, value in pairs) > REMEMBERED_LENGTH:
        return _parsed(tuple(pairs), version)
    return _remembered(tuple(pairs), version)


def _parsed(pairs: tuple[tuple[str, str], ...], version: Version) -> CandidateRequest:
    schema = schemas.LIST.for_version(version)
    if schema is not None:
        schema.validate(dict(pairs), lambda error: f"Invalid query string parameters: {error}")
    return parse_request(pairs, version)


_remembered = lru_cache(REMEMBERED)(_parsed)


def encode_explanation(explanation: Explanation) -> dict[str, object]:
    steps = [
        {
            "constraint": step.constraint,
            "before": step.before,
            "after": step.after,
            "removed": [{"provider": removed.provider, "reason": removed.reason} for removed in step.removed],
        }
        for step in explanation.steps
    ]
    change = explanation.change
    return {
        "text": explanation.text,
        "candidates": explanation.candidates,
        "steps": steps,
        "closest": [{"provider": host.provider, "lacks": host.lacks} for host in explanation.closest],
        "change": None
        if change is None
        else {
            "provider": change.provider,
            "parts": change.parts,
            "query": urlencode(to_query(change.request), safe=":,!"),
        },
    }
