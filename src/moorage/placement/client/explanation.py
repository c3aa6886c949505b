"""The answer to ``GET /moorage/v1/explain`` as the client gives it out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FunnelStep:
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
class Relaxation:
    """The smallest change that would make a query fit, on `provider`."""

    provider: str
    parts: tuple[str, ...]  #: in words
    query: str  #: changed so


@dataclass(frozen=True)
class Explanation:
    """`closest` and `change` where there is no candidate."""

    text: str
    candidates: int = 0
    steps: tuple[FunnelStep, ...] = ()
    closest: tuple[Closest, ...] = ()
    change: Relaxation | None = None


def explanation_of(document: Mapping[str, Any]) -> Explanation:
    steps = tuple(
        FunnelStep(
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
        change and Relaxation(change["provider"], tuple(change["parts"]), change["query"]),
    )
