"""Leases, reservations, events and hosts, and the tables of their states.

A lease is a period, the reservations in it and the events that start and end it. Here are values only: no SQL,
no wire. Times are aware UTC, periods half-open ``[start, end)``.
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


class Generation(StrEnum):
    """How a reservation is held in Nova and Placement (A1, R25, R33). Only what an older system made is not `PURE`.

    =========  ==========  ===========  ==============
    .          inventory   aggregate    server group
    =========  ==========  ===========  ==============
    pure       yes         no           no
    hybrid     yes         yes          where it had a policy
    aggregate  no          yes          where it had a policy
    =========  ==========  ===========  ==============
    """

    PURE = "pure"
    HYBRID = "hybrid"
    AGGREGATE = "aggregate"


def generation_of(aggregate_id: int | None, server_group_id: str | None, *, has_class: bool) -> Generation:
    """`has_class`: Placement has the reservation's resource class.

    The two columns alone do not tell: since its release Stein the peer fills them *and* makes the class.
    """
    if aggregate_id is None and server_group_id is None:
        return Generation.PURE
    return Generation.HYBRID if has_class else Generation.AGGREGATE


class EventStatus(StrEnum):
    UNDONE = "UNDONE"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    ERROR = "ERROR"


class EventType(StrEnum):
    """The first three are the API's; the others are operations of ours that must survive a crash like them."""

    START = "start_lease"
    BEFORE_END = "before_end_lease"
    END = "end_lease"
    CREATE = "create_lease"
    UPDATE = "update_lease"
    DELETE = "delete_lease"


WIRE_EVENTS = (EventType.START, EventType.BEFORE_END, EventType.END)

#: The states in which no operation is in progress.
STABLE = frozenset({LeaseStatus.PENDING, LeaseStatus.ACTIVE, LeaseStatus.TERMINATED, LeaseStatus.ERROR})

# Delete is accepted in every state: it preempts whatever is under way (the peer refuses it while a lease is
# STARTING, and a lease whose manager died there can never be deleted: D7).
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
        # Straight to DONE: what nobody will need any more when the lease has ended.
        EventStatus.UNDONE: [EventStatus.IN_PROGRESS, EventStatus.DONE],
        # A before_end event is armed again when the end moves: while it runs, when it has fired, when it could not.
        EventStatus.IN_PROGRESS: [EventStatus.DONE, EventStatus.ERROR, EventStatus.UNDONE],
        EventStatus.DONE: [EventStatus.UNDONE],
        EventStatus.ERROR: [EventStatus.UNDONE],
    },
)

#: {event type: (the lease states in which it may be taken up, the state the lease has while it runs)}.
#: Both lists hold the running state itself: that is how an interrupted event is resumed.
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
    generation: Generation | None = Generation.PURE  #: None: made by an older system and not determined yet

    @property
    def resource_class(self) -> str:
        return reservation_class(self.id)

    @property
    def has_inventory(self) -> bool:
        return self.generation is not Generation.AGGREGATE


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
    retry_at: datetime | None = None  #: not before this, after a step that waits or failed
    last_error: str | None = None

    def claimed(self, now: datetime) -> bool:
        return is_claimed(self.claim_until, now)


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
        """The same for one time of the event before the end, however often it is tried: what is done at it carries
        this. When the event is armed again, it is another one.
        """
        event = self.event(EventType.BEFORE_END)
        return f"{self.id}.{(event.time if event else self.end_date):%Y%m%d%H%M}"


@dataclass(frozen=True, slots=True)
class RegisteredHost:
    """A registered compute host. `id` is a decimal number: stock clients take other texts for names."""

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
    ready: bool  #: registration is complete; other hosts are neither shown nor reserved
    created_at: datetime
    updated_at: datetime | None
    extra: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """What queries may name: the host's own columns and its extra capabilities."""
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


#: The properties that every host has, so that a query may name them before there is any host.
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
    """One slot of a reservation on a host; several of one reservation may share a host (R7)."""

    id: str
    host_id: int
    reservation_id: str
    start_date: datetime
    end_date: datetime
    resources: Mapping[str, int]


#: A claim expires this long after the last completed step; its holder then counts as dead. One that is merely slow (a client
#: may repeat a request for minutes) is fenced, and its late effect is one that the next worker makes anyway.
CLAIM = timedelta(seconds=60)

#: How far ahead of ours another clock may be. What says that it was written later than that was written before this
#: clock was set back: nobody waits for it.
MAX_AHEAD = timedelta(seconds=60)

#: When an event is due that is of no particular time: creating, updating and deleting, whatever clocks do meanwhile.
DUE_IMMEDIATELY = datetime(1970, 1, 1, tzinfo=UTC)


def is_claimed(claim_until: datetime | None, now: datetime) -> bool:
    return claim_until is not None and now < claim_until <= now + CLAIM + MAX_AHEAD


def floor_minute(moment: datetime) -> datetime:
    """The API uses whole minutes; ``now`` is the current one."""
    return moment.replace(second=0, microsecond=0)


def before_end_time(start: datetime, end: datetime, minutes: int) -> datetime:
    """When the ``before_end_lease`` event is due that nobody gave a time: `minutes` before `end`, not before `start`.

    >>> from datetime import UTC
    >>> before_end_time(datetime(2026, 1, 1, 9, tzinfo=UTC), datetime(2026, 1, 1, 9, 30, tzinfo=UTC), 60).hour
    9
    """
    return max(start, end - timedelta(minutes=minutes))


def status_after_update(lease: Lease) -> LeaseStatus:
    """The stable status of a lease, derived from how far its start and end events have come."""
    start, end = lease.event(EventType.START), lease.event(EventType.END)
    statuses = (start.status if start else EventStatus.DONE, end.status if end else EventStatus.DONE)
    if EventStatus.ERROR in statuses:
        return LeaseStatus.ERROR
    if statuses[1] is EventStatus.DONE:
        return LeaseStatus.TERMINATED
    return LeaseStatus.ACTIVE if statuses[0] is EventStatus.DONE else LeaseStatus.PENDING
