"""Placement over its public API: what other features import, and all that they import of this one.

Speaks 1.39, so it works with OpenStack's Placement too; only `explain` is our own.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from moorage.core.errors import ConcurrentUpdate, Conflict, MoorageError, NotFound, RemoteError
from moorage.wire.client import ServiceClient, decode

#: The microversion that this client needs; the wiring gives it to the `ServiceClient`.
VERSION = "1.39"
CONCURRENT_UPDATE = "placement.concurrent_update"
SERVER_TYPE = "INSTANCE"
#: How consumers without a type are shown, and the last version in which one is written without.
UNKNOWN_TYPE = "unknown"
_WITHOUT_TYPES = "1.37"

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
class Closest:
    """A host that nearly fits."""

    provider: str
    lacks: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """The smallest change that would make a query fit, on `provider`."""

    provider: str
    parts: tuple[str, ...]  #: in words
    query: str  #: changed so


@dataclass(frozen=True)
class Explanation:
    """`closest` and `change` where there is no candidate."""

    text: str
    candidates: int = 0
    steps: tuple[Step, ...] = field(default_factory=tuple)
    closest: tuple[Closest, ...] = ()
    change: Change | None = None


@dataclass(frozen=True)
class Holder:
    """A consumer. `generation` None: it holds nothing any more, or not yet."""

    uuid: str
    generation: int | None
    project_id: str
    user_id: str
    type: str
    allocations: Mapping[str, Resources]  # {provider uuid: {class: amount}}
    written_at: datetime  #: when the newest of them was written


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

    def providers(self, query: Sequence[tuple[str, str]] = ()) -> list[Provider]:
        """Those that `query` leaves, in no order."""
        return [_provider(document) for document in self._get("/resource_providers", query)["resource_providers"]]

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

    def holders(self, uuid: str) -> tuple[int, dict[str, dict[str, int]]]:
        """(generation, {consumer: {class: units}}) of a provider."""
        document = self._get(f"/resource_providers/{uuid}/allocations")
        held = {consumer: dict(entry["resources"]) for consumer, entry in document["allocations"].items()}
        return document["resource_provider_generation"], held

    def holder(self, consumer: str) -> Holder | None:
        """None where it holds nothing."""
        try:
            answer = self._http.answer("GET", f"/allocations/{consumer}", version=VERSION)
        except RemoteError as error:
            raise _refusal(error) from error
        document = decode(answer)
        if not document["allocations"]:
            return None
        return Holder(
            uuid=consumer,
            generation=document["consumer_generation"],
            project_id=document["project_id"],
            user_id=document["user_id"],
            type=document["consumer_type"],
            allocations={uuid: dict(entry["resources"]) for uuid, entry in document["allocations"].items()},
            written_at=parsedate_to_datetime(answer.headers["last-modified"]),
        )

    def consumers_of(self, project_id: str) -> int:
        """How many consumers of the project hold something."""
        usages = self._get("/usages", [("project_id", project_id)])["usages"]
        return sum(entry["consumer_count"] for entry in usages.values())

    def hold(self, holder: Holder) -> None:
        """Let it hold what it says from now on, nothing included, if it is still of its generation.

        Raises `ConcurrentUpdate` where it is not.
        """
        kind = {} if holder.type == UNKNOWN_TYPE else {"consumer_type": holder.type}
        body = {
            "allocations": {uuid: {"resources": dict(units)} for uuid, units in holder.allocations.items()},
            "consumer_generation": holder.generation,
            "project_id": holder.project_id,
            "user_id": holder.user_id,
        }
        # A consumer without a type can keep none only below 1.38.
        version = VERSION if kind else _WITHOUT_TYPES
        try:
            self._http.request("PUT", f"/allocations/{holder.uuid}", json=body | kind, version=version)
        except RemoteError as error:
            raise _refusal(error) from error

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
        closest = tuple(Closest(host["provider"], tuple(host["lacks"])) for host in document.get("closest", ()))
        change = document.get("change")
        return Explanation(
            document["text"],
            document.get("candidates", 0),
            steps,
            closest,
            change and Change(change["provider"], tuple(change["parts"]), change["query"]),
        )

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
