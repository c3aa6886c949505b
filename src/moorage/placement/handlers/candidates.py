"""GET /allocation_candidates, and our own GET /moorage/v1/explain, which tells why they are what they are"""

from moorage.placement.forest import Forest
from moorage.placement.handlers.answers import PlacementCall, answer, checked_query
from moorage.placement.handlers.root import VERSIONS
from moorage.placement.model import Provider
from moorage.placement.request import Request, parse
from moorage.placement.schemas import candidate as schemas
from moorage.placement.tree_search import Candidate
from moorage.wire.call import Reply


def index(call: PlacementCall) -> Reply:
    checked_query(call, schemas.LIST)
    request = parse(call.query.pairs, call.version)
    forest, found = call.service.candidates.find(request)
    encode = _with_mappings if call.version >= (1, 34) else _with_dict if call.version >= (1, 12) else _with_list
    return answer(
        call,
        {
            "allocation_requests": [encode(forest, candidate) for candidate in found],
            "provider_summaries": _summaries(call, forest, request, found),
        },
    )


def explain(call: PlacementCall) -> Reply:
    """In whatever microversion is asked for; without one, in the newest."""
    version = call.version if "openstack-api-version" in call.headers else VERSIONS.maximum
    schema = schemas.LIST.at(version)
    if schema is not None:
        schema.check(dict(call.query.pairs), lambda error: f"Invalid query string parameters: {error}")
    explanation = call.service.candidates.explain(parse(call.query.pairs, version))
    steps = [
        {
            "constraint": step.constraint,
            "before": step.before,
            "after": step.after,
            "removed": [{"provider": removed.provider, "reason": removed.reason} for removed in step.removed],
        }
        for step in explanation.steps
    ]
    return answer(call, {"text": explanation.text, "candidates": explanation.candidates, "steps": steps})


def _with_mappings(forest: Forest, candidate: Candidate) -> dict[str, object]:
    mappings = {suffix: [forest.at(slot).uuid for slot in slots] for suffix, slots in candidate.mappings.items()}
    return {**_with_dict(forest, candidate), "mappings": mappings}


def _with_dict(forest: Forest, candidate: Candidate) -> dict[str, object]:
    return {
        "allocations": {forest.at(slot).uuid: {"resources": amounts} for slot, amounts in candidate.allocations.items()}
    }


def _with_list(forest: Forest, candidate: Candidate) -> dict[str, object]:
    return {
        "allocations": [
            {"resource_provider": {"uuid": forest.at(slot).uuid}, "resources": amounts}
            for slot, amounts in candidate.allocations.items()
        ]
    }


def _summaries(
    call: PlacementCall, forest: Forest, request: Request, found: list[Candidate]
) -> dict[str, dict[str, object]]:
    """All providers of the trees that the candidates use; before 1.29, only those that they use."""
    used = dict.fromkeys(slot for candidate in found for slot in candidate.allocations)
    if request.nested:
        roots = dict.fromkeys(forest.root_of(slot) for slot in used)
        used = dict.fromkeys(slot for root in roots for slot in forest.trees[root])
    classes = None if call.version >= (1, 27) else request.class_names()
    summaries: dict[str, dict[str, object]] = {}
    for slot in used:
        provider = forest.at(slot)
        summary: dict[str, object] = {"resources": _resources(provider, classes)}
        if call.version >= (1, 17):
            summary["traits"] = sorted(provider.traits, key=forest.names.traits.__getitem__)
        if call.version >= (1, 29):
            parent = forest.parent_of(slot)
            summary["parent_provider_uuid"] = None if parent is None else forest.at(parent).uuid
            summary["root_provider_uuid"] = forest.at(forest.root_of(slot)).uuid
        summaries[provider.uuid] = summary
    return summaries


def _resources(provider: Provider, only: set[str] | None) -> dict[str, dict[str, int]]:
    return {
        name: {"capacity": inventory.capacity, "used": provider.used.get(name, 0)}
        for name, inventory in provider.inventories.items()
        if only is None or name in only
    }
