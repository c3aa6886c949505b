"""Placement over its public API: what other features import, and all that they import of this one.

Speaks 1.39, so it works with OpenStack's Placement too; only `explain` is our own.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.core.errors import ConcurrentUpdate, Conflict, MoorageError, NotFound, RemoteError
from moorage.wire.client import ServiceClient

#: The microversion that this client needs; the wiring gives it to the `ServiceClient`.
VERSION = "1.39"
CONCURRENT_UPDATE = "placement.concurrent_update"
SERVER_TYPE = "INSTANCE"

Resources = Mapping[str, int]


@dataclass(frozen=True)
class Provider:
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str


@dataclass(frozen=True)
class Inventory:
    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 2**31 - 1
    step_size: int = 1
    allocation_ratio: float = 1.0


@dataclass(frozen=True)
class Candidate:
    """One way to serve a query; goes into `claim` as it is."""

    allocations: Mapping[str, Resources]  # {provider uuid: {class: amount}}
    mappings: Mapping[str, tuple[str, ...]]  # {group suffix, '' for the unsuffixed group: provider uuids}
    #: Root of the tree that it is about: the host. With sharing providers, the root that is not one of them.
    root_uuid: str


@dataclass(frozen=True)
class Summary:
    """One provider in the trees of the candidates."""

    capacity: Resources
    used: Resources
    traits: frozenset[str]
    parent_uuid: str | None
    root_uuid: str


@dataclass(frozen=True)
class Step:
    constraint: str
    before: int
    after: int
    removed: tuple[str, ...]  #: reasons, as sentences


@dataclass(frozen=True)
class Explanation:
    text: str
    steps: tuple[Step, ...] = field(default_factory=tuple)


class PlacementClient:
    """Raises `ConcurrentUpdate` and other `Conflict` for 409, `NotFound` for 404, `RemoteError` for the rest."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    # --- providers ----------------------------------------------------------------------------------------------

    def provider(self, uuid: str) -> Provider | None:
        try:
            return _provider(self._get(f"/resource_providers/{uuid}"))
        except NotFound:
            return None

    def provider_by_name(self, name: str) -> Provider | None:
        found = self._get("/resource_providers", [("name", name)])["resource_providers"]
        return _provider(found[0]) if found else None

    def tree(self, root_uuid: str) -> list[Provider]:
        """All providers of the tree that this one is in; empty when there is none."""
        found = self._get("/resource_providers", [("in_tree", root_uuid)])["resource_providers"]
        return [_provider(document) for document in found]

    def create_provider(self, name: str, *, uuid: str | None = None, parent_uuid: str | None = None) -> Provider:
        body: dict[str, object] = {"name": name}
        if uuid is not None:
            body["uuid"] = uuid
        if parent_uuid is not None:
            body["parent_provider_uuid"] = parent_uuid
        return _provider(self._send("POST", "/resource_providers", body))

    def delete_provider(self, uuid: str) -> None:
        self._delete(f"/resource_providers/{uuid}")

    # --- what they offer ----------------------------------------------------------------------------------------

    def inventories(self, uuid: str) -> tuple[int, dict[str, Inventory]]:
        """(generation, {class: inventory})"""
        document = self._get(f"/resource_providers/{uuid}/inventories")
        return document["resource_provider_generation"], {
            name: Inventory(**record) for name, record in document["inventories"].items()
        }

    def set_inventories(self, uuid: str, generation: int, inventories: Mapping[str, Inventory]) -> int:
        """The new generation."""
        body = {
            "resource_provider_generation": generation,
            "inventories": {name: _record(inventory) for name, inventory in inventories.items()},
        }
        answer = self._send("PUT", f"/resource_providers/{uuid}/inventories", body)
        return int(answer["resource_provider_generation"])

    def put_inventory(self, uuid: str, resource_class: str, inventory: Inventory) -> None:
        """Set one class, whether it was there or not; the others stay. Repeated when others write at the time."""
        for attempts_left in reversed(range(5)):
            generation, inventories = self.inventories(uuid)
            if inventories.get(resource_class) == inventory:
                return
            try:
                self.set_inventories(uuid, generation, inventories | {resource_class: inventory})
                return
            except ConcurrentUpdate:
                if not attempts_left:
                    raise

    def delete_inventory(self, uuid: str, resource_class: str) -> None:
        self._delete(f"/resource_providers/{uuid}/inventories/{resource_class}")

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """(generation, traits)"""
        document = self._get(f"/resource_providers/{uuid}/traits")
        return document["resource_provider_generation"], frozenset(document["traits"])

    def set_traits(self, uuid: str, generation: int, traits: Collection[str]) -> int:
        """The new generation. The traits must exist (`ensure_trait`)."""
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        return int(self._send("PUT", f"/resource_providers/{uuid}/traits", body)["resource_provider_generation"])

    def aggregates(self, uuid: str) -> tuple[int, frozenset[str]]:
        """(generation, aggregate uuids)"""
        document = self._get(f"/resource_providers/{uuid}/aggregates")
        return document["resource_provider_generation"], frozenset(document["aggregates"])

    def set_aggregates(self, uuid: str, generation: int, aggregates: Collection[str]) -> int:
        """The new generation."""
        body = {"resource_provider_generation": generation, "aggregates": sorted(aggregates)}
        return int(self._send("PUT", f"/resource_providers/{uuid}/aggregates", body)["resource_provider_generation"])

    def ensure_trait(self, name: str) -> None:
        self._send("PUT", f"/traits/{name}")

    def ensure_class(self, name: str) -> None:
        self._send("PUT", f"/resource_classes/{name}")

    def delete_class(self, name: str) -> None:
        self._delete(f"/resource_classes/{name}")

    # --- who holds it -------------------------------------------------------------------------------------------

    def usages(self, uuid: str) -> dict[str, int]:
        return dict(self._get(f"/resource_providers/{uuid}/usages")["usages"])

    def provider_allocations(self, uuid: str) -> dict[str, dict[str, int]]:
        """{consumer: {class: units}}"""
        found = self._get(f"/resource_providers/{uuid}/allocations")["allocations"]
        return {consumer: dict(entry["resources"]) for consumer, entry in found.items()}

    def allocations(self, consumer: str) -> dict[str, dict[str, int]]:
        """{provider uuid: {class: units}}; empty for a consumer that holds nothing."""
        found = self._get(f"/allocations/{consumer}")["allocations"]
        return {uuid: dict(entry["resources"]) for uuid, entry in found.items()}

    def claim(self, consumer: str, candidate: Candidate, project_id: str, user_id: str) -> None:
        """Take it for a consumer that holds nothing yet. Repeating a claim that was made is not an error."""
        body = {
            "allocations": {uuid: {"resources": dict(units)} for uuid, units in candidate.allocations.items()},
            "mappings": {suffix: list(uuids) for suffix, uuids in candidate.mappings.items()},
            "consumer_generation": None,
            "consumer_type": SERVER_TYPE,
            "project_id": project_id,
            "user_id": user_id,
        }
        if not candidate.mappings:
            del body["mappings"]
        try:
            self._send("PUT", f"/allocations/{consumer}", body)
        except ConcurrentUpdate:
            # The answer to an earlier try may have been lost on the way, and this is its repetition.
            if self.allocations(consumer) != {uuid: dict(units) for uuid, units in candidate.allocations.items()}:
                raise

    def release(self, consumer: str) -> None:
        """Give back all it holds; nothing is fine."""
        self._delete(f"/allocations/{consumer}")

    # --- who could ----------------------------------------------------------------------------------------------

    def candidates(self, query: Sequence[tuple[str, str]]) -> tuple[list[Candidate], Mapping[str, Summary]]:
        """The candidates, and {provider uuid: summary} of all providers in their trees."""
        document = self._get("/allocation_candidates", query)
        summaries = {uuid: _summary(entry) for uuid, entry in document["provider_summaries"].items()}
        return [_candidate(entry, summaries) for entry in document["allocation_requests"]], summaries

    def explain(self, query: Sequence[tuple[str, str]]) -> Explanation:
        """Why the query has the candidates that it has: constraint by constraint."""
        document = self._get("/moorage/v1/explain", query)
        steps = tuple(
            Step(
                step["constraint"],
                step["before"],
                step["after"],
                tuple(removed["reason"] for removed in step["removed"]),
            )
            for step in document["steps"]
        )
        return Explanation(document["text"], steps)

    # --- the wire -----------------------------------------------------------------------------------------------

    def _get(self, path: str, query: Iterable[tuple[str, str]] = ()) -> Any:
        try:
            return self._http.get(path, params=query, version=VERSION)
        except RemoteError as error:
            raise _refusal(error) from error

    def _send(self, method: str, path: str, body: object = None) -> Any:
        try:
            return self._http.request(method, path, json=body, version=VERSION)
        except RemoteError as error:
            raise _refusal(error) from error

    def _delete(self, path: str) -> None:
        """404 is as good as done."""
        try:
            self._http.answer("DELETE", path, version=VERSION, accept=(404,))
        except RemoteError as error:
            raise _refusal(error) from error


