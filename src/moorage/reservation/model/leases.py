"""Leases, reservations, events and hosts, and the tables of their states.

A lease is a period with its reservations and the events that start and end it. Contains neither SQL nor the wire
format. Times are timezone-aware UTC; periods are half-open, ``[start, end)``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from moorage.core.names import reservation_class
from moorage.core.states import Transitions, transition_table
from moorage.reservation.model.before_end_actions import EndAction
from moorage.reservation.model.reservation_requests import ReservationRequest


class LeaseStatus(StrEnum):
    CREATING = "CREATING"
    PENDING = "PENDING"
    STARTING = "STARTING"
    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    DELETING = "DELETING"
    ERROR = "ERROR"


class ReservationStatus(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"
    DELETED = "deleted"
    ERROR = "error"


class ReservationGeneration(StrEnum):
    """The resources in Nova and Placement that hold a reservation (A1, R25, R33).

    New reservations are `PURE`; those imported from an older system may be of any generation.

    =========  ==========  ===========  ==============
    .          inventory   aggregate    server group
    =========  ==========  ===========  ==============
    pure       yes         no           no
    hybrid     yes         yes          if it had a policy
    aggregate  no          yes          if it had a policy
    =========  ==========  ===========  ==============
    """

    PURE = "pure"
    HYBRID = "hybrid"
    AGGREGATE = "aggregate"


def generation_of(aggregate_id: int | None, server_group_id: str | None, *, has_class: bool) -> ReservationGeneration:
    """`has_class`: Placement has the reservation's resource class.

    The two columns alone do not decide: since the Stein release, Blazar fills them *and* creates the class.
    """
    if aggregate_id is None and server_group_id is None:
        return ReservationGeneration.PURE
    return ReservationGeneration.HYBRID if has_class else ReservationGeneration.AGGREGATE


class EventStatus(StrEnum):
    UNDONE = "UNDONE"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    ERROR = "ERROR"


class EventType(StrEnum):
    """The API shows the first three. The others are internal operations that must survive a crash as well."""

    START = "start_lease"
    BEFORE_END = "before_end_lease"
    END = "end_lease"
    CREATE = "create_lease"
    UPDATE = "update_lease"
    DELETE = "delete_lease"


WIRE_EVENTS = (EventType.START, EventType.BEFORE_END, EventType.END)

#: The states in which no operation is in progress.
STABLE = frozenset({LeaseStatus.PENDING, LeaseStatus.ACTIVE, LeaseStatus.TERMINATED, LeaseStatus.ERROR})

# Delete is accepted in every state and preempts any operation in progress. (Blazar refuses it while a lease is
# STARTING, so a lease whose manager died in that state can never be deleted.)
LEASE_STATES: Transitions[LeaseStatus] = transition_table(
    "lease",
    {
        LeaseStatus.CREATING: [LeaseStatus.PENDING, LeaseStatus.DELETING],
        LeaseStatus.PENDING: [LeaseStatus.STARTING, LeaseStatus.UPDATING, LeaseStatus.DELETING],
        LeaseStatus.STARTING: [LeaseStatus.ACTIVE, LeaseStatus.ERROR, LeaseStatus.DELETING],
        LeaseStatus.ACTIVE: [LeaseStatus.TERMINATING, LeaseStatus.UPDATING, LeaseStatus.DELETING],
        LeaseStatus.UPDATING: [
            LeaseStatus.PENDING,
            LeaseStatus.ACTIVE,
            LeaseStatus.TERMINATED,
            LeaseStatus.ERROR,
            LeaseStatus.DELETING,
        ],
        LeaseStatus.ERROR: [LeaseStatus.TERMINATING, LeaseStatus.UPDATING, LeaseStatus.DELETING],
        LeaseStatus.TERMINATING: [LeaseStatus.TERMINATED, LeaseStatus.DELETING],
        LeaseStatus.TERMINATED: [LeaseStatus.UPDATING, LeaseStatus.DELETING],
    },
)

RESERVATION_STATES: Transitions[ReservationStatus] = transition_table(
    "reservation",
    {
        ReservationStatus.PENDING: [ReservationStatus.ACTIVE, ReservationStatus.DELETED, ReservationStatus.ERROR],
        ReservationStatus.ACTIVE: [ReservationStatus.DELETED, ReservationStatus.ERROR],
        ReservationStatus.ERROR: [ReservationStatus.DELETED],
    },
)

EVENT_STATES: Transitions[EventStatus] = transition_table(
    "event",
    {
        # Straight to DONE: events that are no longer needed because the lease has ended.
        EventStatus.UNDONE: [EventStatus.IN_PROGRESS, EventStatus.DONE],
        # When the end moves, a before_end event becomes UNDONE again: from IN_PROGRESS, DONE or ERROR.
        EventStatus.IN_PROGRESS: [EventStatus.DONE, EventStatus.ERROR, EventStatus.UNDONE],
        EventStatus.DONE: [EventStatus.UNDONE],
        EventStatus.ERROR: [EventStatus.UNDONE],
    },
)

#: {event type: (lease states in which the event may begin, lease state while it runs; None: unchanged)}.
#: The first set includes the running state, so that an interrupted event can be resumed.
RUNS_IN: Mapping[EventType, tuple[frozenset[LeaseStatus], LeaseStatus | None]] = {
    EventType.CREATE: (frozenset({LeaseStatus.CREATING}), LeaseStatus.CREATING),
    EventType.START: (frozenset({LeaseStatus.PENDING, LeaseStatus.STARTING}), LeaseStatus.STARTING),
    EventType.BEFORE_END: (frozenset({LeaseStatus.ACTIVE, LeaseStatus.ERROR}), None),
    EventType.END: (
        frozenset({LeaseStatus.ACTIVE, LeaseStatus.ERROR, LeaseStatus.TERMINATING}),
        LeaseStatus.TERMINATING,
    ),
    EventType.UPDATE: (frozenset({LeaseStatus.UPDATING}), LeaseStatus.UPDATING),
    EventType.DELETE: (frozenset({LeaseStatus.DELETING}), LeaseStatus.DELETING),
}


@dataclass(frozen=True, slots=True)
class Reservation:
    id: str
    lease_id: str
    resource_id: str
    resource_type: str
    status: ReservationStatus
    missing_resources: bool
    resources_changed: bool
    request: ReservationRequest
    flavor_id: str | None
    aggregate_id: int | None
    server_group_id: str | None
    created_at: datetime
    updated_at: datetime | None
    #: None: made by an older system and not determined yet
    generation: ReservationGeneration | None = ReservationGeneration.PURE

    @property
    def resource_class(self) -> str:
        return reservation_class(self.id)

    @property
    def has_inventory(self) -> bool:
        return self.generation is not ReservationGeneration.AGGREGATE


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    lease_id: str
    type: EventType
    time: datetime
    status: EventStatus
    created_at: datetime
    updated_at: datetime | None
    epoch: int = 0
    attempt: int = 0
    claimed_by: str | None = None
    claim_until: datetime | None = None
    retry_at: datetime | None = None  #: earliest next attempt, after a step that waits or failed
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    id: str
    name: str
    user_id: str
    project_id: str
    start_date: datetime
    end_date: datetime
    trust_id: str | None
    status: LeaseStatus
    degraded: bool
    created_at: datetime
    updated_at: datetime | None
    reservations: tuple[Reservation, ...] = ()
    events: tuple[Event, ...] = ()
    before_end_actions: tuple[EndAction, ...] = ()

    def event(self, kind: EventType) -> Event | None:
        return next((event for event in self.events if event.type is kind), None)

    @property
    def before_end_occasion(self) -> str:
        """A key of the before_end event at its present time. All attempts share it; moving the event changes it.

        Snapshots and notifications carry it, so that a repeated attempt can recognise its earlier results.
        """
        event = self.event(EventType.BEFORE_END)
        return f"{self.id}.{(event.time if event else self.end_date):%Y%m%d%H%M}"


@dataclass(frozen=True, slots=True)
class RegisteredHost:
    """A registered compute host. `id` is a decimal number, because stock clients treat any other text as a name."""

    id: int
    hypervisor_hostname: str
    service_name: str
    hypervisor_type: str
    hypervisor_version: int
    cpu_info: str
    vcpus: int
    memory_mb: int
    local_gb: int
    availability_zone: str
    status: str | None
    trust_id: str | None
    reservable: bool
    ready: bool  #: registration is complete; until then, the host is neither shown nor reserved
    created_at: datetime
    updated_at: datetime | None
    extra: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """{name: value} that queries can use: the host's own columns and its extra capabilities."""
        own = {
            "id": str(self.id),
            "hypervisor_hostname": self.hypervisor_hostname,
            "service_name": self.service_name,
            "hypervisor_type": self.hypervisor_type,
            "hypervisor_version": str(self.hypervisor_version),
            "cpu_info": self.cpu_info,
            "vcpus": str(self.vcpus),
            "memory_mb": str(self.memory_mb),
            "local_gb": str(self.local_gb),
            "availability_zone": self.availability_zone,
        }
        return {**self.extra, **own}


