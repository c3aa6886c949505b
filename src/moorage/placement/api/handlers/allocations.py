"""/allocations, /usages, /reshaper, and the allocations and usages of one provider"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import NotRequired, Required, TypedDict

from moorage.core.errors import Forbidden, Invalid, NotFound
from moorage.placement.api.handlers.answers import PlacementApiRequest, answer, answer_without_body, checked_query
from moorage.placement.api.handlers.inventories import decode_inventories
from moorage.placement.api.schemas import allocation as schemas
from moorage.placement.forest.model import Allocation
from moorage.placement.rules.allocation_writes import AllocationWrite
from moorage.placement.rules.inventory_writes import NewInventories
from moorage.placement.search.query import canonical_uuid, looks_like_uuid
from moorage.wire.http import Response

#: Owner of allocations that were written before 1.8, when requests named no owner.
INCOMPLETE = "00000000-0000-0000-0000-000000000000"

#: A consumer is deleted with its last allocation, and the next consumer with its uuid has the same generations again.
#: So an answer about one consumer contains the consumer's incarnation, a number that is never used again. A request may
#: name the incarnations that the client saw: ``UUID=NUMBER``, separated by commas.
INCARNATION = "x-moorage-consumer"
INCARNATIONS = "x-moorage-consumers"
#: Digits of an incarnation number.
_MAX_INCARNATION_DIGITS = 18


#: How consumers without a type (written before 1.38) are shown.
UNKNOWN = "unknown"


ALL = "all"


#: A policy rule without a route of its own: reading the usages of a project other than the caller's.
ANY_PROJECT = "placement:usages:any_project"


class HeldDocument(TypedDict, total=False):
    """What one consumer holds of one provider."""

    resources: Required[dict[str, int]]
    generation: int
    consumer_generation: int


class ProviderRefBody(TypedDict):
    uuid: str


class AllocationBody(TypedDict):
    resources: dict[str, int]
    resource_provider: NotRequired[ProviderRefBody]  #: required in a list


class ConsumerBody(TypedDict):
    """One consumer's part of a body; before 1.12, `allocations` is a list."""

    allocations: list[AllocationBody] | dict[str, AllocationBody]
    project_id: NotRequired[str]
    user_id: NotRequired[str]
    consumer_type: NotRequired[str]
    consumer_generation: NotRequired[int | None]


def show_consumer_allocations(request: PlacementApiRequest, consumer_uuid: str) -> Response:
    consumer, allocations = request.service.allocations.consumer_allocations(consumer_uuid)
    by_provider: dict[str, HeldDocument] = {}
    for allocation in allocations:
        entry = by_provider.setdefault(
            allocation.provider_uuid, {"resources": {}, "generation": allocation.provider_generation}
        )
        entry["resources"][allocation.resource_class] = allocation.used
    body: dict[str, object] = {"allocations": by_provider}
    if consumer is not None and allocations:
        if request.version >= (1, 12):
            body |= {"project_id": consumer.project_id, "user_id": consumer.user_id}
        if request.version >= (1, 28):
            body["consumer_generation"] = consumer.generation
        if request.version >= (1, 38):
            body["consumer_type"] = consumer.consumer_type or UNKNOWN
    response = answer(request, body, _newest(allocations))
    if consumer is None or not allocations:
        return response
    return replace(response, headers=response.headers | {INCARNATION: str(consumer.id)})


def show_provider_allocations(request: PlacementApiRequest, uuid: str) -> Response:
    generation, allocations = request.service.allocations.provider_allocations(uuid)
    by_consumer: dict[str, HeldDocument] = {}
    for allocation in allocations:
        entry = by_consumer.setdefault(allocation.consumer_uuid, {"resources": {}})
        entry["resources"][allocation.resource_class] = allocation.used
        if request.version >= (1, 28):
            entry["consumer_generation"] = allocation.consumer_generation
    body = {"allocations": by_consumer, "resource_provider_generation": generation}
    return answer(request, body, _newest(allocations))


def check_consumer_uuid(request: PlacementApiRequest, consumer_uuid: str) -> None:
    if not looks_like_uuid(consumer_uuid):
        raise Invalid(f"Malformed consumer_uuid: {consumer_uuid}")


def replace_consumer_allocations(request: PlacementApiRequest, consumer_uuid: str) -> Response:
    request.service.allocations.claim(
        [allocation_write(request, canonical_uuid(consumer_uuid), request.json)], single=True
    )
    return answer_without_body(request)


