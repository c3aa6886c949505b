"""The checks of every request that reserves capacity: leases, series, updates and holds.

    duration, an operator's service     before the booking: `before_create`, `before_update`
    limits of the project and its user  in the transaction that writes, with both locked, so that two requests cannot
                                        use the same remainder: the `LimitCheck` that `Admission.admit_all` requires

Limits count the units that are reserved at any one time and over time (of a whole host, all that it has), leases, and
the duration of holds. A dry run makes the same checks without writing. `moved_by_service` is for moves off a failed
host, which the tenant did not request.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Invalid, OverQuota
from moorage.db.session import in_transaction, read
from moorage.reservation.booking.admission import LimitCheck, name_lease_in_batch
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.booking.external_enforcement import ExternalService
from moorage.reservation.booking.previews import UpdatePreview
from moorage.reservation.capacity import host_selection
from moorage.reservation.model.leases import Lease, RegisteredHost, Reservation
from moorage.reservation.model.limits import (
    FLOATING_IPS,
    LEASES,
    REMEDY,
    Account,
    AccountKind,
    Limits,
    Reserved,
    Window,
    accounts_of,
    charged,
    first_exceeded,
    whole_hosts,
)
from moorage.reservation.model.reservation_requests import FloatingIpRequest
from moorage.reservation.model.slot_demand import Amounts
from moorage.reservation.model.steps import Actions, TellEnd
from moorage.reservation.store import hold_store, host_store, lease_store, limit_store
from moorage.reservation.store.hold_store import Hold

#: The time over which `Rules.hold_minutes_per_day` counts.
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Rules:
    """`max_duration_s`: seconds, -1 = unlimited; `exempt` projects may exceed it.

    `limits`, `user_limits`: defaults of a project, and of a user with all projects together.
    """

    max_duration_s: int = -1
    exempt: Collection[str] = ()
    limits: Limits = field(default_factory=Limits)
    user_limits: Limits = field(default_factory=Limits)
    period: timedelta = timedelta(days=30)
    max_holds: int = 10  #: of a project, and of a user, at any one time
    hold_minutes_per_day: int = 240  #: of a project, and of a user; -1: unlimited

    def default(self, account: Account) -> Limits:
        return self.limits if account.kind is AccountKind.PROJECT else self.user_limits


@dataclass(frozen=True, slots=True)
class _Change:
    """A request: `asked` replaces `before`. `leases`: number of new leases and holds; `written`: whether their rows are
    in the database already (not in a dry run); `hold`: id of the new hold, if the request creates one.
    """

    asked: Sequence[Reserved]
    before: Sequence[Reserved] = ()
    leases: int = 0
    hold: str | None = None
    written: bool = True


def moved_by_service(connection: Connection, plans: Sequence[host_selection.Plan]) -> None:
    """The `LimitCheck` of slots that the service moves to other hosts: they count as before."""


class Enforcement:
    def __init__(self, engine: Engine, clock: Clock, rules: Rules, external: ExternalService | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self._rules = rules
        self._external = external

    def before_create(self, lease: Lease, plan: Callable[[], host_selection.Plan]) -> None:
        """Checks a new lease, or a hold for it, before it is admitted. Raises `Invalid` or `Unavailable`.

        `plan` is called only if the operator's service is called.
        """
        self._check_duration(lease.project_id, lease.start_date, lease.end_date)
        if self._external is not None:
            self._external.check_create(lease, plan(), self._hosts())
        limit_store.ensure_accounts(self._engine, accounts_of(lease.project_id, lease.user_id))

    def before_update(self, change: UpdatePreview, plan: Callable[[], host_selection.Plan]) -> None:
        lease, decision = change.lease, change.decision
        self._check_change(change)
        if self._external is not None and (decision.moved or decision.requests):
            held = self._held(lease)
            self._external.check_update(lease, held, _after(change), {**held, **plan()}, self._hosts())
        limit_store.ensure_accounts(self._engine, accounts_of(lease.project_id, lease.user_id))

    def creation_check(self, leases: Sequence[Lease]) -> LimitCheck:
        """Checks the limits for these new leases, all or none, and records their usage. Raises `OverQuota`."""

        def check(connection: Connection, plans: Sequence[host_selection.Plan]) -> None:
            limit_store.lock_accounts(connection, _accounts(leases[0]))
            since = leases[0].created_at - 2 * self._rules.period
            limit_store.delete_usage_before(connection, leases[0].project_id, since)
            asked: list[Reserved] = []
            for lease, plan in zip(leases, plans, strict=True):
                own = _reserved(connection, lease, plan)
                limit_store.write_usage(connection, lease.project_id, lease.user_id, lease.id, own)
                asked += own
                self._check_limits(connection, lease, _Change(asked, leases=len(leases)), of=len(leases))

        return check

    def update_check(self, change: UpdatePreview) -> LimitCheck:
        """Checks the limits for the updated lease, and records its usage. Raises `OverQuota`."""
        lease, decision = change.lease, change.decision

        def check(connection: Connection, plans: Sequence[host_selection.Plan]) -> None:
            limit_store.lock_accounts(connection, _accounts(lease))
            wanted = self._change(connection, change, plans[0])
            limit_store.write_usage(connection, lease.project_id, lease.user_id, lease.id, wanted.asked)
            if decision.moved:
                ids = [each.id for each in lease.reservations]
                limit_store.move_usage(connection, ids, decision.start_date, decision.end_date)
            if decision.grows or decision.requests:
                self._check_limits(connection, _after(change), wanted)

        return check

    def hold_check(self, hold: Hold, lease: Lease) -> LimitCheck:
        """Checks the limits for a new hold, as for the `lease` that it may become. Raises `OverQuota`."""

        def check(connection: Connection, plans: Sequence[host_selection.Plan]) -> None:
            limit_store.lock_accounts(connection, _accounts(lease))
            limit_store.write_hold(connection, hold, hold.created_at - DAY)
            for account in _accounts(lease):
                self._check_holds(connection, account, hold)
            asked = _reserved(connection, lease, plans[0])
            self._check_limits(connection, lease, _Change(asked, leases=1, hold=hold.id))

        return check

    def rehearse_create(self, leases: Sequence[Lease], plans: Sequence[host_selection.Plan]) -> None:
        """Makes the checks of `before_create` and `creation_check`, without writing.

        Does not call the operator's service, because it may count requests.
        """
        asked: list[Reserved] = []
        with read(self._engine) as connection:
            for lease, plan in zip(leases, plans, strict=True):
                self._check_duration(lease.project_id, lease.start_date, lease.end_date)
                asked += _reserved(connection, lease, plan)
                change = _Change(asked, leases=len(leases), written=False)
                self._check_limits(connection, lease, change, of=len(leases))

    def rehearse_update(self, change: UpdatePreview, plan: host_selection.Plan) -> None:
        self._check_change(change)
        if change.decision.grows or change.decision.requests:
            with read(self._engine) as connection:
                self._check_limits(connection, _after(change), self._change(connection, change, plan))

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

    def limits_of(self, account: Account) -> Limits:
        with read(self._engine) as connection:
            return self._limits(connection, [account])[account]

    def set_limits(self, account: Account, limits: Limits | None) -> Limits:
        limit_store.ensure_accounts(self._engine, [account])
        in_transaction(self._engine, lambda connection: limit_store.set_limits(connection, account, limits))
        return self.limits_of(account)

    @property
    def period(self) -> timedelta:
        return self._rules.period

    @property
    def _window(self) -> Window:
        return Window(self._clock.now(), self._rules.period)

    def _limits(self, connection: Connection, accounts: Sequence[Account]) -> dict[Account, Limits]:
        own = limit_store.own_limits(connection, accounts)
        return {each: own.get(each.kind, self._rules.default(each)) for each in accounts}

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

    def _change(self, connection: Connection, change: UpdatePreview, plan: host_selection.Plan) -> _Change:
        asked = _reserved(connection, _after(change), plan)
        ids = {each.reservation_id for each in asked}
        there = limit_store.usage_of_lease(connection, change.lease.id)
        return _Change(asked, [each for each in there if each.reservation_id in ids])

    def _check_holds(self, connection: Connection, account: Account, hold: Hold) -> None:
        """The number of holds and their total duration; otherwise they could be renewed for ever."""
        most, minutes = self._rules.max_holds, self._rules.hold_minutes_per_day
        there = hold_store.count(connection, account, hold.created_at) - 1
        if there >= most:
            raise _over(
                account,
                f"at most {most} holds at a time; {there} exist, and this request adds 1. Release a hold, turn it into "
                "a lease, or wait until it expires.",
                ("holds", most, there, 1),
            )
        adds = (hold.expires_at - hold.created_at).total_seconds() / 60
        used = limit_store.time_held(connection, account, hold.created_at - DAY).total_seconds() / 60 - adds
        if minutes != -1 and used + adds > minutes:
            raise _over(
                account,
                f"holds may last {minutes} minutes together in 24 hours; {used:.0f} are used, and this one would add "
                f"{adds:.0f}. Turn holds into leases or release them early, or create the lease without a hold.",
                ("hold_minutes_per_day", minutes, used, adds),
            )

    def _check_limits(self, connection: Connection, lease: Lease, change: _Change, *, of: int = 1) -> None:
        """`of`: number of leases in the series that the lease belongs to."""
        for account, limits in self._limits(connection, _accounts(lease)).items():
            if LEASES in limits.now and change.leases:
                self._check_number(connection, account, limits.now[LEASES], change)
            if not change.asked or not (limits.now or limits.hours):
                continue
            others = self._others(connection, account, change)
            if found := first_exceeded(limits, self._window, others, change.asked, change.before):
                values = found.name, found.limit, found.used, found.asked
                raise _over(account, f"{found.reason}. {REMEDY}", values, of=of, start=lease.start_date)

    def _check_number(self, connection: Connection, account: Account, most: int, change: _Change) -> None:
        there = limit_store.number_of_leases(connection, account, self._clock.now()) - (
            change.leases if change.written else 0
        )
        if there + change.leases > most:
            raise _over(
                account,
                f"at most {most} leases and holds may exist that have not ended; {there} exist, and this request adds "
                f"{change.leases}. Delete leases, release holds, or ask an administrator for a higher limit.",
                (LEASES, most, there, change.leases),
            )

    def _others(self, connection: Connection, account: Account, change: _Change) -> list[Reserved]:
        """The usage that counts for the account's limits, without that of the request itself."""
        own = {each.reservation_id for each in (*change.asked, *change.before)} | {change.hold}
        start = min(each.start for each in change.asked) - self._rules.period
        end = max(each.end for each in change.asked) + self._rules.period
        there = limit_store.usage_between(connection, account, start, end)
        held = hold_store.reserved(connection, account, self._clock.now())
        return [each for each in (*there, *held) if each.reservation_id not in own]

    def _held(self, lease: Lease) -> host_selection.Plan:
        with read(self._engine) as connection:
            return held_of(host_store.allocations_of(connection, [each.id for each in lease.reservations]))

    def _hosts(self) -> dict[int, RegisteredHost]:
        with read(self._engine) as connection:
            return {host.id: host for host in host_store.all_hosts(connection)}


