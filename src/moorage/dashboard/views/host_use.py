"""The state of a host on the map, by which it is coloured, and the legend. Pure.

Computed from placement's trees and compute's aggregates: the map asks neither for servers nor for leases.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moorage.core.ids import is_uuid

Document = Mapping[str, Any]

DISABLED, FOR_LEASES = "COMPUTE_STATUS_DISABLED", "CUSTOM_RESERVATION_HOST"
RESERVATION_CLASS = "CUSTOM_RESERVATION_"


class HostUse(StrEnum):
    """The value is also the name of the colour. The first state that holds is shown."""

    OVER = "over"
    DISABLED = "disabled"
    WHOLE = "whole"
    PARTLY = "partly"
    USED = "used"
    FREE = "free"

    @property
    def words(self) -> str:
        return _WORDS[self][0]

    @property
    def meaning(self) -> str:
        return _WORDS[self][1]


_WORDS: Mapping[HostUse, tuple[str, str]] = {
    HostUse.OVER: ("overcommitted", "more is in use than there is"),
    HostUse.DISABLED: ("drained", "no new servers come here"),
    HostUse.WHOLE: ("reserved whole", "a running lease has the whole host"),
    HostUse.PARTLY: ("partly reserved", "running leases have slots here"),
    HostUse.USED: ("in use", "servers without a lease run here"),
    HostUse.FREE: ("free", "no server and no running lease"),
}


def host_use(tree: Document, lent: frozenset[str]) -> HostUse:
    """The state of one row of placement's ``/moorage/v1/trees``.

    `lent`: UUIDs of the aggregates that have the hosts of running leases (`lent_aggregates`).
    """
    classes, traits = tree["resource_classes"], tree["traits"]
    states = {
        HostUse.OVER: any(one["used"] > one["capacity"] for one in classes),
        HostUse.DISABLED: DISABLED in traits,
        HostUse.WHOLE: not lent.isdisjoint(tree["aggregates"]),
        HostUse.PARTLY: any(one["name"].startswith(RESERVATION_CLASS) and one["capacity"] for one in classes),
        HostUse.USED: any(one["used"] for one in classes),
    }
    return next((state for state, holds in states.items() if holds), HostUse.FREE)


def lent_aggregates(aggregates: Iterable[Document]) -> frozenset[str]:
    """UUIDs of compute's aggregates that belong to a reservation of whole hosts: each is named after it."""
    return frozenset(one["uuid"] for one in aggregates if is_uuid(one["name"]))


@dataclass(frozen=True, slots=True)
class LegendEntry:
    state: HostUse
    hosts: int


def legend(states: Iterable[HostUse]) -> tuple[LegendEntry, ...]:
    """Each state that some host has, with the number of hosts; in the order of `HostUse`."""
    counts = Counter(states)
    return tuple(LegendEntry(state, counts[state]) for state in HostUse if counts[state])
