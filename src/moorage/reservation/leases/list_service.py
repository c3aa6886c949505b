"""The use cases of paged lists, timelines and the results of before_end actions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from moorage.core.caller import Caller
from moorage.core.errors import Forbidden, NotFound
from moorage.db.session import read
from moorage.reservation.deps import ReservationDeps, ReservationSettings
from moorage.reservation.model import property_query
from moorage.reservation.model.before_end_actions import EndAction, EndActionKind
from moorage.reservation.model.leases import Event, EventStatus, EventType, Lease, LeasedSlot, RegisteredHost
from moorage.reservation.model.list_query import DeletedPage, HostPage, LeasePage
from moorage.reservation.model.steps import (
    FindServers,
    FindServersOfHosts,
    LeaveServer,
    SendMail,
    SendWebhook,
    SnapshotServer,
    Step,
)
from moorage.reservation.store import archive_store, capacity_store, event_store, host_store, lease_store
from moorage.reservation.store.archive_store import DeletedLease
from moorage.reservation.store.capacity_store import Incident
from moorage.reservation.store.event_store import StepCount, StepRow, StepState

#: Hosts read per statement when a property query filters them in memory.
_BATCH = 1000


#: An event of a lease with the counts of its steps, or a change of the lease's resources.
TimelineEntry: TypeAlias = tuple[Event, list[StepCount]] | Incident


@dataclass(frozen=True, slots=True)
class BeforeEndResult:
    """The result of a before_end action; `status` is planned, trying, done or failed.

    `error` may name services and hosts: for administrators only. `shown_error` is the text for the lease's project.
    """

    action: EndAction
    status: str
    attempts: int = 0
    error: str | None = None
    shown_error: str | None = None
    not_saved: Sequence[LeaveServer] = ()  #: servers of which no snapshot could be taken


#: Shown to a project instead of an error that only an administrator can fix.
FAILED_FOR_OPERATOR = "the action failed; ask an administrator for the reason"


@dataclass(frozen=True)
class ListService:
    deps: ReservationDeps
    settings: ReservationSettings

    def leases(self, caller: Caller, wanted: LeasePage) -> tuple[list[Lease], bool]:
        """(a page of leases, True if more follow): the caller's leases, or for administrators those of all projects."""
        if not caller.is_admin:
            if wanted.project_id not in (None, caller.project_id):
                raise Forbidden("Only an administrator may list the leases of another project")
            wanted = replace(wanted, project_id=caller.project_id)
        with read(self.deps.engine) as connection:
            return lease_store.find_page(connection, wanted)

    def before_end_results(self, leases: Sequence[Lease]) -> dict[str, list[BeforeEndResult]]:
        """{lease id: the result of each of its before_end actions}"""
        with_actions = [lease.id for lease in leases if lease.before_end_actions]
        rows: dict[str, list[StepRow]] = {}
        if with_actions:
            with read(self.deps.engine) as connection:
                rows = event_store.steps_before_end(connection, with_actions)
        return {
            lease.id: [_before_end_result(lease, action, rows.get(lease.id, ())) for action in lease.before_end_actions]
            for lease in leases
        }

    def deleted(self, caller: Caller, wanted: DeletedPage) -> tuple[list[DeletedLease], bool]:
        """(a page of deleted leases, True if more follow): of the caller's project, or for administrators of all."""
        if not caller.is_admin:
            wanted = replace(wanted, project_id=caller.project_id)
        with read(self.deps.engine) as connection:
            return archive_store.page(connection, wanted, self._kept_since())

    def show_deleted(self, caller: Caller, lease_id: str) -> DeletedLease:
        """Raises `NotFound` also for another project's lease."""
        with read(self.deps.engine) as connection:
            found = archive_store.find(connection, lease_id, self._kept_since())
        if found is None or not caller.may_see(found.lease.project_id):
            raise NotFound(f"there is no deleted lease {lease_id}, or it was deleted too long ago")
        return found

    def _kept_since(self) -> datetime:
        return self.deps.clock.now() - self.settings.keep_deleted

    def timeline(self, lease: Lease) -> list[TimelineEntry]:
        with read(self.deps.engine) as connection:
            steps = event_store.step_counts(connection, lease.id)
            incidents = capacity_store.incidents_of(connection, lease.id)
        return timeline_of(lease, steps, incidents)

    def hosts_of_lease(self, lease: Lease) -> dict[str, dict[str, int]]:
        """{reservation id: {host name: number of slots}}; empty before the lease has resources and after its end."""
        with read(self.deps.engine) as connection:
            slots, _ = host_store.slots_of(connection, [each.id for each in lease.reservations])
        return slots

    def hosts(self, wanted: HostPage) -> tuple[list[RegisteredHost], bool]:
        """(a page of hosts, True if more follow)"""
        asked = property_query.parse(wanted.properties)
        everything = asked == property_query.EVERYTHING
        size = wanted.limit + 1 if everything else _BATCH
        found: list[RegisteredHost] = []
        with read(self.deps.engine) as connection:
            while len(found) <= wanted.limit:
                hosts = host_store.page_of_hosts(connection, wanted, size)
                found += [host for host in hosts if everything or property_query.matches(asked, host.properties())]
                if len(hosts) < size:
                    break
                wanted = replace(wanted, marker=hosts[-1].id)
        return found[: wanted.limit], len(found) > wanted.limit

    def allocations(self, wanted: HostPage) -> tuple[list[tuple[RegisteredHost, list[LeasedSlot]]], bool]:
        """(a page of hosts, each with its slots; True if more follow)"""
        hosts, more = self.hosts(wanted)
        with read(self.deps.engine) as connection:
            slots = host_store.leased_slots(connection, [host.id for host in hosts])
        return [(host, slots.get(host.id, [])) for host in hosts], more