def _accounts(lease: Lease) -> tuple[Account, Account]:
    return accounts_of(lease.project_id, lease.user_id)


def _over(
    account: Account,
    reason: str,
    values: tuple[str, int, float, float],
    *,
    of: int = 1,
    start: datetime | None = None,
) -> OverQuota:
    """`values`: name of the limit, the limit, units in use, units that the request adds. `of`: number of leases in the
    series; `start`: of the refused lease.
    """
    name, limit, used, asked = values
    words = f"The limits of the {account.kind} are exceeded: {reason}"
    if start is not None:
        words = name_lease_in_batch(of, start, words)
    return OverQuota(words, account=account.kind, name=name, limit=limit, used=used, asked=asked)


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


def _reserved(connection: Connection, lease: Lease, plan: host_selection.Plan) -> list[Reserved]:
    """The planned slots and the number of floating IPs, for the limits."""
    whole = host_store.amounts(connection, {host for placing in plan.values() for host in whole_hosts(placing)})
    return [
        Reserved(each.id, lease.start_date, lease.end_date, amounts)
        for each in lease.reservations
        if (amounts := _amounts(each, plan, whole)) is not None
    ]


def _amounts(
    reservation: Reservation, plan: host_selection.Plan, whole: Mapping[int, Amounts]
) -> Mapping[str, int] | None:
    if isinstance(reservation.request, FloatingIpRequest):
        return {FLOATING_IPS: reservation.request.amount}
    return charged(plan[reservation.id], whole) if reservation.id in plan else None