def _refusal(error: RemoteError) -> MoorageError:
    if error.status != 409:
        return error
    kind = ConcurrentUpdate if error.error_code == CONCURRENT_UPDATE else Conflict
    return kind(error.message, code=error.error_code, **error.fields)


def _provider(document: Mapping[str, Any]) -> Provider:
    return Provider(
        uuid=document["uuid"],
        name=document["name"],
        generation=document["generation"],
        parent_uuid=document["parent_provider_uuid"],
        root_uuid=document["root_provider_uuid"],
    )


def _record(inventory: Inventory) -> dict[str, object]:
    return {
        "total": inventory.total,
        "reserved": inventory.reserved,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step_size": inventory.step_size,
        "allocation_ratio": inventory.allocation_ratio,
    }


def _summary(document: Mapping[str, Any]) -> Summary:
    resources = document["resources"]
    return Summary(
        capacity={name: entry["capacity"] for name, entry in resources.items()},
        used={name: entry["used"] for name, entry in resources.items()},
        traits=frozenset(document["traits"]),
        parent_uuid=document["parent_provider_uuid"],
        root_uuid=document["root_provider_uuid"],
    )


def _candidate(document: Mapping[str, Any], summaries: Mapping[str, Summary]) -> Candidate:
    allocations = {uuid: dict(entry["resources"]) for uuid, entry in document["allocations"].items()}
    mappings = {suffix: tuple(uuids) for suffix, uuids in document["mappings"].items()}
    return Candidate(allocations, mappings, _root([*allocations, *sum(mappings.values(), ())], summaries))


def _root(uuids: Sequence[str], summaries: Mapping[str, Summary]) -> str:
    """The tree's root; sharing providers are trees of their own and only count where there is nothing else."""
    own = [uuid for uuid in uuids if uuid in summaries and "MISC_SHARES_VIA_AGGREGATE" not in summaries[uuid].traits]
    chosen = (own or list(uuids))[0]
    return summaries[chosen].root_uuid if chosen in summaries else chosen