#: Properties that every host has. A query may use them even before the first host is registered.
HOST_PROPERTIES = frozenset(
    {
        "id",
        "hypervisor_hostname",
        "service_name",
        "hypervisor_type",
        "hypervisor_version",
        "cpu_info",
        "vcpus",
        "memory_mb",
        "local_gb",
        "availability_zone",
    }
)


@dataclass(frozen=True, slots=True)
class Allocation:
    """One slot of a reservation on a host. Several slots of one reservation may be on the same host (R7)."""

    id: str
    host_id: int
    reservation_id: str
    start_date: datetime
    end_date: datetime
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LeasedSlot:
    """A slot with what lists show of its lease. The slot's period is the lease's, without the cleaning time."""

    slot: Allocation
    lease_id: str
    lease_name: str
    lease_status: LeaseStatus
    project_id: str


#: A claim expires this long after its last extension; `EventExecutor` extends it between steps, if the last extension
#: is 15 s old. The claim of a worker that died is freed earlier (`moorage.jobs.worker_watch`). A holder that is only
#: slow (a client may repeat a request for minutes) is fenced. Its late effect is harmless, because the next worker
#: performs the same step.
CLAIM = timedelta(seconds=60)

#: How far another host's clock may be ahead of ours. A time further ahead was written before this clock was set back;
#: such claims and retry times are ignored.
MAX_AHEAD = timedelta(seconds=60)

