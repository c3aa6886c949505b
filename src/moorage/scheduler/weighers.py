"""Which of the possible hosts is the better one: numbers, more is better."""

import hashlib
from collections.abc import Callable

from moorage.scheduler.filters import HostView, Wanted

Weigher = Callable[[HostView, Wanted], float]


def free_memory(host: HostView, wanted: Wanted) -> float:
    """Spread: the host with the larger free share of its memory."""
    return _free_share(host, "MEMORY_MB")


def free_processors(host: HostView, wanted: Wanted) -> float:
    return _free_share(host, "VCPU")


def free_disk(host: HostView, wanted: Wanted) -> float:
    return _free_share(host, "DISK_GB")


def _free_share(host: HostView, resource_class: str) -> float:
    room = host.room.get(resource_class)
    return 0.0 if room is None else room.free_share


#: Weigher and multiplier, as Nova weighs memory, processors and disk: all alike.
WEIGHERS: tuple[tuple[Weigher, float], ...] = ((free_memory, 1.0), (free_processors, 1.0), (free_disk, 1.0))


def weight(host: HostView, wanted: Wanted, weighers: tuple[tuple[Weigher, float], ...] = WEIGHERS) -> float:
    return sum(multiplier * weigher(host, wanted) for weigher, multiplier in weighers)


def tie_break(host: HostView, wanted: Wanted) -> bytes:
    """An order among equals that differs from server to server: they do not all run to the same host, and a
    server that is scheduled again under the same circumstances comes to the same answer.
    """
    return hashlib.blake2b(f"{wanted.server_id}/{host.name}".encode(), digest_size=8).digest()
