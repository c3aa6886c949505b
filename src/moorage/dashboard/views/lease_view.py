"""A lease on pages: its reservations, what can be done to it, its actions before the end and its timeline. Pure.

Not here: the table of leases (`lease_list`), and what confirming an act on several shows (`selected_leases`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from moorage.dashboard.views.lease_form import TYPES, typed_actions
from moorage.dashboard.views.reservation_documents import (
    ActionDocument,
    HoldDocument,
    LeaseDocument,
    ReservationDocument,
    ReservationHostsDocument,
    StepDocument,
    TimelineDocument,
    parse_date,
)
from moorage.dashboard.views.units import amount_text, class_words, flavor_size

#: {status: colour}
COLOURS: Mapping[str, str] = {
    "ACTIVE": "good", "STARTING": "warn", "CREATING": "warn", "UPDATING": "warn", "TERMINATING": "warn", "DELETING":
    "warn", "ERROR": "bad", "DONE": "good", "IN_PROGRESS": "warn", "trying": "warn", "done": "good", "failed": "bad",
}  # fmt: skip

_EVENTS = {
    "create_lease": "Created", "start_lease": "Start", "before_end_lease": "Ends soon", "end_lease": "End",
    "update_lease": "Changed", "delete_lease": "Deleted",
    "resources_lost": "Resources lost", "resources_moved": "Moved to other resources",
    "resources_restored": "Resources complete again",
}  # fmt: skip
_STATES = {"UNDONE": "scheduled", "IN_PROGRESS": "running", "DONE": "done", "ERROR": "failed"}
_ACTIONS = {"snapshot": "Take snapshots of its servers", "email": "Send email to", "webhook": "Call webhook"}
_AFFINITIES = {None: "none", True: "affinity", False: "anti-affinity"}
_TIMES = "\N{MULTIPLICATION SIGN}"
_MOVABLE = frozenset({"PENDING"})
_CHANGEABLE = frozenset({"PENDING", "ACTIVE", "ERROR"})
_ENDABLE = frozenset({"ACTIVE"})


class Removal(NamedTuple):
    """What deleting a lease means in its status."""

    button: str
    kind: str  #: key of the acts in `selected_leases`


_CANCEL = Removal("Cancel before it starts", "cancel")
#: By status. In every other status, servers may be running.
_REMOVALS: Mapping[str, Removal] = {
    "CREATING": _CANCEL,
    "PENDING": _CANCEL,
    "TERMINATED": Removal("Delete from the list", "delete_ended"),
}
_REMOVAL = Removal("Delete", "delete")


@dataclass(frozen=True, slots=True)
class ReservationSummary:
    """One reservation in words."""

    id: str
    what: str
    facts: Sequence[tuple[str, str]]
    status: str
    amount: int | None  #: editable in the form; None for leases of hosts, which have a range
    number: str  #: of servers, hosts or units: ``2``, or ``1 to 3`` hosts


@dataclass(frozen=True, slots=True)
class EndActionRow:
    """An action before the end of a lease, with its status."""

    words: str
    target: str
    status: str
    colour: str
    attempts: int
    error: str | None


@dataclass(frozen=True, slots=True)
class LeaseDetails:
    id: str
    name: str
    status: str
    colour: str
    start: datetime
    end: datetime
    project_id: str
    user_id: str
    degraded: bool
    reservations: Sequence[ReservationSummary]
    before_end: datetime | None
    before_end_actions: Sequence[EndActionRow]
    typed_actions: Mapping[str, str]  #: {form field: text}
    can_move: bool  #: whether the start can be changed, too
    can_change: bool
    can_end: bool
    removal: Removal

    @property
    def may_have_servers(self) -> bool:
        return self.removal.kind == "delete"

    @property
    def what(self) -> str:
        """Its reservations with their numbers, as the list shows them."""
        return ", ".join(
            f"{held.what} {_TIMES} {held.number}" if held.number else held.what for held in self.reservations
        )


def lease_details(lease: LeaseDocument) -> LeaseDetails:
    status = lease["status"]
    return LeaseDetails(
        id=lease["id"],
        name=lease["name"],
        status=status,
        colour=COLOURS.get(status, ""),
        start=parse_date(lease["start_date"]),
        end=parse_date(lease["end_date"]),
        project_id=lease["project_id"],
        user_id=lease["user_id"],
        degraded=lease["degraded"],
        reservations=[_held(each) for each in lease["reservations"]],
        before_end=next(
            (parse_date(each["time"]) for each in lease["events"] if each["event_type"] == "before_end_lease"), None
        ),
        before_end_actions=[_action(each) for each in lease["before_end_actions"]],
        typed_actions=typed_actions(lease["before_end_actions"]),
        can_move=status in _MOVABLE,
        can_change=status in _CHANGEABLE,
        can_end=status in _ENDABLE,
        removal=_REMOVALS.get(status, _REMOVAL),
    )


def _action(action: ActionDocument) -> EndActionRow:
    kind, status = action["action"], action["status"]
    target = action.get("to") or action.get("url") or ""
    return EndActionRow(
        _ACTIONS.get(kind, kind), target, status, COLOURS.get(status, ""), action["attempts"], action["error"]
    )


def _held(reservation: ReservationDocument) -> ReservationSummary:
    amount = reservation.get("amount") if reservation["resource_type"] != "physical:host" else None
    return ReservationSummary(
        reservation["id"], TYPES.get(reservation["resource_type"], reservation["resource_type"]), facts_of(reservation),
        reservation["status"], amount, _hosts(reservation) if amount is None else str(amount),
    )  # fmt: skip


def _hosts(reservation: ReservationDocument) -> str:
    """The number of hosts: ``2``, or ``1 to 3``; empty for a reservation without one."""
    least, most = reservation.get("min"), reservation.get("max")
    return "" if least is None else str(least) if least == most else f"{least} to {most}"


def facts_of(reservation: ReservationDocument) -> list[tuple[str, str]]:
    """[(label, value)] of what a reservation, or a hold's request for one, asks for. A request may omit fields."""
    kind = reservation["resource_type"]
    facts: list[tuple[str, str]] = []
    if kind == "physical:host":
        facts.append(("Hosts", _hosts(reservation)))
    else:
        facts.append(("Amount", str(reservation["amount"])))
        facts.append(("Affinity", _AFFINITIES.get(reservation.get("affinity"), str(reservation.get("affinity")))))
    if kind == "virtual:instance":
        size = flavor_size(reservation["vcpus"], reservation["memory_mb"], reservation["disk_gb"])
        facts.append(("Each", size))
    if resources := reservation.get("resources"):
        facts.append(
            (
                "Each",
                ", ".join(
                    f"{class_words(name)} {amount_text(name, amount)}" for name, amount in sorted(resources.items())
                ),
            )
        )
    for value, words in (
        (reservation.get("resource_properties"), "Hosts with"),
        (reservation.get("hypervisor_properties"), "Hypervisors with"),
        (_own_flavor(reservation), "Flavor for its servers"),
    ):
        if value:
            facts.append((words, str(value)))
    if reservation.get("missing_resources"):
        facts.append(("Missing", "hosts failed, and no replacement is free yet"))
    return facts