def replace_allocations(request: PlacementApiRequest) -> Response:
    request.service.allocations.claim(
        [allocation_write(request, consumer, document) for consumer, document in request.json.items()]
    )
    return answer_without_body(request)


def delete_allocations(request: PlacementApiRequest, consumer_uuid: str) -> Response:
    request.service.allocations.release(consumer_uuid)
    return answer_without_body(request)


def allocation_write(request: PlacementApiRequest, consumer_uuid: str, document: ConsumerBody) -> AllocationWrite:
    """Decodes one consumer's part of a body of PUT or POST /allocations or POST /reshaper, of any microversion."""
    given = document["allocations"]
    if isinstance(given, list):
        allocations = {entry["resource_provider"]["uuid"]: entry["resources"] for entry in given}
    else:
        allocations = {uuid: entry["resources"] for uuid, entry in given.items()}
    return AllocationWrite(
        consumer_uuid=consumer_uuid,
        allocations={uuid: {name: int(units) for name, units in one.items()} for uuid, one in allocations.items()},
        project_id=document.get("project_id", INCOMPLETE),
        user_id=document.get("user_id", INCOMPLETE),
        consumer_type=document.get("consumer_type"),
        generation=document.get("consumer_generation"),
        check_generation=request.version >= (1, 28),
        incarnation=_incarnation(request, consumer_uuid),
    )


def _incarnation(request: PlacementApiRequest, consumer_uuid: str) -> int | None:
    """Raises `Invalid` if the header cannot be parsed, because a client that names a consumer relies on it."""
    if (header := request.headers.get(INCARNATIONS)) is None:
        return None
    named: dict[str, int] = {}
    for part in header.split(","):
        uuid, _, number = part.strip().partition("=")
        if not looks_like_uuid(uuid) or not number.isdecimal() or len(number) > _MAX_INCARNATION_DIGITS:
            raise Invalid(f"{INCARNATIONS}: {part.strip()} must have the form UUID=NUMBER")
        named[canonical_uuid(uuid)] = int(number)
    return named.get(canonical_uuid(consumer_uuid))


def _newest(allocations: Iterable[Allocation]) -> datetime | None:
    return max((allocation.created_at for allocation in allocations), default=None)


def reshape(request: PlacementApiRequest) -> Response:
    inventories = {
        uuid: NewInventories(
            document["resource_provider_generation"],
            decode_inventories(document["inventories"]),
        )
        for uuid, document in request.json["inventories"].items()
    }
    writes = [
        allocation_write(request, consumer, document) for consumer, document in request.json["allocations"].items()
    ]
    request.service.allocations.reshape(inventories, writes)
    return answer_without_body(request)


def provider_usages(request: PlacementApiRequest, uuid: str) -> Response:
    provider = request.service.providers.forest().by_uuid(uuid)
    if provider is None:
        raise NotFound(f"No resource provider with uuid {uuid} found: No resource provider with uuid {uuid} found")
    used = {name: provider.used.get(name, 0) for name in provider.inventories}
    return answer(request, {"resource_provider_generation": provider.generation, "usages": used})


def project_usages(request: PlacementApiRequest) -> Response:
    last = dict(request.query.pairs)
    if not request.allowed(ANY_PROJECT) and last.get("project_id") != request.caller.project_id:
        raise Forbidden("Policy does not allow placement:usages to be performed.", rule="placement:usages")
    values = checked_query(request, schemas.USAGES)
    rows, counts = request.service.allocations.usages(values["project_id"], values.get("user_id"))
    if request.version < (1, 38):
        totals: dict[str, int] = {}
        for _, name, used in rows:
            totals[name] = totals.get(name, 0) + used
        return answer(request, {"usages": totals})
    return answer(request, {"usages": _usages_by_type(rows, counts, values.get("consumer_type"))})


def _usages_by_type(
    rows: list[tuple[str | None, str, int]], counts: dict[str | None, int], wanted: str | None
) -> dict[str, dict[str, int]]:
    """{consumer type: {class: units, ..., "consumer_count": consumers}}; with ``wanted="all"`` all are one type."""
    by_type: dict[str, dict[str, int]] = {}
    for consumer_type, name, used in rows:
        shown = ALL if wanted == ALL else consumer_type or UNKNOWN
        if wanted in (None, ALL, shown):
            group = by_type.setdefault(shown, {})
            group[name] = group.get(name, 0) + used
    for consumer_type, count in counts.items():
        shown = ALL if wanted == ALL else consumer_type or UNKNOWN
        if shown in by_type:
            by_type[shown]["consumer_count"] = by_type[shown].get("consumer_count", 0) + count
    return by_type
