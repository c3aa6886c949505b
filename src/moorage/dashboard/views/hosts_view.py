"""The table of hosts: their state, services, use, last heartbeat and enrolment. Pure.

Built from compute's services and hypervisors, identity's ``/moorage/v1/hosts``, the accelerator service's devices and
the hosts that are registered for leases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from moorage.dashboard.views.tables import TableColumn
from moorage.dashboard.views.units import size_text

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
    numbers: str  #: ``12 GiB of 64 GiB``


@dataclass(frozen=True, slots=True)
class ServerOnHost:
    id: str
    name: str


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
    uses: tuple[AmountInUse, ...]
    servers: tuple[ServerOnHost, ...]
    services: tuple[str, ...]
    registration_id: str  #: of a host that is registered for leases
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
    def drain_words(self) -> str:
        """``draining`` while servers are left, then ``drained``; empty if new servers may come."""
        return ("draining" if self.servers else "drained") if self.is_drained else ""

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
        if self.registration_id:
            way = f"openstack reservation host delete {self.registration_id}"
            return f"It is registered for leases. Remove it there first: {way}"
        return "" if self.is_known_to_compute or self.enrolment not in ("", "revoked") else "It is retired."


COLUMNS: Sequence[TableColumn[HostOverview]] = (
    TableColumn("name", "Host", lambda row: f"{row.name} {row.zone}"),
    TableColumn("state", "State", lambda row: f"{row.state} {row.drain_words} {row.reason}".strip()),
    TableColumn("services", "Services", lambda row: ", ".join(row.services)),
    TableColumn(
        "use", "In use", lambda row: " ".join([f"{len(row.servers)} servers", *(one.numbers for one in row.uses)])
    ),
    TableColumn("heartbeat", "Heartbeat", lambda row: "" if row.age is None else f"{row.age.total_seconds():.0f}"),
    TableColumn("enrolment", "Enrolment", lambda row: row.enrolment),
)


@dataclass
class _KnownHost:
    service: Document | None = None
    hypervisor: Document | None = None
    identity: Document | None = None
    has_devices: bool = False
    registration_id: str = ""


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
            known[one["hypervisor_hostname"]].registration_id = str(one["id"])
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
        _services(known), known.registration_id, enrolment, _TONES.get(enrolment, ""),
        *(identity.get(field) or "" for field in ("invited_until", "enrolled_at", "rotated_at", "revoked_at")),
    )  # fmt: skip


def _state(service: Document | None, enrolment: str) -> tuple[str, str]:
    """(the state, tone of its badge)"""
    if service is None:
        return ("retired", "") if enrolment == "revoked" else ("not joined", "warn")
    return ("up", "good") if service["state"] == "up" else ("down", "bad")


def _services(known: _KnownHost) -> tuple[str, ...]:
    found = {"servers": known.service is not None, "accelerators": known.has_devices, "leases": known.registration_id}
    return tuple(name for name, holds in found.items() if holds)


def _uses(hypervisor: Document) -> tuple[AmountInUse, ...]:
    if not hypervisor:
        return ()
    amounts = (
        ("Processors", hypervisor["vcpus_used"], hypervisor["vcpus"], str),
        ("Memory", hypervisor["memory_mb_used"], hypervisor["memory_mb"], size_text),
        ("Disk", hypervisor["local_gb_used"] * 1024, hypervisor["local_gb"] * 1024, size_text),
    )
    return tuple(AmountInUse(words, f"{text(used)} of {text(whole)}") for words, used, whole, text in amounts)


def _moment(text: str | None) -> datetime | None:
    """Compute writes times in UTC without an offset."""
    return None if not text else datetime.fromisoformat(text).replace(tzinfo=UTC)
