"""Placement over its public API, for the other packages.

Uses microversion 1.39, so it also works with OpenStack Placement; only `explain`, `tree_states`, `change_log` and the
sample of `candidates` need Moorage.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from email.utils import parsedate_to_datetime
from typing import Any

from moorage.core.errors import ConcurrentUpdate, Conflict, MoorageError, NotFound, RemoteError
from moorage.core.inventories import Inventory
from moorage.core.names import CUSTOM_PREFIX
from moorage.placement.client.change_log import ProviderChangeLog
from moorage.placement.client.values import (
    Candidate,
    Candidates,
    Claim,
    Consumer,
    Explanation,
    Provider,
    ProviderState,
    Resources,
    Summary,
    decode_candidates,
    decode_explanation,
    decode_provider,
    decode_tree_states,
)
from moorage.wire.client import ServiceClient, decode_body

__all__ = [
    "MOVE_TYPE",
    "SERVER_TYPE",
    "VERSION",
    "Candidate",
    "Candidates",
    "Claim",
    "Consumer",
    "Explanation",
    "Inventory",
    "PlacementClient",
    "Provider",
    "ProviderState",
    "Summary",
]

#: The microversion that this client needs; the wiring gives it to the `ServiceClient`.
VERSION = "1.39"
CONCURRENT_UPDATE = "placement.concurrent_update"
SERVER_TYPE = "INSTANCE"
MOVE_TYPE = "MIGRATION"
#: How consumers without a type are shown, and the last version that can write a consumer without a type.
UNKNOWN_TYPE = "unknown"
_WITHOUT_TYPES = "1.37"
#: Moorage's own header (`moorage.placement.search.single_choice`).
_SAMPLE = "x-moorage-sample"
#: Moorage's own headers: the incarnations of the consumer in an answer, and of the consumers in a request
#: (`moorage.placement.api.handlers.allocations`).
_INCARNATION, _INCARNATIONS = "x-moorage-consumer", "x-moorage-consumers"
#: Total number of attempts, if other clients change the provider between our read and our write.
_MAX_TRIES = 5


class PlacementClient:
    """Raises `ConcurrentUpdate` and other `Conflict` for 409, `NotFound` for 404, `RemoteError` for the rest."""

    def __init__(self, http: ServiceClient, version: str = VERSION) -> None:
        """`version`: an older microversion, for callers that use no newer feature and support an older Placement."""
        self._http = http
        self._version = version
        self.change_log = ProviderChangeLog(self._get)

    def newest_version(self) -> str:
        """The newest microversion that the service supports. The request itself names none."""
        return str(self._http.get("/")["versions"][0]["max_version"])

    # --- providers ----------------------------------------------------------------------------------------------

    def provider(self, uuid: str) -> Provider | None:
        try:
            return decode_provider(self._get(f"/resource_providers/{uuid}"))
        except NotFound:
            return None

    def providers(self, query: Sequence[tuple[str, str]] = ()) -> list[Provider]:
        """Providers that match `query`, in any order."""
        return [decode_provider(document) for document in self._get("/resource_providers", query)["resource_providers"]]

    def provider_by_name(self, name: str) -> Provider | None:
        found = self._get("/resource_providers", [("name", name)])["resource_providers"]
        return decode_provider(found[0]) if found else None

    def tree(self, root_uuid: str) -> list[Provider]:
        """All providers in the tree of this provider; empty if it does not exist."""
        found = self._get("/resource_providers", [("in_tree", root_uuid)])["resource_providers"]
        return [decode_provider(document) for document in found]

    def tree_states(self, uuid: str) -> list[ProviderState] | None:
        """The states of all providers in the tree of this provider, in one request.

        None if the provider does not exist, or if the service is OpenStack Placement, which has no such route.
        """
        try:
            return decode_tree_states(self._get(f"/moorage/v1/trees/{uuid}"))
        except NotFound:
            return None

    def create_provider(self, name: str, *, uuid: str | None = None, parent_uuid: str | None = None) -> Provider:
        body: dict[str, object] = {"name": name}
        if uuid is not None:
            body["uuid"] = uuid
        if parent_uuid is not None:
            body["parent_provider_uuid"] = parent_uuid
        return decode_provider(self._send("POST", "/resource_providers", body))

    def delete_provider(self, uuid: str) -> None:
        self._delete(f"/resource_providers/{uuid}")

    # --- inventories, traits, aggregates ----------------------------------------------------------------------

    def inventories(self, uuid: str) -> tuple[int, dict[str, Inventory]]:
        """(generation, {class: inventory})"""
        document = self._get(f"/resource_providers/{uuid}/inventories")
        return document["resource_provider_generation"], {
            name: Inventory(**record) for name, record in document["inventories"].items()
        }

    def set_inventories(self, uuid: str, generation: int, inventories: Mapping[str, Inventory]) -> int:
        """Returns the new generation."""
        body = {
            "resource_provider_generation": generation,
            "inventories": {name: asdict(inventory) for name, inventory in inventories.items()},
        }
        answer = self._send("PUT", f"/resource_providers/{uuid}/inventories", body)
        return int(answer["resource_provider_generation"])

    def add_inventory(self, uuid: str, resource_class: str, inventory: Inventory) -> None:
        """Add inventory of a class that the provider does not have yet, in one request without a generation.

        Raises `Conflict` if the provider has the class; also if an earlier attempt succeeded and its answer was lost.
        """
        body = {"resource_class": resource_class, **asdict(inventory)}
        path = f"/resource_providers/{uuid}/inventories"
        try:
            self._http.request_raw("POST", path, json=body, version=self._version, repeatable=True)
        except RemoteError as error:
            raise _refusal(error) from error

    def put_inventory(self, uuid: str, resource_class: str, inventory: Inventory) -> None:
        """Set the inventory of one class, whether it exists or not; the others stay.

        Retries after concurrent writes.
        """
        self.put_inventories(uuid, {resource_class: inventory})

    def put_inventories(self, uuid: str, wanted: Mapping[str, Inventory]) -> None:
        """`put_inventory` for several classes, in one write."""

        def attempt() -> None:
            generation, inventories = self.inventories(uuid)
            if any(inventories.get(name) != inventory for name, inventory in wanted.items()):
                self.set_inventories(uuid, generation, {**inventories, **wanted})

        _with_retries(attempt)

    def delete_inventory(self, uuid: str, resource_class: str) -> None:
        self._delete(f"/resource_providers/{uuid}/inventories/{resource_class}")

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """(generation, traits)"""
        document = self._get(f"/resource_providers/{uuid}/traits")
        return document["resource_provider_generation"], frozenset(document["traits"])

    def set_traits(self, uuid: str, generation: int, traits: Collection[str]) -> int:
        """Returns the new generation. The traits must exist (`ensure_trait`)."""
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        return int(self._send("PUT", f"/resource_providers/{uuid}/traits", body)["resource_provider_generation"])

    def put_trait(self, uuid: str, trait: str, *, wanted: bool) -> None:
        """Add the trait (`wanted`) or remove it; the others stay. Retries after concurrent writes.

        A trait to add must exist (`ensure_trait`).
        """

        def attempt() -> None:
            generation, traits = self.traits(uuid)
            if (trait in traits) is not wanted:
                self.set_traits(uuid, generation, traits ^ {trait})

        _with_retries(attempt)

    def aggregates(self, uuid: str) -> tuple[int, frozenset[str]]:
        """(generation, aggregate uuids)"""
        document = self._get(f"/resource_providers/{uuid}/aggregates")
        return document["resource_provider_generation"], frozenset(document["aggregates"])

    def change_aggregates(self, uuid: str, *, joined: frozenset[str], left: frozenset[str]) -> None:
        """Put the provider into the aggregates `joined`, and take it out of those in `left`; the others stay. Retries
        after concurrent writes.
        """

        def attempt() -> None:
            generation, there = self.aggregates(uuid)
            if (after := (there - left) | joined) != there:
                self.set_aggregates(uuid, generation, after)

        _with_retries(attempt)

    def set_aggregates(self, uuid: str, generation: int, aggregates: Collection[str]) -> int:
        """Returns the new generation."""
        body = {"resource_provider_generation": generation, "aggregates": sorted(aggregates)}
        return int(self._send("PUT", f"/resource_providers/{uuid}/aggregates", body)["resource_provider_generation"])

    def ensure_trait(self, name: str) -> None:
        self._send("PUT", f"/traits/{name}")

    def ensure_class(self, name: str) -> None:
        self._send("PUT", f"/resource_classes/{name}")

    def classes(self) -> frozenset[str]:
        """Names of all resource classes."""
        return frozenset(row["name"] for row in self._get("/resource_classes")["resource_classes"])

    def unused_traits(self) -> frozenset[str]:
        """Names of custom traits that no provider has."""
        query = [("name", f"startswith:{CUSTOM_PREFIX}"), ("associated", "false")]
        return frozenset(self._get("/traits", query)["traits"])

    def has_class(self, name: str) -> bool:
        return self._exists(f"/resource_classes/{name}")

    def has_trait(self, name: str) -> bool:
        return self._exists(f"/traits/{name}")

    def delete_trait(self, name: str) -> None:
        """Raises `Conflict` if a provider has the trait."""
        self._delete(f"/traits/{name}")

    def delete_class(self, name: str) -> None:
        self._delete(f"/resource_classes/{name}")

    # --- allocations and consumers ------------------------------------------------------------------------------

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

    def holder(self, consumer: str) -> Consumer | None:
        """None if the consumer has no allocations."""
        try:
            answer = self._http.request_raw("GET", f"/allocations/{consumer}", version=VERSION)
        except RemoteError as error:
            raise _refusal(error) from error
        document = decode_body(answer)
        if not document["allocations"]:
            return None
        return Consumer(
            uuid=consumer,
            generation=document["consumer_generation"],
            project_id=document["project_id"],
            user_id=document["user_id"],
            type=document["consumer_type"],
            allocations={uuid: dict(entry["resources"]) for uuid, entry in document["allocations"].items()},
            written_at=parsedate_to_datetime(answer.headers["last-modified"]),
            incarnation=answer.headers.get(_INCARNATION),
        )

    def consumers_of(self, project_id: str) -> int:
        """Number of the project's consumers that have allocations."""
        usages = self._get("/usages", [("project_id", project_id)])["usages"]
        return sum(entry["consumer_count"] for entry in usages.values())

    def project_usages(self, project_id: str) -> dict[str, dict[str, int]]:
        """{consumer type: {class: units}} of the project."""
        usages = self._get("/usages", [("project_id", project_id)])["usages"]
        return {
            kind: {name: units for name, units in entry.items() if name != "consumer_count"}
            for kind, entry in usages.items()
        }

    def hold(self, holder: Consumer) -> None:
        """Replace the consumer's allocations (possibly with none) by those in `holder`.

        Raises `ConcurrentUpdate` if its generation or incarnation has changed.
        """
        kind = {} if holder.type == UNKNOWN_TYPE else {"consumer_type": holder.type}
        body = {
            "allocations": _resources(holder.allocations),
            "consumer_generation": holder.generation,
            "project_id": holder.project_id,
            "user_id": holder.user_id,
        }
        # From 1.38 on, every write sets a type.
        version = VERSION if kind else _WITHOUT_TYPES
        try:
            self._http.request(
                "PUT",
                f"/allocations/{holder.uuid}",
                json=body | kind,
                version=version,
                headers=_incarnation_header(holder),
            )
        except RemoteError as error:
            raise _refusal(error) from error

    def allocations(self, consumer: str) -> dict[str, dict[str, int]]:
        """{provider uuid: {class: units}}; empty for a consumer without allocations."""
        found = self._get(f"/allocations/{consumer}")["allocations"]
        return {uuid: dict(entry["resources"]) for uuid, entry in found.items()}

    def claim(self, consumer: str, candidate: Candidate, project_id: str, user_id: str) -> None:
        """Claim a candidate for a consumer without allocations. Repeating a successful claim is not an error."""
        try:
            self._send("PUT", f"/allocations/{consumer}", _claim_body(candidate, project_id, user_id))
        except ConcurrentUpdate:
            # This may be the repetition of a claim that succeeded and whose answer was lost.
            if self.allocations(consumer) != {uuid: dict(units) for uuid, units in candidate.allocations.items()}:
                raise

    def claim_together(self, claims: Mapping[str, Claim]) -> None:
        """Claim for several consumers, {consumer: claim}, in one step: all of them or none.

        Raises `Conflict` if one of them does not fit; the error does not say which. It also raises `Conflict` if an
        earlier attempt succeeded and its answer was lost: `claim` then finds out which consumers have their claims.
        """
        body = {consumer: _claim_body(one.candidate, one.project_id, one.user_id) for consumer, one in claims.items()}
        self._send("POST", "/allocations", body)

    def hand_over(self, source: str, target: str, target_type: str) -> None:
        """Move all allocations of `source` to `target`, replacing those of `target`, in one step.

        Does nothing if `source` has no allocations, because an earlier call moved them. Raises `ConcurrentUpdate` if
        one of them changed meanwhile.
        """
        source_consumer = self.holder(source)
        if source_consumer is None:
            return
        target_consumer = self.holder(target)
        common = {"project_id": source_consumer.project_id, "user_id": source_consumer.user_id}
        body = {
            source: {
                "allocations": {},
                "consumer_generation": source_consumer.generation,
                "consumer_type": source_consumer.type,
                **common,
            },
            target: {
                "allocations": _resources(source_consumer.allocations),
                "consumer_generation": None if target_consumer is None else target_consumer.generation,
                "consumer_type": target_type,
                **common,
            },
        }
        self._send("POST", "/allocations", body, _incarnation_header(source_consumer, target_consumer))

    def release(self, consumer: str) -> None:
        """Release all allocations of the consumer; having none is not an error.

        Does not use DELETE, which does not say which allocations to release: a delayed DELETE, whose sender has timed
        out and claimed again, would remove the new claim. This request contains the generation that it read, and the
        incarnation if the service has them, because generations start again after a consumer was deleted. Raises
        `ConcurrentUpdate` if other clients changed the consumer in each attempt.
        """

        def attempt() -> None:
            holder = self.holder(consumer)
            if holder is not None:
                self.hold(replace(holder, allocations={}))

        _with_retries(attempt)

    # --- candidates ---------------------------------------------------------------------------------------------

    def candidates(
        self, query: Sequence[tuple[str, str]], *, sample: str | None = None
    ) -> tuple[Candidates, Mapping[str, Summary]]:
        """The candidates, and {provider uuid: summary} of all providers in their trees.

        `sample`: a seed. With a limit, each seed selects other candidates from all over the cloud. OpenStack Placement
        ignores it.
        """
        headers = {} if sample is None else {_SAMPLE: sample}
        try:
            answer = self._http.request_raw(
                "GET", "/allocation_candidates", params=query, version=VERSION, headers=headers
            )
        except RemoteError as error:
            raise _refusal(error) from error
        return decode_candidates(answer.body)

    def explain(self, query: Sequence[tuple[str, str]]) -> Explanation:
        """Explains the result of the query, constraint by constraint. Moorage only."""
        return decode_explanation(self._get("/moorage/v1/explain", query))

    # --- the wire -----------------------------------------------------------------------------------------------

    def _exists(self, path: str) -> bool:
        return self._http.request_raw("GET", path, version=self._version, accept=(404,)).status != 404

    def _get(self, path: str, query: Iterable[tuple[str, str]] = ()) -> Any:
        try:
            return self._http.get(path, params=query, version=self._version)
        except RemoteError as error:
            raise _refusal(error) from error

    def _send(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        try:
            return self._http.request(method, path, json=body, version=self._version, headers=headers)
        except RemoteError as error:
            raise _refusal(error) from error

    def _delete(self, path: str) -> None:
        """404 counts as success."""
        try:
            self._http.request_raw("DELETE", path, version=self._version, accept=(404,))
        except RemoteError as error:
            raise _refusal(error) from error


def _with_retries(attempt: Callable[[], None]) -> None:
    """Calls `attempt` until it raises no `ConcurrentUpdate`, at most `_MAX_TRIES` times."""
    for tries_left in reversed(range(_MAX_TRIES)):
        try:
            attempt()
        except ConcurrentUpdate:
            if not tries_left:
                raise
        else:
            return


def _refusal(error: RemoteError) -> MoorageError:
    if error.status != 409:
        return error
    kind = ConcurrentUpdate if error.error_code == CONCURRENT_UPDATE else Conflict
    return kind(error.message, code=error.error_code, **error.fields)


def _incarnation_header(*holders: Consumer | None) -> dict[str, str]:
    """The header that limits a request to these incarnations of the consumers."""
    named = [f"{one.uuid}={one.incarnation}" for one in holders if one is not None and one.incarnation is not None]
    return {_INCARNATIONS: ",".join(named)} if named else {}


def _claim_body(candidate: Candidate, project_id: str, user_id: str) -> dict[str, object]:
    """The body of a claim for a new consumer."""
    body: dict[str, object] = {
        "allocations": _resources(candidate.allocations),
        "consumer_generation": None,
        "consumer_type": SERVER_TYPE,
        "project_id": project_id,
        "user_id": user_id,
    }
    if candidate.mappings:
        body["mappings"] = {suffix: list(uuids) for suffix, uuids in candidate.mappings.items()}
    return body


def _resources(allocations: Mapping[str, Resources]) -> dict[str, dict[str, dict[str, int]]]:
    """{provider uuid: {class: units}} in the form of a request body."""
    return {uuid: {"resources": dict(units)} for uuid, units in allocations.items()}
