"""The table of hosts: their state, services, use, last heartbeat, enrolment and properties in leases. Pure.

Built from compute's services and hypervisors, identity's ``/moorage/v1/hosts``, the accelerator service's devices and
the hosts that are registered for leases.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from moorage.core.errors import Invalid
from moorage.core.names import check_host_name, reservation_zone
from moorage.dashboard.views.tables import TableColumn, TableOrder, table_rows
from moorage.dashboard.views.units import size_text, span_text

Document = Mapping[str, Any]

#: {state of the enrolment: tone of its badge}
_TONES: Mapping[str, str] = {"enrolled": "good", "own": "good", "invited": "warn", "expired": "warn", "revoked": "bad"}


@dataclass(frozen=True, slots=True)
class HostDocuments:
    """What the services say about all hosts. Empty for a service that this cloud does not have."""

    services: Sequence[Document] = ()  #: compute's, one per host
    hypervisors: Sequence[Document] = ()  #: of microversion 2.87, with servers
    identities: Sequence[Document] = ()
    devices: Sequence[Document] = ()
    registered: Sequence[Document] = ()  #: for leases


@dataclass(frozen=True, slots=True)
class AmountInUse:
    words: str  #: ``Memory``
    numbers: str  #: ``12 of 64 GiB``
    used: int  #: processors, or MiB


@dataclass(frozen=True, slots=True)
class ServerOnHost:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class HostInLeases:
    """A host that is registered for leases."""

    id: str
    #: Whether new leases may use it. The reservation service looks from time to time which hosts are up and enabled.
    is_reservable: bool
    #: ((``$rack``, ``9``), ...), as filters of hosts name and compare them: capabilities that an administrator gave
    custom: tuple[tuple[str, str], ...]
    standard: tuple[tuple[str, str], ...]  #: those that every host has


@dataclass(frozen=True, slots=True)
class HostOverview:
    name: str
    #: ``up``, ``down``, ``not joined`` (compute does not know it) or ``retired`` (and its credential is revoked)
    state: str
    tone: str
    #: Whether the scheduler places no new servers here, and why an administrator wanted that.
    is_drained: bool
    reason: str
    is_forced_down: bool
    zone: str
    service_id: str
    provider_id: str
    heartbeat_at: datetime | None
    age: timedelta | None  #: of the last heartbeat
    uses: tuple[AmountInUse, ...]  #: of processors, memory and disk; empty if compute does not know the host
    servers: tuple[ServerOnHost, ...]
    services: tuple[str, ...]
    in_leases: HostInLeases | None
    #: ``invited``, ``expired``, ``enrolled``, ``own`` or ``revoked``; empty if identity does not know the host
    enrolment: str
    enrolment_tone: str
    invited_until: str
    enrolled_at: str
    rotated_at: str
    revoked_at: str

    @property
    def is_known_to_compute(self) -> bool:
        return bool(self.service_id)

    @property
    def zone_words(self) -> str:
        """The availability zone; for one that holds the hosts of one reservation, that, since its name is a UUID."""
        return "of a lease" if self.zone.startswith(reservation_zone("")) else self.zone

    @property
    def drain_words(self) -> str:
        """``draining`` while servers are left, then ``drained``; empty if new servers may come."""
        return ("draining" if self.servers else "drained") if self.is_drained else ""

    @property
    def reservable_words(self) -> str:
        """Whether new leases may use the host. The reservation service notices a change of its state a little later."""
        if self.in_leases is None:
            return "no"
        why = "it is down" if self.state != "up" else "it is drained" if self.is_drained else ""
        if self.in_leases.is_reservable:
            return f"yes, until the reservation service notices that {why}" if why else "yes"
        return f"no, because {why}" if why else "no, until the reservation service notices that it is up again"

    @property
    def why_not_retired(self) -> str:
        """What has to be done before the host can be retired; empty if it can be."""
        if self.enrolment == "own":
            return (
                "Its agent runs in the process of the services: remove agent from the [plane] services of that process."
            )
        if self.is_known_to_compute and not self.is_drained:
            return "Drain it first, so that no new servers come."
        if self.servers:
            number = "1 server" if len(self.servers) == 1 else f"{len(self.servers):,} servers"
            return f"It still has {number}. Migrate or delete them first."
        if self.in_leases is not None:
            way = f"openstack reservation host delete {self.in_leases.id}"
            return f"It is registered for leases. Remove it there first: {way}"
        return "" if self.is_known_to_compute or self.enrolment not in ("", "revoked") else "It is retired."


def _amount(place: int) -> Callable[[HostOverview], str]:
    return lambda row: row.uses[place].numbers if row.uses else ""


def _used(place: int) -> Callable[[HostOverview], str]:
    return lambda row: str(row.uses[place].used) if row.uses else ""


COLUMNS: Sequence[TableColumn[HostOverview]] = (
    TableColumn("name", "Host", lambda row: row.name),
    TableColumn("state", "State", lambda row: " ".join(filter(None, _state_words(row)))),
    TableColumn("zone", "Zone", lambda row: row.zone_words),
    TableColumn("services", "Services", lambda row: ", ".join(row.services)),
    TableColumn("servers", "Servers", lambda row: str(len(row.servers)) if row.uses else ""),
    TableColumn("processors", "Processors", _amount(0)),
    TableColumn("memory", "Memory", _amount(1)),
    TableColumn("disk", "Disk", _amount(2)),
    TableColumn("heartbeat", "Heartbeat", lambda row: "" if row.age is None else f"{span_text(row.age)} ago"),
    TableColumn("enrolment", "Enrolment", lambda row: row.enrolment),
)

#: {column: the number by which it is sorted}. By their texts, 512 MiB would come after 12 GiB.
_NUMBERS: Mapping[str, Callable[[HostOverview], str]] = {
    "processors": _used(0),
    "memory": _used(1),
    "disk": _used(2),
    "heartbeat": lambda row: "" if row.age is None else f"{row.age.total_seconds():.0f}",
}
_SORTED_BY = tuple(replace(column, text=_NUMBERS.get(column.key, column.text)) for column in COLUMNS)


def sorted_hosts(rows: Sequence[HostOverview], order: TableOrder, wanted: str) -> list[HostOverview]:
    """The rows in which each word of `wanted` is shown in some column, in this order; amounts are sorted by number."""
    return table_rows(table_rows(rows, COLUMNS, order, wanted), _SORTED_BY, order)


def filter_of_host(name: str) -> str:
    """The query of the calendar that selects one host."""
    return json.dumps(["=", "$hypervisor_hostname", name])


def _state_words(row: HostOverview) -> tuple[str, ...]:
    forced = "set down by an administrator" if row.is_forced_down else ""
    token = f"token until {row.invited_until[:16].replace('T', ' ')}" if row.invited_until else ""
    return row.state, row.drain_words, forced, row.reason if row.is_drained else "", token


@dataclass
class _KnownHost:
    service: Document | None = None
    hypervisor: Document | None = None
    identity: Document | None = None
    has_devices: bool = False
    registration: Document | None = None


def retired_name(rows: Iterable[HostOverview], name: str) -> str:
    """The name of a host that was retired, as the list's address says; empty if it is none, or is still there."""
    is_there = any(row.name == name and row.is_known_to_compute for row in rows)
    try:
        check_host_name(name)
    except Invalid:
        return ""
    return "" if is_there else name


