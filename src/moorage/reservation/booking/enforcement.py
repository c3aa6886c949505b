"""Limits on reservations: maximum lease duration, limits of projects, and an operator's enforcement service.

The duration is checked, and the operator's service called, before a booking is admitted. Limits are checked in the
transaction that writes the lease, with the project locked, so that two requests cannot use the same remainder.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.core.errors import Invalid, OverQuota
from moorage.db.session import in_transaction, read
from moorage.reservation.booking.admission import name_lease_in_batch
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.booking.external_enforcement import ExternalService
from moorage.reservation.booking.previews import UpdatePreview
from moorage.reservation.capacity import host_selection
from moorage.reservation.model.leases import Lease, RegisteredHost, Reservation
from moorage.reservation.model.limits import FLOATING_IPS, ProjectLimits, Reserved, counted, refusal
from moorage.reservation.model.reservation_requests import FloatingIpRequest
from moorage.reservation.model.slot_demand import Amounts
from moorage.reservation.model.steps import Actions, TellEnd
from moorage.reservation.store import host_store, lease_store, limit_store


@dataclass(frozen=True, slots=True)
class Rules:
    """`max_duration_s`: seconds, -1 = unlimited; `exempt` projects may exceed it. `limits`: default of a project."""

    max_duration_s: int = -1
    exempt: Collection[str] = ()
    limits: ProjectLimits = field(default_factory=ProjectLimits)
    period: timedelta = timedelta(days=30)


class Enforcement:
    def __init__(self, engine: Engine, rules: Rules, external: ExternalService | None = None) -> None:
        self._engine = engine
        self._rules = rules
        self._external = external

    def before_create(self, lease: Lease, plan: Callable[[], host_selection.Plan]) -> None:
        """Checks a new lease before it is admitted. Raises `Invalid` or `Unavailable`.

        `plan` is called only if the operator's service is called.
        """
        self._check_duration(lease.project_id, lease.start_date, lease.end_date)
        if self._external is not None:
            self._external.check_create(lease, plan(), self._hosts())
        limit_store.ensure(self._engine, lease.project_id)

    def before_update(self, change: UpdatePreview, plan: Callable[[], host_selection.Plan]) -> None:
        lease, decision = change.lease, change.decision
        self._check_change(change)
        if self._external is not None and (decision.moved or decision.requests):
            held = self._held(lease)
            self._external.check_update(lease, held, _after(change), {**held, **plan()}, self._hosts())
        limit_store.ensure(self._engine, lease.project_id)

    def record_creation(self, connection: Connection, lease: Lease, plan: host_selection.Plan, *, of: int = 1) -> None:
        """Checks limits and records the lease, in the transaction that writes it. Raises `OverQuota`.

        `of`: number of leases in the series that the lease belongs to.
        """
        limit_store.lock(connection, lease.project_id)
        limit_store.drop_before(connection, lease.project_id, lease.created_at - 2 * self._rules.period)
        limit_store.write(connection, lease.project_id, lease.id, _reserved(lease, plan))
        self._check_limits(connection, lease.project_id, lease.start_date, lease.end_date, of=of)

    def record_update(self, connection: Connection, change: UpdatePreview, plan: host_selection.Plan) -> None:
        lease, decision = change.lease, change.decision
        limit_store.lock(connection, lease.project_id)
        after = _after(change)
        limit_store.write(connection, lease.project_id, lease.id, _reserved(after, plan))
        if decision.moved:
            ids = [each.id for each in lease.reservations]
            limit_store.move(connection, ids, decision.start_date, decision.end_date)
        if decision.grows or decision.requests:
            self._check_limits(connection, lease.project_id, decision.start_date, decision.end_date)

    def rehearse_create(self, leases: Sequence[Lease], plans: Sequence[host_selection.Plan]) -> None:
        """Makes the checks of `before_create` and `record_creation`, without writing.

        Does not call the operator's service, because it may count requests.
        """
        reserved: list[Reserved] = []
        with read(self._engine) as connection:
            for lease, plan in zip(leases, plans, strict=True):
                start, end = lease.start_date, lease.end_date
                self._check_duration(lease.project_id, start, end)
                reserved += _reserved(lease, plan)
                self._check_limits(connection, lease.project_id, start, end, reserved, of=len(leases))

    def rehearse_update(self, change: UpdatePreview, plan: host_selection.Plan) -> None:
        self._check_change(change)
        lease, decision = change.lease, change.decision
        after = _after(change)
        if decision.grows or decision.requests:
            with read(self._engine) as connection:
                again = _reserved(after, plan)
                self._check_limits(connection, lease.project_id, after.start_date, after.end_date, again)

    @property
    def notifies_ends(self) -> bool:
        return self._external is not None

    @property
    def actions(self) -> Actions:
        return {TellEnd: self._tell_end}

    def _tell_end(self, step: TellEnd) -> None:
        with read(self._engine) as connection:
            lease = lease_store.find_lease_of_reservation(connection, step.reservation_id)
        if self._external is not None and lease is not None:
            self._external.on_end(lease, self._held(lease), self._hosts())

    def limits_of(self, project_id: str) -> ProjectLimits:
        with read(self._engine) as connection:
            return limit_store.own_limits(connection, project_id) or self._rules.limits

    def set_limits(self, project_id: str, limits: ProjectLimits | None) -> ProjectLimits:
        limit_store.ensure(self._engine, project_id)
        in_transaction(self._engine, lambda connection: limit_store.set_limits(connection, project_id, limits))
        return self.limits_of(project_id)

    @property
    def period(self) -> timedelta:
        return self._rules.period

    def _check_change(self, change: UpdatePreview) -> None:
        lease, decision = change.lease, change.decision
        if decision.end_date - decision.start_date > lease.end_date - lease.start_date:
            self._check_duration(lease.project_id, decision.start_date, decision.end_date)

    def _check_duration(self, project_id: str, start: datetime, end: datetime) -> None:
        longest, asked = self._rules.max_duration_s, int((end - start).total_seconds())
        if longest != -1 and asked > longest and project_id not in self._rules.exempt:
            raise Invalid(
                f"Lease duration of {asked} seconds must be less than or equal to the maximum lease duration of "
                f"{longest} seconds."
            )

    def _check_limits(
        self,
        connection: Connection,
        project_id: str,
        start: datetime,
        end: datetime,
        more: Sequence[Reserved] = (),
        of: int = 1,
    ) -> None:
        limits, period = limit_store.own_limits(connection, project_id) or self._rules.limits, self._rules.period
        if not limits.now and not limits.hours:
            return
        anew = {each.reservation_id for each in more}
        there = limit_store.between(connection, project_id, start - period, end + period)
        reserved = [*(each for each in there if each.reservation_id not in anew), *more]
        if reason := refusal(limits, period, reserved, start, end):
            raise OverQuota(name_lease_in_batch(of, start, f"The limits of the project are exceeded: {reason}"))

    def _held(self, lease: Lease) -> host_selection.Plan:
        with read(self._engine) as connection:
            return held_of(host_store.allocations_of(connection, [each.id for each in lease.reservations]))

    def _hosts(self) -> dict[int, RegisteredHost]:
        with read(self._engine) as connection:
            return {host.id: host for host in host_store.all_hosts(connection)}


def _after(change: UpdatePreview) -> Lease:
    """The lease after the update."""
    lease, decision = change.lease, change.decision
    return replace(
        lease,
        name=decision.name,
        start_date=decision.start_date,
        end_date=decision.end_date,
        reservations=tuple(replace(each, request=change.requests[each.id]) for each in lease.reservations),
    )


def _reserved(lease: Lease, plan: host_selection.Plan) -> list[Reserved]:
    """The planned slots and the number of floating IPs, for the limits."""
    return [
        Reserved(each.id, lease.start_date, lease.end_date, amounts)
        for each in lease.reservations
        if (amounts := _amounts(each, plan)) is not None
    ]


def _amounts(reservation: Reservation, plan: host_selection.Plan) -> Amounts | None:
    if isinstance(reservation.request, FloatingIpRequest):
        return {FLOATING_IPS: reservation.request.amount}
    if reservation.id not in plan:
        return None
    return counted(amounts for slots in plan[reservation.id].values() for amounts in slots)