def _own_flavor(reservation: ReservationDocument) -> str | None:
    """The reservation's flavor; None if it is the private one, which has the id of the reservation."""
    flavor_id = reservation.get("flavor_id")
    return None if flavor_id == reservation.get("id") else flavor_id


@dataclass(frozen=True, slots=True)
class HoldSummary:
    """A hold. `what`: [(resource type as text, facts)], one per reservation."""

    id: str
    start: datetime
    end: datetime
    expires_at: datetime
    what: Sequence[tuple[str, Sequence[tuple[str, str]]]]


def hold_summary(document: HoldDocument) -> HoldSummary:
    return HoldSummary(
        document["id"],
        parse_date(document["start_date"]),
        parse_date(document["end_date"]),
        parse_date(document["expires_at"]),
        [
            (TYPES.get(each["resource_type"], each["resource_type"]), facts_of(each))
            for each in document["reservations"]
        ],
    )


@dataclass(frozen=True, slots=True)
class LeaseStepRow:
    words: str
    done: int
    total: int
    state: str
    colour: str
    attempts: int
    error: str | None


@dataclass(frozen=True, slots=True)
class LeaseEventRow:
    words: str
    time: datetime
    state: str
    colour: str
    attempts: int
    error: str | None
    steps: Sequence[LeaseStepRow]


def timeline(rows: Sequence[TimelineDocument]) -> list[LeaseEventRow]:
    return [
        LeaseEventRow(
            words=_EVENTS.get(row["event_type"], row["event_type"]),
            time=parse_date(row["time"]),
            state=_STATES.get(row["status"], row["status"]),
            colour=COLOURS.get({"UNDONE": "", "ERROR": "ERROR"}.get(row["status"], row["status"]), ""),
            attempts=row["attempts"],
            error=row["error"],
            steps=[_step(step) for step in row["steps"]],
        )
        for row in rows
    ]


def _step(step: StepDocument) -> LeaseStepRow:
    if step["failed"]:
        state, colour = "failed", "bad"
    elif step["done"] == step["total"]:
        state, colour = "done", "good"
    else:
        state, colour = ("retrying" if step["attempts"] else "pending"), "warn" if step["attempts"] else ""
    words = step["kind"].replace("_", " ").capitalize()
    return LeaseStepRow(words, step["done"], step["total"], state, colour, step["attempts"], step["error"])


@dataclass(frozen=True, slots=True)
class HostsOfReservation:
    """``2 hosts``, or empty without any; for administrators [(host, ``3 slots`` or empty)]."""

    words: str
    named: Sequence[tuple[str, str]]


def hosts_of_reservation(document: ReservationHostsDocument) -> HostsOfReservation:
    count = document["hosts"]
    words = "" if not count else "1 host" if count == 1 else f"{count:,} hosts"
    named = [(name, f"{slots:,} slots" if slots > 1 else "") for name, slots in document.get("on", {}).items()]
    return HostsOfReservation(words, named)