def timeline_of(
    lease: Lease, steps: Mapping[str, list[StepCount]], incidents: Sequence[Incident]
) -> list[TimelineEntry]:
    """The past and planned events of the lease in order, including internal ones, each with the counts of its steps;
    and the changes of its resources.
    """
    # Immediate events have the time 1970: sort them by their creation. A start at once was created with the lease, so
    # the creation goes first whatever the times say.
    dated: list[tuple[bool, datetime, TimelineEntry]] = [
        *(
            (event.type is not EventType.CREATE, max(event.time, event.created_at), (event, steps.get(event.id, [])))
            for event in lease.events
        ),
        *((True, incident.at, incident) for incident in incidents),
    ]
    return [entry for *_, entry in sorted(dated, key=lambda each: each[:2])]


def _before_end_result(lease: Lease, action: EndAction, rows: Sequence[StepRow]) -> BeforeEndResult:
    event = lease.event(EventType.BEFORE_END)
    if event is None or event.status is EventStatus.UNDONE:
        return BeforeEndResult(action, "planned")
    mine = [row for row in rows if _belongs_to(row.step, action)]
    left = tuple(row.step for row in mine if isinstance(row.step, LeaveServer))
    attempts = max((row.attempt + (row.state is StepState.DONE) for row in mine), default=0)
    if all(row.state is StepState.DONE for row in mine) and (mine or event.status is EventStatus.DONE):
        return BeforeEndResult(action, "done", attempts, not_saved=left)
    error = next((row.last_error for row in mine if row.last_error), None)
    over = event.status in (EventStatus.DONE, EventStatus.ERROR) or any(row.state is StepState.FAILED for row in mine)
    # The error of a webhook is the answer of a server that the project chose, so the project may see it.
    shown_error = error if action.kind is EndActionKind.WEBHOOK else None
    error = error or (event.last_error if over else None)
    shown_error = shown_error or (FAILED_FOR_OPERATOR if error else None)
    return BeforeEndResult(action, "failed" if over else "trying", attempts, error, shown_error, left)


def _belongs_to(step: Step, action: EndAction) -> bool:
    match action.kind:
        case EndActionKind.WEBHOOK:
            return isinstance(step, SendWebhook) and step.target == action.target
        case EndActionKind.EMAIL:
            return isinstance(step, SendMail) and step.target == action.target
        case EndActionKind.SNAPSHOT:
            return isinstance(step, FindServers | FindServersOfHosts | SnapshotServer | LeaveServer)
