"""Draws a client's next request at random: claims, moves, releases, many consumers at once, a reshape, inventories,
traits, aggregates, and the creation and deletion of providers.

Every tenant has its own tree (a root with one child, and short-lived children) and its own consumers. All tenants share
some providers, which are too small for all. No I/O.
"""

import dataclasses
import random
import uuid as uuids
from collections.abc import Sequence

from tests.crash.model import ConsumerState, Knowledge, ProviderState, Step

#: Units of VCPU on each shared provider: less than the tenants want together.
SHARED_VCPU = 24
MOST_CONSUMERS = 6
#: The minimum number of consumers in a large claim.
LARGE = 8
MOST_CHILDREN = 3
TRAITS = ("HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE", "HW_CPU_X86_MMX")


class Tenant:
    def __init__(self, number: int, seed: int, shared: Sequence[str]) -> None:
        self.number = number
        self.known = Knowledge()
        self._random = random.Random(f"{seed}-{number}")
        self._shared = shared
        self.root, self.child = self._uuid(), self._uuid()
        self._names = 0

    def first_steps(self) -> list[Step]:
        """Creates its tree before the other tenants start."""
        return [
            self._new_provider(self.root, None),
            self._new_provider(self.child, self.root),
        ]

    def next_step(self) -> Step:
        draw = self._random.choices(
            (self._claim, self._move, self._release, self._swap, self._inventories, self._traits, self._aggregates,
             self._create, self._delete, self._reshape, self._fleet),
            (10, 6, 4, 3, 3, 1, 1, 2, 2, 3, 8),
        )[0]  # fmt: skip
        return draw() or self._claim() or self._release() or self._inventories()

    # --- consumers -----------------------------------------------------------------------------------------------

    def _claim(self) -> Step | None:
        if len(self._consumers()) >= MOST_CONSUMERS:
            return None
        uuid = self._uuid()
        return self._put("claim", uuid, self._new_consumer())

    def _move(self) -> Step | None:
        if not (uuid := self._any_consumer()):
            return None
        before = self._consumers()[uuid]
        after = dataclasses.replace(before, generation=before.generation + 1, allocations=self._wish())
        return self._put("move", uuid, after)

    def _put(self, what: str, uuid: str, after: ConsumerState) -> Step:
        body = _wished(after, self._consumers().get(uuid))
        own, shared = self._counted({uuid: after})
        return Step(
            what, "PUT", f"/allocations/{uuid}", body, {uuid: after} | own, shared, may_be_refused=True
        )  # fmt: skip

    def _release(self) -> Step | None:
        """Deletes a consumer's allocations, which leaves the generations of its providers as they are."""
        if not (uuid := self._any_consumer()):
            return None
        return Step("release", "DELETE", f"/allocations/{uuid}", None, {uuid: None})

    def _swap(self) -> Step | None:
        """One request that deletes a consumer, creates another one, and changes a third one."""
        consumers = self._consumers()
        if len(consumers) < 2:
            return None
        leaving, changing = self._random.sample(sorted(consumers), 2)
        new = self._uuid()
        before = consumers[changing]
        after = {
            leaving: None,
            changing: dataclasses.replace(before, generation=before.generation + 1, allocations=self._wish()),
            new: self._new_consumer(),
        }
        body = {uuid: _wished(state, consumers.get(uuid)) for uuid, state in after.items()}
        own, shared = self._counted(after)
        return Step("swap", "POST", "/allocations", body, after | own, shared, may_be_refused=True)

    def _fleet(self) -> Step:
        """Creates so many consumers in one request that the service decides it while it writes another one. If the
        tenant has that many already, deletes them in one request.
        """
        consumers = self._consumers()
        if len(consumers) >= LARGE:
            what, after = "disband", dict.fromkeys(self._random.sample(sorted(consumers), LARGE))
        else:
            size = self._random.randint(LARGE, LARGE + 4)
            what, after = "fleet", {self._uuid(): self._new_consumer(most_shared=0) for _ in range(size)}
        body = {uuid: _wished(state, consumers.get(uuid)) for uuid, state in after.items()}
        own, shared = self._counted(after)
        return Step(what, "POST", "/allocations", body, after | own, shared)

    def _reshape(self) -> Step | None:
        """Moves DISK_GB with all its allocations from the root to the child or back."""
        consumers = self._consumers()
        holder = self.root if "DISK_GB" in self._provider(self.root).inventories else self.child
        other = self.child if holder == self.root else self.root
        inventories = {uuid: dict(self._provider(uuid).inventories) for uuid in (holder, other)}
        inventories[other]["DISK_GB"] = inventories[holder].pop("DISK_GB")
        effect = {
            uuid: dataclasses.replace(
                # Placement writes each provider's inventories twice, and the allocations on it in between.
                self._moved(uuid, by=3 if consumers else 2),
                inventories=totals,
            )
            for uuid, totals in inventories.items()
        }
        shared: dict[str, int] = {}
        for uuid, before in consumers.items():
            allocations = {provider: dict(amounts) for provider, amounts in before.allocations.items()}
            allocations.setdefault(other, {})["DISK_GB"] = allocations[holder].pop("DISK_GB")
            allocations = {provider: amounts for provider, amounts in allocations.items() if amounts}
            effect[uuid] = dataclasses.replace(before, generation=before.generation + 1, allocations=allocations)
            shared |= {provider: 1 for provider in allocations if provider in self._shared}
        body = {
            "inventories": {
                uuid: {
                    "resource_provider_generation": self._provider(uuid).generation,
                    "inventories": {name: {"total": total} for name, total in totals.items()},
                }
                for uuid, totals in inventories.items()
            },
            "allocations": {uuid: _wished(effect[uuid], before) for uuid, before in consumers.items()},
        }
        return Step("reshape", "POST", "/reshaper", body, effect, shared)

    def _new_consumer(self, most_shared: int = 2) -> ConsumerState:
        return ConsumerState(1, f"project-{self.number}", "INSTANCE", self._wish(most_shared))

    def _wish(self, most_shared: int = 2) -> dict[str, dict[str, int]]:
        """Random resources of up to `most_shared` shared providers, and of both own providers."""
        shared = self._random.randint(min(1, most_shared), most_shared)
        wish = {uuid: {"VCPU": self._random.randint(1, 4)} for uuid in self._random.sample(self._shared, shared)}
        wish[self.root] = {"MEMORY_MB": self._random.randint(1, 512)}
        wish[self.child] = {"PCPU": self._random.randint(1, 4)}
        holder = self.root if "DISK_GB" in self._provider(self.root).inventories else self.child
        wish[holder]["DISK_GB"] = self._random.randint(1, 9)
        return wish

    def _counted(self, after: dict[str, ConsumerState | None]) -> tuple[dict[str, ProviderState], dict[str, int]]:
        """The own and the shared providers whose generation a claim increases: those that the new states use, and those
        that a deleted consumer used.
        """
        consumers = self._consumers()
        counted = {uuid for state in after.values() if state is not None for uuid in state.allocations}
        counted |= {
            provider for uuid, state in after.items() if state is None for provider in consumers[uuid].allocations
        }
        own = {uuid: self._moved(uuid) for uuid in counted if uuid not in self._shared}
        return own, dict.fromkeys(counted.difference(own), 1)

    # --- providers -----------------------------------------------------------------------------------------------

    def _inventories(self) -> Step:
        uuid = self._random.choice((self.root, self.child))
        before = self._provider(uuid)
        totals = {name: self._random.randint(10_000, 20_000) for name in before.inventories}
        body = {
            "resource_provider_generation": before.generation,
            "inventories": {name: {"total": total} for name, total in totals.items()},
        }
        after = dataclasses.replace(self._moved(uuid), inventories=totals)
        return Step("inventories", "PUT", f"/resource_providers/{uuid}/inventories", body, {uuid: after})

    def _traits(self) -> Step | None:
        before = self._provider(self.root)
        wanted = frozenset(self._random.sample(TRAITS, self._random.randint(0, len(TRAITS))))
        if wanted == before.traits:
            return None  # a write without a change leaves the generation as it is
        body = {"resource_provider_generation": before.generation, "traits": sorted(wanted)}
        after = dataclasses.replace(self._moved(self.root), traits=wanted)
        return Step("traits", "PUT", f"/resource_providers/{self.root}/traits", body, {self.root: after})

    def _aggregates(self) -> Step:
        wanted = frozenset(self._uuid() for _ in range(self._random.randint(0, 2)))
        body = {"resource_provider_generation": self._provider(self.root).generation, "aggregates": sorted(wanted)}
        after = dataclasses.replace(self._moved(self.root), aggregates=wanted)
        return Step("aggregates", "PUT", f"/resource_providers/{self.root}/aggregates", body, {self.root: after})

    def _create(self) -> Step | None:
        if len(self._short_lived()) >= MOST_CHILDREN:
            return None
        return self._new_provider(self._uuid(), self._random.choice((self.root, self.child)))

    def _delete(self) -> Step | None:
        if not (candidates := self._short_lived()):
            return None
        uuid = self._random.choice(candidates)
        return Step("delete", "DELETE", f"/resource_providers/{uuid}", None, {uuid: None})

    def _new_provider(self, uuid: str, parent: str | None) -> Step:
        self._names += 1
        name = f"tenant-{self.number}-{self._names}"
        body = {"name": name, "uuid": uuid, "parent_provider_uuid": parent}
        return Step("create", "POST", "/resource_providers", body, {uuid: ProviderState(name, parent, 0)})

    def set_up_step(self, uuid: str) -> Step:
        totals = {self.root: {"MEMORY_MB": 10_000, "DISK_GB": 10_000}, self.child: {"PCPU": 10_000}}[uuid]
        body = {
            "resource_provider_generation": 0,
            "inventories": {name: {"total": total} for name, total in totals.items()},
        }
        after = dataclasses.replace(self._moved(uuid), inventories=totals)
        return Step("inventories", "PUT", f"/resource_providers/{uuid}/inventories", body, {uuid: after})

    # --- known state ---------------------------------------------------------------------------------------------

    def _consumers(self) -> dict[str, ConsumerState]:
        return self.known.of(ConsumerState)

    def _any_consumer(self) -> str | None:
        consumers = sorted(self._consumers())
        return self._random.choice(consumers) if consumers else None

    def _provider(self, uuid: str) -> ProviderState:
        return self.known.state[uuid]

    def _moved(self, uuid: str, by: int = 1) -> ProviderState:
        before = self._provider(uuid)
        return dataclasses.replace(before, generation=before.generation + by)

    def _short_lived(self) -> list[str]:
        return sorted(set(self.known.of(ProviderState)) - {self.root, self.child})

    def _uuid(self) -> str:
        return str(uuids.UUID(int=self._random.getrandbits(128), version=4))


def _wished(after: ConsumerState | None, before: ConsumerState | None) -> dict[str, object]:
    """The consumer's entry in the body of PUT or POST /allocations."""
    shown = after or before
    return {
        "allocations": {} if after is None else {
            uuid: {"resources": dict(amounts)} for uuid, amounts in after.allocations.items()
        },
        "project_id": shown.project,
        "user_id": "somebody",
        "consumer_generation": None if before is None else before.generation,
        "consumer_type": shown.kind,
    }  # fmt: skip
