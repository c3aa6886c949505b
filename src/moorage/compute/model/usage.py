"""[pure] What servers used over a period, as ``os-simple-tenant-usage`` counts it: from launch to deletion."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from moorage.compute.model.servers import Server
from moorage.core.errors import Invalid

#: The period of who names no start.
DEFAULT_PERIOD = timedelta(weeks=4)

#: Nothing is before it.
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class ServerUsage:
    """Amounts times hours."""

    hours: float
    vcpus: float
    memory_mb: float
    local_gb: float


def period_of(start: datetime | None, end: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """``[start, end)``; `DEFAULT_PERIOD` up to now where nothing is said. What is to come is not used yet."""
    until = now if end is None else min(now, end)
    since = max(until, _FIRST + DEFAULT_PERIOD) - DEFAULT_PERIOD if start is None else start
    if since >= until:
        raise Invalid("Invalid start time. The start time cannot occur after the end time.")
    return since, until


def hours(server: Server, since: datetime, until: datetime) -> float:
    begin = max(since, server.launched_at or until)
    end = min(until, server.deleted_at or until)
    return max(0.0, (end - begin).total_seconds() / 3600)


def usage(servers: Iterable[Server], since: datetime, until: datetime) -> ServerUsage:
    counted = [(server.flavor, hours(server, since, until)) for server in servers]
    return ServerUsage(
        hours=sum(time for _, time in counted),
        vcpus=sum(flavor.vcpus * time for flavor, time in counted),
        memory_mb=sum(flavor.ram_mb * time for flavor, time in counted),
        local_gb=sum((flavor.disk_gb + flavor.ephemeral_gb) * time for flavor, time in counted),
    )
