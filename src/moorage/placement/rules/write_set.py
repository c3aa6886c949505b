"""The states that a write transaction starts from, and the states that it has decided so far.

Its forest is exact when the write commits: the transaction has taken the next change number, or takes it with the
commit, only if no other change came in between. Each request of a group sees the changes of the requests before it. In
the end, `moorage.placement.store.write_set_sql` writes the differences between the states at the start and the decided
states.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Consumer, Holdings, Provider


@dataclass(frozen=True, slots=True)
class ConsumerAllocations:
    """A consumer and its allocations. Its `id` is 0 while it is new."""

    consumer: Consumer
    holdings: Holdings


@dataclass
class WriteSet:
    forest: Forest
    now: datetime
    #: {uuid: the consumer as read}, for the consumers of all requests of the group
    found: Mapping[str, ConsumerAllocations] = field(default_factory=dict)
    #: {name: provider id}, for the names that requests of the group assign, as the database compares names
    owners: Mapping[str, int] = field(default_factory=dict)
    #: {provider id: its new state, None if deleted}; the ids of new providers are negative
    providers: dict[int, Provider | None] = field(default_factory=dict)
    #: {uuid: its new state and allocations; without allocations it is deleted}
    consumers: dict[str, ConsumerAllocations] = field(default_factory=dict)
    #: {uuid: negative id}
    created: dict[str, int] = field(default_factory=dict)

    @property
    def sequence(self) -> int:
        """The number of the change."""
        return self.forest.sequence + 1

    @property
    def is_empty(self) -> bool:
        return not self.providers and not self.consumers

    # --- present states -----------------------------------------------------------------------------------------

    def by_id(self, provider_id: int) -> Provider | None:
        changed = self.providers.get(provider_id)
        if changed is None and provider_id not in self.providers:
            return self.forest.by_id(provider_id)
        return changed

    def at(self, provider_id: int) -> Provider:
        provider = self.by_id(provider_id)
        if provider is None:
            raise KeyError(provider_id)
        return provider

    def by_uuid(self, uuid: str) -> Provider | None:
        if uuid in self.created:
            return self.by_id(self.created[uuid])
        found = self.forest.by_uuid(uuid)
        return None if found is None else self.providers.get(found.id, found)

    def members(self, root_id: int) -> Iterator[Provider]:
        """All providers of a tree."""
        for provider in self.providers.values():
            if provider is not None and provider.root_id == root_id:
                yield provider
        if (slot := self.forest.slot_of_id.get(root_id)) is None:
            return
        for member in self.forest.tree(slot):
            provider = self.forest.at(member)
            if provider.id not in self.providers:
                yield provider

    def subtree(self, top: Provider) -> list[Provider]:
        """`top` and all below it."""
        members = list(self.members(top.root_id))
        found = [top]
        for provider in found:
            found += [member for member in members if member.parent_id == provider.id]
        return found

    def is_name_taken(self, name: str, *, but: int = 0) -> bool:
        """Whether a provider other than `but` has this name."""
        slot = self.forest.slot_of_name.get(name)
        owner = self.owners.get(name, but) if slot is None else self.forest.at(slot).id
        return owner != but

    def consumer(self, uuid: str) -> ConsumerAllocations | None:
        """None if the consumer does not exist or was deleted. No two requests of a group have the same consumer."""
        if uuid in self.consumers:
            return self.consumers[uuid] if self.consumers[uuid].holdings else None
        return self.found.get(uuid)

    def new_providers(self) -> Iterator[Provider]:
        return (new for provider_id in self.created.values() if (new := self.providers[provider_id]) is not None)

    # --- changes ------------------------------------------------------------------------------------------------

    def change(self, provider: Provider, **fields: Any) -> Provider:
        """Sets these fields and the revision; returns the changed provider."""
        changed = replace(provider, revision=self.sequence, **fields)
        self.providers[provider.id] = changed
        return changed

    def use(self, provider: Provider, used: Mapping[str, int], *, counts: bool) -> None:
        """Set the usage. `counts`: increase the generation.

        Same as `change` in half the time, because claims do nothing else.
        """
        self.providers[provider.id] = Provider(
            provider.id,
            provider.uuid,
            provider.name,
            provider.generation + counts,
            self.sequence,
            provider.parent_id,
            provider.root_id,
            provider.inventories,
            used,
            provider.traits,
            provider.aggregates,
            self.now,
            provider.inventories_updated_at,
        )

    def create(self, uuid: str, name: str, parent: Provider | None) -> Provider:
        provider_id = -1 - len(self.created)
        root_id = provider_id if parent is None else parent.root_id
        new = Provider(
            provider_id, uuid, name, 0, self.sequence, None if parent is None else parent.id, root_id,
            updated_at=self.now,
        )  # fmt: skip
        self.created[uuid] = provider_id
        self.providers[provider_id] = new
        return new

    def drop(self, provider: Provider) -> None:
        self.providers[provider.id] = None

    def assign_ids(self, ids: Mapping[str, int]) -> dict[int, Provider]:
        """Replace the temporary ids of all created providers. `ids`: {uuid: id from the database}.

        Returns {temporary id: the provider with its id}.
        """
        with_ids: dict[int, Provider] = {}
        for uuid, temporary in self.created.items():
            new = self.at(temporary)
            root_id = ids[uuid] if new.root_id == temporary else new.root_id
            with_ids[temporary] = replace(new, id=ids[uuid], root_id=root_id)
            del self.providers[temporary]
            self.providers[ids[uuid]] = with_ids[temporary]
        self.created = dict(ids)
        return with_ids

    # --- decisions of several steps -----------------------------------------------------------------------------

    def trial(self) -> "WriteSet":
        """A copy for a decision of several steps; `accept` applies its result."""
        return replace(self, providers=dict(self.providers), consumers=dict(self.consumers), created=dict(self.created))

    def accept(self, trial: "WriteSet") -> None:
        self.providers, self.consumers, self.created = trial.providers, trial.consumers, trial.created
