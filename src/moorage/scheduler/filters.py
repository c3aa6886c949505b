"""What Placement cannot know of a host. A filter answers a reason against it, or None.

Reasons name no host: they are counted, and the counts are shown to users.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Room:
    """One resource class on the root provider of a host, before the claim."""

    capacity: int
    used: int

    @property
    def free_share(self) -> float:
        return (self.capacity - self.used) / self.capacity if self.capacity else 0.0


@dataclass(frozen=True)
class HostView:
    """A compute host as the scheduler sees it."""

    name: str
    root_uuid: str  #: of its provider tree
    zone: str  #: availability zone
    is_up: bool  #: its service reported lately and nobody forced it down
    is_enabled: bool
    room: Mapping[str, Room] = field(default_factory=dict)  #: by resource class, of the root provider


@dataclass(frozen=True)
class Wanted:
    """What the user asked of the host itself."""

    server_id: str
    zone: str | None = None
    host: str | None = None


Filter = Callable[[HostView, Wanted], str | None]


def service_is_up(host: HostView, wanted: Wanted) -> str | None:
    return None if host.is_up else "its compute service is down"


def service_is_enabled(host: HostView, wanted: Wanted) -> str | None:
    return None if host.is_enabled else "its compute service is disabled"


def in_wanted_zone(host: HostView, wanted: Wanted) -> str | None:
    if wanted.zone is None or host.zone == wanted.zone:
        return None
    return f"not in availability zone {wanted.zone}"


def is_wanted_host(host: HostView, wanted: Wanted) -> str | None:
    if wanted.host is None or host.name == wanted.host:
        return None
    return "another host was asked for"


#: In the order in which their reasons are most use to a reader.
FILTERS: tuple[Filter, ...] = (is_wanted_host, in_wanted_zone, service_is_enabled, service_is_up)


def rejects(host: HostView, wanted: Wanted, filters: tuple[Filter, ...] = FILTERS) -> str | None:
    """The first reason against `host`."""
    return next((reason for passes in filters if (reason := passes(host, wanted))), None)
