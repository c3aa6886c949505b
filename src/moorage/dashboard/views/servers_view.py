"""Servers with their actions and faults, and the devices attached to them, now and in the past.

Built from compute's servers and instance actions, and the accelerator service's requests, handles and history. Pure.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.core.names import reservation_flavor
from moorage.dashboard.views.tables import natural_key
from moorage.dashboard.views.units import flavor_size

Document = Mapping[str, Any]

_TONES = {
    "ACTIVE": "good", "ERROR": "bad", "BUILD": "warn", "VERIFY_RESIZE": "warn", "RESCUE": "warn", "UNKNOWN": "bad",
    "SOFT_DELETED": "warn",
}  # fmt: skip
_RESERVATIONS = reservation_flavor("")
_NO_HOST = "No valid host was found."
#: ``1 host considered; REASON left 0.`` and ``Placement has capacity, but: 1 host: REASON.``: drops the numbers.
_COUNTS = re.compile(r"^[\d,]+ hosts? considered[;.]? *|\b[\d,]+ hosts?: ")


@dataclass(frozen=True, slots=True)
class ServerRow:
    id: str
    name: str
    status: str
    tone: str
    task: str
    host: str  #: empty if there is none, or if the user may not see it
    has_host: bool
    flavor: str  #: the flavor's name; empty for the private flavor of a reservation, which nobody has named
    size: str
    reservation_id: str  #: of the lease on which it runs; empty without one
    project: str
    user: str
    created: str
    fault: str
    lock: str  #: why it is locked, in words; empty if it is not


def server_row(server: Document) -> ServerRow:
    flavor, reservation_id = str(server["flavor"].get("original_name") or server["flavor"].get("id", "")), ""
    if flavor.startswith(_RESERVATIONS):
        flavor, reservation_id = "", flavor.removeprefix(_RESERVATIONS)
    else:
        # Servers on whole hosts have any flavor, and name the reservation in a hint, which older Novas do not show.
        reservation_id = str(server.get("scheduler_hints", {}).get("reservation", ""))
    host = server.get("OS-EXT-SRV-ATTR:host") or ""
    return ServerRow(
        server["id"], server["name"], server["status"], _TONES.get(server["status"], ""),
        server.get("OS-EXT-STS:task_state") or "", host, bool(host or server.get("hostId")), flavor,
        _size(server["flavor"]), reservation_id, server["tenant_id"], server["user_id"],
        time_text(server["created"]), (server.get("fault") or {}).get("message", ""), _lock(server),
    )  # fmt: skip


def _lock(server: Document) -> str:
    """Novas from microversion 2.9 on say whether, and from 2.73 on why."""
    if not server.get("locked"):
        return ""
    reason = server.get("locked_reason")
    return f"Is locked: {reason}" if reason else "Is locked"


def _size(flavor: Document) -> str:
    """The size of a server's flavor; empty if it is not embedded."""
    return flavor_size(flavor["vcpus"], flavor["ram"], flavor["disk"]) if "vcpus" in flavor else ""


def servers_of_lease(servers: Iterable[Document], reservation_ids: Collection[str]) -> list[ServerRow]:
    """Those that run on one of the reservations, sorted by name."""
    rows = [row for row in map(server_row, servers) if row.reservation_id in reservation_ids]
    return sorted(rows, key=lambda row: natural_key(row.name))


def time_text(text: str | None) -> str:
    """``2026-03-01 09:30:00``. The services write UTC, with or without an offset."""
    return (text or "")[:19].replace("T", " ")


@dataclass(frozen=True, slots=True)
class Counted:
    """A reason why servers found no host: how many servers, and one of them as an example."""

    reason: str
    servers: int
    example: str
    example_name: str


def no_host_reasons(servers: Iterable[Document]) -> tuple[Counted, ...]:
    """Reasons of the servers in ERROR for which no host was found; the most frequent first."""
    counts: Counter[str] = Counter()
    examples: dict[str, tuple[str, str]] = {}
    for server in servers:
        message = (server.get("fault") or {}).get("message", "")
        if not message.startswith(_NO_HOST):
            continue
        reason = _COUNTS.sub("", message.removeprefix(_NO_HOST).strip()).strip() or "no reason given"
        counts[reason] += 1
        examples.setdefault(reason, (server["id"], server["name"]))
    return tuple(Counted(reason, number, *examples[reason]) for reason, number in counts.most_common())


@dataclass(frozen=True, slots=True)
class ActionEventRow:
    """An event of an instance action."""

    name: str
    started: str
    finished: str
    result: str
    tone: str
    host: str
    details: str


@dataclass(frozen=True, slots=True)
class ServerActionRow:
    name: str
    request_id: str
    started: str
    user: str
    message: str
    is_error: bool
    steps: tuple[ActionEventRow, ...]


def action_row(document: Document) -> ServerActionRow:
    """From an ``instanceAction``, with or without its events."""
    message = document.get("message") or ""
    return ServerActionRow(
        document["action"], document["request_id"], time_text(document["start_time"]), document["user_id"], message,
        bool(message), tuple(_step(one) for one in document.get("events", ())),
    )  # fmt: skip


def _step(event: Document) -> ActionEventRow:
    result = event.get("result") or "running"
    return ActionEventRow(
        event["event"], time_text(event["start_time"]), time_text(event.get("finish_time")), result,
        {"Success": "good", "Error": "bad"}.get(result, "warn"), event.get("host") or "", event.get("details") or "",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator request (ARQ)."""

    uuid: str
    state: str
    tone: str
    server: str
    host: str
    handle: str
    profile: str


def accelerators(requests: Iterable[Document]) -> tuple[Accelerator, ...]:
    return tuple(
        Accelerator(
            one["uuid"], one["state"], {"Bound": "good", "BindFailed": "bad"}.get(one["state"], "warn"),
            one["instance_uuid"] or "", one["hostname"] or "", _address(one["attach_handle_info"]),
            one["device_profile_name"] or "",
        )
        for one in requests
    )  # fmt: skip


def _address(at: Document) -> str:
    if not at:
        return ""
    function = f".{at['function']}" if "function" in at else ""
    return f"{at['domain']}:{at['bus']}:{at['device']}{function}"


@dataclass(frozen=True, slots=True)
class DeviceHistoryRow:
    """An entry in a device's history."""

    at: str
    event: str
    tone: str
    where: str
    reason: str
    server: str
    project: str
    user: str
    image: str
    digest: str


_EVENTS = {
    "program": "programmed", "attach": "attached", "detach": "detached", "clean": "cleaned",
    "quarantine": "quarantined", "release": "released from quarantine", "gap": "records lost",
}  # fmt: skip


def history_rows(page: Iterable[Document]) -> tuple[DeviceHistoryRow, ...]:
    return tuple(
        DeviceHistoryRow(
            time_text(one["at"]),
            f"{_EVENTS.get(one['event'], one['event'])}{'' if one['result'] == 'done' else ': failed'}",
            "bad" if one["result"] != "done" or one["event"] in ("quarantine", "gap") else "",
            one["handle"] or one["deployable"] or one["device"], one["reason"] or "", one["instance_uuid"] or "",
            one["project_id"] or "", one["user_id"] or "", one["image_id"] or "", (one["sha512"] or "")[:16],
        )
        for one in page
    )  # fmt: skip
