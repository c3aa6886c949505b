"""SQL statements of the device history. `history_service` begins and ends the transactions."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache

from sqlalchemy import Connection, bindparam, delete, insert, or_, select

from moorage.accelerator.model.device_history import DeviceEvent, DeviceTransition, HistoryRecord, Requester
from moorage.accelerator.model.rows import HistoryEntry, HistoryFilter, HistoryPosition
from moorage.accelerator.store.tables import history as h
from moorage.db.types import RowSelect

_KNOWN = select(h.c.sequence).where(
    h.c.hostname == bindparam("host"), h.c.sequence.in_(bindparam("sequences", expanding=True))
)
_INSERT = insert(h)
_OLD = select(h.c.id).where(h.c.at < bindparam("moment")).order_by(h.c.at).limit(bindparam("at_most"))
_DELETE = delete(h).where(h.c.id.in_(bindparam("of_ids", expanding=True)))


def known_sequences(connection: Connection, host: str, sequences: Sequence[int]) -> set[int]:
    """Returns which of `sequences` are stored."""
    return {row.sequence for row in connection.execute(_KNOWN, {"host": host, "sequences": sequences})}


def insert_records(connection: Connection, host: str, records: Sequence[HistoryRecord]) -> None:
    if records:
        connection.execute(_INSERT, [_row(host, record) for record in records])


def list_entries(
    connection: Connection,
    wanted: HistoryFilter,
    after: HistoryPosition | None,
    limit: int,
    *,
    newest_first: bool = False,
) -> list[HistoryEntry]:
    """Entries by sequence number, ascending or descending: on one host in order of occurrence, across hosts by their
    clocks.
    """
    values = {f"of_{name}": value for name, value in asdict(wanted).items() if value is not None}
    if after is not None:
        values |= {"after_sequence": after.sequence, "after_id": after.id}
    return [
        HistoryEntry(
            HistoryPosition(row.sequence, row.id),
            row.hostname,
            HistoryRecord(
                row.sequence,
                row.at,
                DeviceTransition(
                    DeviceEvent(row.event),
                    row.deployable,
                    row.handle,
                    Requester(row.instance_uuid or "", row.project_id, row.user_id),
                    row.image_id,
                    row.digest,
                    done=row.done,
                    reason=row.reason,
                ),
            ),
        )
        for row in connection.execute(_entries(tuple(values), newest_first), {**values, "at_most": limit})
    ]


@cache
def _entries(names: tuple[str, ...], newest_first: bool) -> RowSelect:
    order = (h.c.sequence.desc(), h.c.id.desc()) if newest_first else (h.c.sequence, h.c.id)
    query = select(h).order_by(*order).limit(bindparam("at_most"))
    for name in names:
        if name == "of_since":
            query = query.where(h.c.at >= bindparam(name))
        elif name == "of_until":
            query = query.where(h.c.at < bindparam(name))
        elif name == "after_sequence":
            later, at_once = h.c.sequence > bindparam(name), h.c.id > bindparam("after_id")
            if newest_first:
                later, at_once = h.c.sequence < bindparam(name), h.c.id < bindparam("after_id")
            query = query.where(or_(later, (h.c.sequence == bindparam(name)) & at_once))
        elif name != "after_id":
            query = query.where(h.c[name.removeprefix("of_")] == bindparam(name))
    return query


def delete_before(connection: Connection, moment: datetime, limit: int) -> int:
    """Deletes up to `limit` records older than `moment`, oldest first; returns the number deleted."""
    old = connection.execute(_OLD, {"moment": moment, "at_most": limit})
    ids = [row.id for row in old]  # MariaDB does not support LIMIT in a subquery of IN
    if ids:
        connection.execute(_DELETE, {"of_ids": ids})
    return len(ids)


def _row(host: str, record: HistoryRecord) -> dict[str, object]:
    what = record.what
    return {
        "hostname": host,
        "sequence": record.sequence,
        "at": record.at,
        "event": str(what.event),
        "device": record.device,
        "deployable": what.deployable,
        "handle": what.handle,
        "instance_uuid": what.who.instance_uuid or None,
        "project_id": what.who.project_id,
        "user_id": what.who.user_id,
        "image_id": what.image_id,
        "digest": what.digest,
        "done": what.done,
        "reason": what.reason,
    }
