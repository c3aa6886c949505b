"""SQL statements of the order of hosts' reports. `report_order` decides; services begin and end the transactions."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, case, insert, select, update

from moorage.accelerator.model.reports import ReportPosition
from moorage.accelerator.store.tables import host_reports as r


@dataclass(frozen=True, slots=True)
class ReportOrderRow:
    """`next`: the position of the next report. `begun_at`: when the first report of this epoch arrived."""

    next: ReportPosition
    begun_at: datetime


_SELECT = select(r.c.epoch, r.c.number, r.c.begun_at).where(r.c.hostname == bindparam("host"))
_INSERT = insert(r)
_ADVANCE = update(r).where(r.c.hostname == bindparam("host")).values(number=r.c.number + 1)
_ADVANCE_IF_NEXT = _ADVANCE.where(r.c.epoch == bindparam("of_epoch"), r.c.number == bindparam("of_number"))
#: Only after a restore from a backup, an epoch may be higher than the number.
_ADVANCE_BEYOND_EPOCHS = (
    update(r)
    .where(r.c.hostname == bindparam("host"))
    .values(number=case((r.c.epoch > r.c.number, r.c.epoch), else_=r.c.number) + 1)
)
_ADOPT = _ADVANCE.where(r.c.epoch < bindparam("of_epoch")).values(
    epoch=bindparam("of_epoch"), begun_at=bindparam("now")
)
_BEGIN = _ADOPT.where(r.c.number == bindparam("of_number"))


def read(connection: Connection, host: str) -> ReportOrderRow | None:
    row = connection.execute(_SELECT, {"host": host}).one_or_none()
    return None if row is None else ReportOrderRow(ReportPosition(row.epoch, row.number), row.begun_at)


def create(connection: Connection, host: str, first: ReportPosition, now: datetime) -> None:
    """Raises `IntegrityError` if the host has a row."""
    connection.execute(_INSERT, {"hostname": host, "epoch": first.epoch, "number": first.number, "begun_at": now})


def advance_beyond_epochs(connection: Connection, host: str) -> bool:
    """Advances to a number above every number and epoch so far; returns False if the host has no row. Locks the row, as
    the functions below do.
    """
    return connection.execute(_ADVANCE_BEYOND_EPOCHS, {"host": host}).rowcount == 1


def begin_epoch(connection: Connection, host: str, position: ReportPosition, now: datetime) -> bool:
    """Advances and begins the epoch if `position` has the next number and a higher epoch; returns whether it did."""
    values = {"host": host, "of_epoch": position.epoch, "of_number": position.number, "now": now}
    return connection.execute(_BEGIN, values).rowcount == 1


def adopt_epoch(connection: Connection, host: str, epoch: int, now: datetime) -> bool:
    """Advances and begins a higher epoch than the stored one; returns whether there was a row with a lower one."""
    return connection.execute(_ADOPT, {"host": host, "of_epoch": epoch, "now": now}).rowcount == 1


def advance(connection: Connection, host: str) -> None:
    """Makes reports with the present number old."""
    connection.execute(_ADVANCE, {"host": host})


def advance_from(connection: Connection, host: str, position: ReportPosition) -> bool:
    """Advances if `position` is the next one; returns whether it was."""
    values = {"host": host, "of_epoch": position.epoch, "of_number": position.number}
    return connection.execute(_ADVANCE_IF_NEXT, values).rowcount == 1
