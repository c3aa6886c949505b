"""The table of attach handles of many hosts, and the quarantined ones. Pure.

Built from the accelerator service's devices, handles and history, and the names of compute's servers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.dashboard.views.tables import TableColumn

Document = Mapping[str, Any]

#: {state of a handle: tone of its badge}
HANDLE_TONES: Mapping[str, str] = {"free": "good", "dirty": "warn", "cleaning": "warn", "quarantined": "bad"}


@dataclass(frozen=True, slots=True)
class AttachHandleRow:
    """An attach handle: its card, its region, its state and its user."""

    host: str
    handle: str
    state: str
    tone: str
    reason: str
    device_uuid: str
    device: str  #: type and model
    address: str
    health: str
    status: str
    region: str
    region_type: str
    loaded: str  #: ID of the image
    functions: tuple[str, ...]
    server: str
    server_name: str
    project: str


COLUMNS: Sequence[TableColumn[AttachHandleRow]] = (
    TableColumn("host", "Host", lambda row: row.host),
    TableColumn("device", "Device", lambda row: f"{row.device} {row.address}"),
    TableColumn("region", "Region", lambda row: f"{row.region} {row.region_type}"),
    TableColumn("handle", "Handle", lambda row: row.handle),
    TableColumn("state", "State", lambda row: f"{row.state} {row.reason}".strip()),
    TableColumn("server", "In use by", lambda row: f"{row.server_name} {row.server} {row.project}".strip()),
    TableColumn("loaded", "Loaded", lambda row: " ".join((row.loaded, *row.functions)).strip()),
)


def handle_rows(
    host: str, handles: Iterable[Document], servers: Mapping[str, str], project_name: Callable[[str], str]
) -> list[AttachHandleRow]:
    """`handles`: of one host. `servers`: {id: name}."""
    return [_row(host, one, servers, project_name) for one in handles]


def _row(host: str, one: Document, servers: Mapping[str, str], project_name: Callable[[str], str]) -> AttachHandleRow:
    attributes = [(key, value) for attribute in one["attributes"] for key, value in attribute.items()]
    server, project = one["instance_uuid"] or "", one["project_id"] or ""
    return AttachHandleRow(
        host, one["handle"], one["state"], HANDLE_TONES.get(one["state"], ""), one["reason"] or "", one["device_uuid"],
        f"{one['type']} {one['model']}".strip(), one["device"], one["health"], one["status"], one["deployable"],
        next((value for key, value in attributes if key == "region_type"), ""), one["bitstream_id"] or "",
        tuple(value for key, value in attributes if key == "function"), server, servers.get(server, server),
        project_name(project) if project else "",
    )  # fmt: skip


def hosts_with_devices(devices: Iterable[Document]) -> list[str]:
    return sorted({str(one["hostname"]) for one in devices})


@dataclass(frozen=True, slots=True)
class QuarantinedHandle:
    row: AttachHandleRow
    since: str  #: a time in UTC; empty if the history does not have it any more


def quarantined(rows: Iterable[AttachHandleRow], records: Iterable[Document]) -> list[QuarantinedHandle]:
    """The quarantined handles, the longest quarantine first. `records`: of the event ``quarantine``, newest first."""
    since: dict[tuple[str, str], str] = {}
    for record in records:
        since.setdefault((record["hostname"], record["handle"]), record["at"])
    kept = [row for row in rows if row.state == "quarantined"]
    found = [QuarantinedHandle(row, since.get((row.host, row.handle), "")) for row in kept]
    return sorted(found, key=lambda one: (one.since, one.row.host, one.row.handle))
