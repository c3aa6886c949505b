"""Puts the reports of a host and the results of its jobs in order, so that a report that arrives late changes nothing.

::

    agent starts   -> offer_epoch                  a higher epoch than every agent of this host before it
    agent reports  -> is_next(epoch, number)       only with the number of the last answer; each report advances it;
                                                   the first report of an agent begins its epoch
    a job ends     -> report_store.advance         in the transaction that stores its result; reports that were made
                                                   before its end are old now

An agent makes a report after it has its number. So if a report has the next number, no job's result and no other report
was stored since the report was made. The numbers come from this service, so clocks and restarts of agents do not
matter. The functions lock the host's row, so the writes that follow in their transactions are in the same order.

An offered epoch alone ends no other: the request may have arrived late, after its agent gave up and asked again, or
after the agent died and another one started. Nobody reports in such an epoch. The number is never below an epoch that
was offered.

Not here: the writes of a report (`service`), and the agent's side (`moorage.accelerator.host.reporting`).
"""

from datetime import datetime

from sqlalchemy import Connection

from moorage.accelerator.model.reports import ReportPosition, Superseded, check_foreign_position
from moorage.accelerator.store import report_store


def offer_epoch(connection: Connection, host: str, now: datetime) -> ReportPosition:
    """Returns the position of the first report of an agent that has started. Raises `IntegrityError` if another
    transaction creates the row of a new host at the same time; repeat it then.
    """
    if not report_store.advance_beyond_epochs(connection, host):
        report_store.create(connection, host, ReportPosition(1, 1), now)
    number = next_position(connection, host).number
    return ReportPosition(number, number)  # numbers never return, so no other agent has this epoch


def is_next(connection: Connection, host: str, position: ReportPosition, now: datetime) -> bool:
    """Whether the report at `position` may be stored; False: it is old, and its agent must make a new one.

    Raises `Superseded` if another agent of the host started later, and `Invalid` for a position that no service has
    assigned.
    """
    if report_store.advance_from(connection, host, position):
        return True
    stored = report_store.read(connection, host)
    if stored is None or position.epoch > stored.next.number:
        check_foreign_position(position)
    if stored is None:  # the database was restored from a backup
        report_store.create(connection, host, position, now)
    elif stored.next.epoch > position.epoch:
        raise Superseded(
            f"host {host}: another accelerator agent, which started after this one, has reported since "
            f"{stored.begun_at:%Y-%m-%d %H:%M:%S} UTC (its epoch is {stored.next.epoch}, that of this one "
            f"{position.epoch}), so reports of this one are refused. Stop one of the two. If this is the right one, "
            "restart it afterwards"
        )
    elif stored.next.epoch < position.epoch:  # the first report of an agent, or the database was restored
        if report_store.begin_epoch(connection, host, position, now):
            return True
        report_store.adopt_epoch(connection, host, position.epoch, now)
    return False


def next_position(connection: Connection, host: str) -> ReportPosition:
    """The position of the next report in the host's epoch. Raises `LookupError` if the host has none."""
    row = report_store.read(connection, host)
    if row is None:
        raise LookupError(f"host {host} has no epoch")
    return row.next
