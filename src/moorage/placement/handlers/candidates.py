"""GET /allocation_candidates, and our own GET /moorage/v1/explain, which tells why they are what they are"""

from collections.abc import Callable, Iterator

from moorage.placement.candidates import Found
from moorage.placement.forest import Forest
from moorage.placement.handlers.answers import PlacementCall, answer, checked_query
from moorage.placement.handlers.root import VERSIONS
from moorage.placement.model import Provider
from moorage.placement.request import Request, parse
from moorage.placement.schemas import candidate as schemas
from moorage.placement.service_providers import kept
from moorage.placement.tree_search import Candidate
from moorage.wire.body import encode_json
from moorage.wire.call import Reply
from moorage.wire.microversion import Version

#: Stands for a uuid in a fragment; no name on this wire has it.
_ANY = "@"


def index(call: PlacementCall) -> Reply:
    checked_query(call, schemas.LIST)
    request = parse(call.query.pairs, call.version)
    forest, found = call.service.candidates.find(request)
    return answer(call, body(call.version, forest, request, found))


def body(version: Version, forest: Forest, request: Request, found: Found) -> bytes:
    """Joined from fragments: most of a megabyte is the same as in the answer before."""
    requests = b",".join(_requests(version, forest, request, found))
    summaries = b",".join(_summaries(version, forest, request, found))
    return b'{"allocation_requests":[%s],"provider_summaries":{%s}}' % (requests, summaries)


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


def _requests(version: Version, forest: Forest, request: Request, found: Found) -> Iterator[bytes]:
    """Allocation requests, encoded. Those of one provider differ in its uuid and nothing else."""
    if found.alone:
        like = Candidate(0, {0: request.groups[0].resources}, {"": (0,)})
        parts = encode_json(encode(version, lambda _: _ANY, like)).decode().split(_ANY)
        yield ",".join([forest.at(slot).uuid.join(parts) for slot in found.alone]).encode()
    for candidate in found.others:
        yield encode_json(encode(version, lambda slot: forest.at(slot).uuid, candidate))


def encode(version: Version, uuid: Callable[[int], str], candidate: Candidate) -> dict[str, object]:
    """One allocation request; `uuid` is of a slot."""
    if version < (1, 12):
        listed = [
            {"resource_provider": {"uuid": uuid(slot)}, "resources": amounts}
            for slot, amounts in candidate.allocations.items()
        ]
        return {"allocations": listed}
    encoded: dict[str, object] = {
        "allocations": {uuid(slot): {"resources": amounts} for slot, amounts in candidate.allocations.items()}
    }
    if version >= (1, 34):
        encoded["mappings"] = {suffix: [uuid(slot) for slot in slots] for suffix, slots in candidate.mappings.items()}
    return encoded


def _summaries(version: Version, forest: Forest, request: Request, found: Found) -> Iterator[bytes]:
    """All providers of the trees that the candidates use; before 1.29, only those that they use."""
    used = dict.fromkeys(found.alone)
    used |= dict.fromkeys(slot for candidate in found.others for slot in candidate.allocations)
    if request.nested and forest.is_nested:
        roots = dict.fromkeys(forest.root_of(slot) for slot in used)
        used = dict.fromkeys(slot for root in roots for slot in forest.trees[root])
    classes = None if version >= (1, 27) else request.class_names()
    for slot in used:
        provider = forest.at(slot)
        encoded = provider.memo.get(_SUMMARY) if version >= (1, 29) else None
        if encoded is None:
            encoded = encode_json({provider.uuid: summary(version, forest, provider, classes)})[1:-1]
            if version >= (1, 29):
                provider.memo[_SUMMARY] = encoded
        yield encoded


#: In the memo of a provider: its summary as it is since 1.29. The uuids of its parent and of its root are part of its
#: state, for the ids are, and no id gets another uuid.
_SUMMARY = "summary"


def summary(version: Version, forest: Forest, provider: Provider, classes: set[str] | None) -> dict[str, object]:
    """`classes`: only these, unless None."""
    encoded: dict[str, object] = {"resources": _resources(provider, classes)}
    if version >= (1, 17):
        encoded["traits"] = sorted(provider.traits, key=forest.names.traits.__getitem__)
    if version >= (1, 29):
        shown = kept(forest, provider)
        encoded["parent_provider_uuid"] = shown.parent_uuid
        encoded["root_provider_uuid"] = shown.root_uuid
    return encoded


def _resources(provider: Provider, only: set[str] | None) -> dict[str, dict[str, int]]:
    return {
        name: {"capacity": inventory.capacity, "used": provider.used.get(name, 0)}
        for name, inventory in provider.inventories.items()
        if only is None or name in only
    }