def host_rows(documents: HostDocuments, now: datetime) -> list[HostOverview]:
    """All hosts that compute or identity knows, by name."""
    known: dict[str, _KnownHost] = {}
    for one in documents.services:
        known.setdefault(one["host"], _KnownHost()).service = one
    for one in documents.identities:
        known.setdefault(one["name"], _KnownHost()).identity = one
    for one in documents.hypervisors:
        known.setdefault(one["hypervisor_hostname"], _KnownHost()).hypervisor = one
    for one in documents.devices:
        if one["hostname"] in known:
            known[one["hostname"]].has_devices = True
    for one in documents.registered:
        if one["hypervisor_hostname"] in known:
            known[one["hypervisor_hostname"]].registration = one
    return [_row(name, one, now) for name, one in sorted(known.items())]


def _row(name: str, known: _KnownHost, now: datetime) -> HostOverview:
    service, identity = known.service or {}, known.identity or {}
    enrolment = identity.get("state", "")
    state, tone = _state(known.service, enrolment)
    heartbeat_at = _moment(service.get("updated_at"))
    hypervisor = known.hypervisor or {}
    return HostOverview(
        name, state, tone, service.get("status") == "disabled", service.get("disabled_reason") or "",
        bool(service.get("forced_down")), service.get("zone", ""), service.get("id", ""), hypervisor.get("id", ""),
        heartbeat_at, None if heartbeat_at is None else max(timedelta(), now - heartbeat_at),
        _uses(hypervisor),
        tuple(ServerOnHost(one["uuid"], one["name"]) for one in hypervisor.get("servers") or ()),
        _services(known), None if known.registration is None else _in_leases(known.registration),
        enrolment, _TONES.get(enrolment, ""),
        *(identity.get(field) or "" for field in ("invited_until", "enrolled_at", "rotated_at", "revoked_at")),
    )  # fmt: skip