#: The due time of events that run at once (create, update, delete). It is in the past for any clock.
DUE_IMMEDIATELY = datetime(1970, 1, 1, tzinfo=UTC)


def is_claimed(claim_until: datetime | None, now: datetime) -> bool:
    """Whether a worker still holds the claim on an event; a time too far ahead comes from a wrong clock."""
    return claim_until is not None and now < claim_until <= now + CLAIM + MAX_AHEAD


def floor_minute(moment: datetime) -> datetime:
    """The start of the minute: the API uses whole minutes."""
    return moment.replace(second=0, microsecond=0)


def before_end_time(start: datetime, end: datetime, minutes: int) -> datetime:
    """The default time of the ``before_end_lease`` event: `minutes` before `end`, but not before `start`.

    >>> from datetime import UTC
    >>> before_end_time(datetime(2026, 1, 1, 9, tzinfo=UTC), datetime(2026, 1, 1, 9, 30, tzinfo=UTC), 60).hour
    9
    """
    return max(start, end - timedelta(minutes=minutes))


def status_after_update(lease: Lease) -> LeaseStatus:
    """The stable status of a lease, derived from the statuses of its start and end events."""
    start, end = lease.event(EventType.START), lease.event(EventType.END)
    statuses = (start.status if start else EventStatus.DONE, end.status if end else EventStatus.DONE)
    if EventStatus.ERROR in statuses:
        return LeaseStatus.ERROR
    if statuses[1] is EventStatus.DONE:
        return LeaseStatus.TERMINATED
    return LeaseStatus.ACTIVE if statuses[0] is EventStatus.DONE else LeaseStatus.PENDING
