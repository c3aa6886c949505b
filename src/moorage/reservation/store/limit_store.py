"""SQL of the limits and usage of projects and users. Usage is kept after a lease has ended or was deleted.

`hold_times` records how long holds lasted, for the limit on that time.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import (
    Column,
    CompoundSelect,
    Connection,
    Engine,
    delete,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from moorage.db.session import in_transaction, read
from moorage.reservation.model.leases import LeaseStatus
from moorage.reservation.model.limits import Account, AccountKind, Limits, Reserved
from moorage.reservation.store.hold_store import Hold
from moorage.reservation.store.tables import (
    hold_times,
    holds,
    leases,
    project_limits,
    project_usage,
    user_limits,
)

_LIMITS = {AccountKind.PROJECT: project_limits, AccountKind.USER: user_limits}

#: A hold counts at least this long, so that many short ones are limited too.
LEAST_HOLD = timedelta(minutes=1)


def ensure_accounts(engine: Engine, accounts: Sequence[Account]) -> None:
    """Creates the rows that `lock_accounts` locks, if they are missing."""
    with read(engine) as connection:
        there = {kind for kind, _ in connection.execute(_rows(accounts))}
    for account in accounts:
        if account.kind not in there:
            with suppress(IntegrityError):  # created concurrently
                in_transaction(engine, partial(_insert, account=account))


def _insert(connection: Connection, account: Account) -> None:
    connection.execute(insert(_LIMITS[account.kind]), {_key(account).name: account.id})


def lock_accounts(connection: Connection, accounts: Iterable[Account]) -> None:
    """Serialises the checks of these accounts until the transaction ends. See `project_limits`."""
    for account in accounts:
        table = _LIMITS[account.kind]
        connection.execute(update(table).where(_key(account) == account.id).values(revision=table.c.revision + 1))


def own_limits(connection: Connection, accounts: Sequence[Account]) -> dict[AccountKind, Limits]:
    """The own limits of these accounts, which are of different kinds; the default limits apply to the others."""
    rows = connection.execute(_rows(accounts))
    return {AccountKind(kind): Limits(own["now"], own["hours"]) for kind, own in rows if own is not None}


def _rows(accounts: Iterable[Account]) -> CompoundSelect[tuple[str, Any]]:
    """Selects (kind, limits) of the accounts that have a row."""
    return union_all(
        *(
            select(literal(str(each.kind)), _LIMITS[each.kind].c.limits).where(_key(each) == each.id)
            for each in accounts
        )
    )


def set_limits(connection: Connection, account: Account, limits: Limits | None) -> None:
    """Sets or removes the account's own limits. The row must exist; see `ensure_accounts`."""
    document = None if limits is None else {"now": dict(limits.now), "hours": dict(limits.hours)}
    connection.execute(update(_LIMITS[account.kind]).where(_key(account) == account.id).values(limits=document))


def usage_between(connection: Connection, account: Account, start: datetime, end: datetime) -> list[Reserved]:
    """The account's usage by leases in ``[start, end)``, including deleted ones. `hold_store` has that by holds."""
    mine = project_usage.c[_owner(account)] == account.id
    statement = select(project_usage).where(mine, project_usage.c.end_date > start, project_usage.c.start_date < end)
    rows = connection.execute(statement)
    return [Reserved(row.reservation_id, row.start_date, row.end_date, row.amounts) for row in rows]


def usage_of_lease(connection: Connection, lease_id: str) -> list[Reserved]:
    """The usage of this lease."""
    rows = connection.execute(select(project_usage).where(project_usage.c.lease_id == lease_id))
    return [Reserved(row.reservation_id, row.start_date, row.end_date, row.amounts) for row in rows]


def number_of_leases(connection: Connection, account: Account, now: datetime) -> int:
    """The number of the account's leases that have not ended, and of its holds."""
    mine, ended = leases.c[_owner(account)] == account.id, leases.c.status == LeaseStatus.TERMINATED
    live = connection.execute(select(func.count()).select_from(leases).where(mine, ~ended)).scalar_one()
    held = select(func.count()).select_from(holds).where(holds.c[_owner(account)] == account.id)
    return int(live) + int(connection.execute(held.where(holds.c.expires_at > now)).scalar_one())


def write_usage(
    connection: Connection, project_id: str, user_id: str, lease_id: str, reserved: Iterable[Reserved]
) -> None:
    """Writes the usage of these reservations, replacing any earlier usage of them."""
    rows = [
        {
            "reservation_id": each.reservation_id,
            "lease_id": lease_id,
            "project_id": project_id,
            "user_id": user_id,
            "start_date": each.start,
            "end_date": each.end,
            "amounts": dict(each.amounts),
        }
        for each in reserved
    ]
    if rows:
        ids = [row["reservation_id"] for row in rows]
        connection.execute(delete(project_usage).where(project_usage.c.reservation_id.in_(ids)))
        connection.execute(insert(project_usage), rows)


def move_usage(connection: Connection, reservation_ids: Collection[str], start: datetime, end: datetime) -> None:
    connection.execute(
        update(project_usage)
        .where(project_usage.c.reservation_id.in_(list(reservation_ids)))
        .values(start_date=start, end_date=end)
    )


def delete_usage_before(connection: Connection, project_id: str, moment: datetime) -> None:
    """Deletes usage that ended before `moment`, when it no longer counts for any limit."""
    mine = project_usage.c.project_id == project_id
    connection.execute(delete(project_usage).where(mine, project_usage.c.end_date < moment))


def close(connection: Connection, lease_id: str, now: datetime) -> None:
    """Ends the lease's usage at `now`; unused time no longer counts."""
    mine = project_usage.c.lease_id == lease_id
    connection.execute(delete(project_usage).where(mine, project_usage.c.start_date >= now))
    connection.execute(update(project_usage).where(mine, project_usage.c.end_date > now).values(end_date=now))


def write_hold(connection: Connection, hold: Hold, since: datetime) -> None:
    """Records the time of a new hold, and deletes that of the project's holds that ended before `since`."""
    over = (hold_times.c.project_id == hold.project_id, hold_times.c.end_date < since)
    connection.execute(delete(hold_times).where(*over))
    row = {"hold_id": hold.id, "project_id": hold.project_id, "user_id": hold.user_id}
    connection.execute(insert(hold_times), row | {"start_date": hold.created_at, "end_date": hold.expires_at})


def end_hold(connection: Connection, hold: Hold, now: datetime) -> None:
    """Records that the hold was released."""
    end = max(now, hold.created_at + LEAST_HOLD)
    connection.execute(
        update(hold_times).where(hold_times.c.hold_id == hold.id, hold_times.c.end_date > end).values(end_date=end)
    )


def forget_hold(connection: Connection, hold_id: str) -> None:
    """For a hold that becomes a lease, which other limits count."""
    connection.execute(delete(hold_times).where(hold_times.c.hold_id == hold_id))


def time_held(connection: Connection, account: Account, since: datetime) -> timedelta:
    """How long the account's holds last together from `since` on, until each expires."""
    mine = hold_times.c[_owner(account)] == account.id
    statement = select(hold_times.c.start_date, hold_times.c.end_date).where(mine, hold_times.c.end_date > since)
    return sum((row.end_date - max(row.start_date, since) for row in connection.execute(statement)), timedelta())


def _key(account: Account) -> Column[str]:
    """The primary key of the table with the account's limits."""
    return _LIMITS[account.kind].c[_owner(account)]


def _owner(account: Account) -> str:
    """The column that names the account, in all tables."""
    return f"{account.kind}_id"