def _state(service: Document | None, enrolment: str) -> tuple[str, str]:
    """(the state, tone of its badge)"""
    if service is None:
        return ("retired", "") if enrolment == "revoked" else ("not joined", "warn")
    return ("up", "good") if service["state"] == "up" else ("down", "bad")


def _services(known: _KnownHost) -> tuple[str, ...]:
    found = {
        "servers": known.service is not None,
        "accelerators": known.has_devices,
        "leases": known.registration is not None,
    }
    return tuple(name for name, holds in found.items() if holds)


#: The properties of every host, in the order of the page.
_STANDARD = (
    "hypervisor_hostname", "availability_zone", "vcpus", "memory_mb", "local_gb", "hypervisor_type",
    "hypervisor_version", "cpu_info", "service_name", "id",
)  # fmt: skip
#: Keys of the document that filters cannot use.
_NO_PROPERTIES = frozenset({"status", "trust_id", "reservable", "created_at", "updated_at"})


def _in_leases(document: Document) -> HostInLeases:
    """Reads a host of ``GET /v1/os-hosts``, in which custom capabilities are keys beside the others."""
    own = sorted(document.keys() - set(_STANDARD) - _NO_PROPERTIES)
    custom, standard = (
        tuple((f"${name}", str(document[name])) for name in names if name in document) for names in (own, _STANDARD)
    )
    return HostInLeases(str(document["id"]), bool(document["reservable"]), custom, standard)


def _uses(hypervisor: Document) -> tuple[AmountInUse, ...]:
    if not hypervisor:
        return ()
    amounts = (
        ("Processors", hypervisor["vcpus_used"], hypervisor["vcpus"], str),
        ("Memory", hypervisor["memory_mb_used"], hypervisor["memory_mb"], size_text),
        ("Disk", hypervisor["local_gb_used"] * 1024, hypervisor["local_gb"] * 1024, size_text),
    )
    return tuple(AmountInUse(words, _use_text(text(used), text(whole)), used) for words, used, whole, text in amounts)


def _use_text(used: str, whole: str) -> str:
    """``1 of 16``, ``512 MiB of 64 GiB``; ``12 of 64 GiB``, whose units are the same."""
    unit = whole.lstrip("0123456789.,")
    return f"{used.removesuffix(unit)} of {whole}"


def _moment(text: str | None) -> datetime | None:
    """Compute writes times in UTC without an offset."""
    return None if not text else datetime.fromisoformat(text).replace(tzinfo=UTC)
