"""Limits of projects and the amounts counted against them; and usage over a period (``os-simple-tenant-usage``).

Limits have Nova's names; in addition, ``class:NAME`` limits any resource class of Placement, custom ones too. A server
counts by its request to Placement, not by the numbers that its flavor displays: ``cores`` are its VCPU and PCPU,
``ram`` its MEMORY_MB. -1 means no limit.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from moorage.compute.model.servers import Server
from moorage.core.errors import Invalid

UNLIMITED = -1
CLASS_PREFIX = "class:"
#: Nova's limits of networks and injected files, which are not enforced here.
OF_NETWORKS: Mapping[str, int] = dict.fromkeys(
    ("fixed_ips", "floating_ips", "security_group_rules", "security_groups"), UNLIMITED
)
OF_FILES: Mapping[str, int] = {
    "injected_file_content_bytes": 10240,
    "injected_file_path_bytes": 255,
    "injected_files": 5,
}
#: Nova's defaults.
DEFAULTS: Mapping[str, int] = {
    "cores": 20,
    "instances": 10,
    "key_pairs": 100,
    "metadata_items": 128,
    "ram": 51200,
    "server_group_members": 10,
    "server_groups": 10,
    **OF_NETWORKS,
    **OF_FILES,
}

_CLASS = re.compile(r"[A-Z0-9_]{1,255}\Z")

Amounts = Mapping[str, int]  # {name of a limit: units}


@dataclass(frozen=True)
class ExceededLimit:
    """A limit that a request would exceed."""

    name: str
    used: int
    asked: int
    limit: int


def is_class(name: str) -> bool:
    """Whether this could be the name of a resource class."""
    return _CLASS.match(name) is not None


def resource_amounts(resources: Mapping[str, int], *, servers: int = 1) -> dict[str, int]:
    """{name of the limit: amount} of `servers` equal servers. `resources`: {resource class: units} of each."""
    amounts = {f"{CLASS_PREFIX}{name}": units for name, units in resources.items()}
    amounts["instances"] = 1
    amounts["cores"] = resources.get("VCPU", 0) + resources.get("PCPU", 0)
    amounts["ram"] = resources.get("MEMORY_MB", 0)
    return {name: units * servers for name, units in amounts.items()}


def sum_amounts(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, units in part.items():
            total[name] = total.get(name, 0) + units
    return total


def replace_amounts(total: Amounts, before: Amounts, after: Amounts) -> dict[str, int]:
    """`total` after a part of it changed from `before` to `after`; without zeros."""
    changed = sum_amounts((total, after, {name: -units for name, units in before.items()}))
    return {name: units for name, units in changed.items() if units}


def larger_amounts(one: Amounts, other: Amounts) -> dict[str, int]:
    """The larger amount for each name, for a server that may end with either."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def added_amounts(before: Amounts, after: Amounts) -> dict[str, int]:
    """{name: increase from `before` to `after`}, for amounts that increase."""
    return {name: units - before.get(name, 0) for name, units in after.items() if units > before.get(name, 0)}


def exceeded_limits(limits: Amounts, used: Amounts, asked: Amounts) -> list[ExceededLimit]:
    """The limits that `used` plus `asked` exceed, sorted by name.

    A request never exceeds a limit to which it adds nothing, even if the usage is already over it.
    """
    return [
        ExceededLimit(name, used.get(name, 0), asked[name], limits[name])
        for name in sorted(asked)
        if asked[name] > 0 and limits.get(name, UNLIMITED) >= 0 and used.get(name, 0) + asked[name] > limits[name]
    ]


def servers_that_fit(limits: Amounts, used: Amounts, one: Amounts, most: int) -> int:
    """The number of servers that fit within `limits`, each with the amounts `one`; at most `most`."""
    count = most
    for name, units in one.items():
        if units > 0 and limits.get(name, UNLIMITED) >= 0:
            count = min(count, max(0, limits[name] - used.get(name, 0)) // units)
    return count


def quota_message(found: list[ExceededLimit]) -> str:
    """Nova's wording, which clients look for."""
    names = ", ".join(one.name for one in found)
    asked = ", ".join(str(one.asked) for one in found)
    used = ", ".join(str(one.used) for one in found)
    limits = ", ".join(str(one.limit) for one in found)
    return f"Quota exceeded for {names}: Requested {asked}, but already used {used} of {limits} {names}"


#: The default length of the period.
DEFAULT_PERIOD = timedelta(weeks=4)

#: The earliest time that can be represented.
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class ServerUsage:
    """Amounts multiplied by hours."""

    hours: float
    vcpus: float
    memory_mb: float
    local_gb: float


def usage_period(start: datetime | None, end: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """``[start, end)``, by default the `DEFAULT_PERIOD` before now; never beyond now."""
    until = now if end is None else min(now, end)
    since = max(until, _FIRST + DEFAULT_PERIOD) - DEFAULT_PERIOD if start is None else start
    if since >= until:
        raise Invalid("Invalid start time. The start time cannot occur after the end time.")
    return since, until


def usage_hours(server: Server, since: datetime, until: datetime) -> float:
    begin = max(since, server.launched_at or until)
    end = min(until, server.deleted_at or until)
    return max(0.0, (end - begin).total_seconds() / 3600)


def total_usage(servers: Iterable[Server], since: datetime, until: datetime) -> ServerUsage:
    counted = [(server.flavor, usage_hours(server, since, until)) for server in servers]
    return ServerUsage(
        hours=sum(time for _, time in counted),
        vcpus=sum(flavor.vcpus * time for flavor, time in counted),
        memory_mb=sum(flavor.ram_mb * time for flavor, time in counted),
        local_gb=sum((flavor.disk_gb + flavor.ephemeral_gb) * time for flavor, time in counted),
    )
