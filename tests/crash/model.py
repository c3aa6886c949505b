"""The state that clients know from acknowledged requests, and the effect of one more request on it. No I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProviderState:
    name: str
    parent: str | None
    generation: int
    inventories: Mapping[str, int] = field(default_factory=dict)  # {class: total}
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ConsumerState:
    generation: int
    project: str
    kind: str
    allocations: Mapping[str, Mapping[str, int]]  # {provider uuid: {class: amount}}


#: None: the object does not exist.
State = ProviderState | ConsumerState | None


@dataclass(frozen=True)
class Step:
    """One request and all its effects on subjects that only its client changes."""

    what: str
    method: str
    path: str
    body: object
    effect: Mapping[str, State]  # {uuid: its state afterwards}
    #: {uuid: by how much the request increases the generation of this provider, which all clients use}
    shared: Mapping[str, int] = field(default_factory=dict)
    #: Whether "409, no capacity" is a valid answer.
    may_be_refused: bool = False


@dataclass
class Knowledge:
    """What one client knows: `state` was acknowledged; `pending` was sent, but not answered."""

    state: dict[str, State] = field(default_factory=dict)
    pending: Step | None = None
    #: {shared provider: by how much this client has increased its generation}
    shared: dict[str, int] = field(default_factory=dict)

    def acknowledge(self, step: Step) -> None:
        self.state |= step.effect
        for uuid, by in step.shared.items():
            self.shared[uuid] = self.shared.get(uuid, 0) + by
        self.pending = None

    def refuse(self) -> None:
        self.pending = None

    def resolve(self, seen: Mapping[str, State]) -> Iterator[str]:
        """Finds out from `seen`, the present state of everything, whether the pending request was carried out. Yields
        the errors: a request of which only a part was carried out, and any difference from the acknowledged state.
        """
        if (step := self.pending) is not None:
            there = {uuid: seen.get(uuid) for uuid in step.effect}
            before = {uuid: self.state.get(uuid) for uuid in step.effect}
            if there == step.effect:
                self.acknowledge(step)
            elif there == before:
                self.refuse()
            else:
                yield f"half done: {step}\n  before {before}\n  now {there}"
                return
        for uuid, known in self.state.items():
            if seen.get(uuid) != known:
                yield f"acknowledged was {known}, but {uuid} is {seen.get(uuid)}"

    def of(self, kind: type) -> dict[str, State]:
        return {uuid: state for uuid, state in self.state.items() if isinstance(state, kind)}
