"""SQL of the history of devices, statements only: transactions are `history_service`'s."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, delete, insert, or_, select

from moorage.accelerator.custody import Event, Happening, Record, Who
from moorage.accelerator.records import Entry, HistoryFilter, Place
from moorage.accelerator.tables import history as h


def known(connection: Connection, host: str, sequences: Sequence[int]) -> set[int]:
    """Those of `sequences` that are there."""
    query = select(h.c.sequence).where(h.c.hostname == host, h.c.sequence.in_(sequences))
    return set(connection.execute(query).scalars())


def add(connection: Connection, host: str, records: Sequence[Record]) -> None:
    if records:
        connection.execute(insert(h), [_row(host, record) for record in records])


def entries(connection: Connection, wanted: HistoryFilter, after: Place | None, limit: int) -> list[Entry]:
    """In the order of their numbers: on one host as it happened, between hosts by their clocks."""
    query = select(h).order_by(h.c.sequence, h.c.id).limit(limit)
    for name, value in asdict(wanted).items():
        if value is not None and name not in ("since", "until"):
            query = query.where(h.c[name] == value)
    if wanted.since is not None:
        query = query.where(h.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(h.c.at < wanted.until)
    if after is not None:
        beyond = (h.c.sequence == after.sequence) & (h.c.id > after.id)
        query = query.where(or_(h.c.sequence > after.sequence, beyond))
    return [
        Entry(
            Place(row.sequence, row.id),
            row.hostname,
            Record(
                row.sequence,
                row.at,
                Happening(
                    Event(row.event),
                    row.deployable,
                    row.handle,
                    Who(row.instance_uuid or "", row.project_id, row.user_id),
                    row.image_id,
                    row.digest,
                    done=row.done,
                    reason=row.reason,
                ),
            ),
        )
        for row in connection.execute(query)
    ]


def remove_before(connection: Connection, moment: datetime, limit: int) -> int:
    """How many of the oldest were removed, at most `limit`."""
    old = select(h.c.id).where(h.c.at < moment).order_by(h.c.at).limit(limit)
    ids = list(connection.execute(old).scalars())  # MariaDB takes no LIMIT in a subquery of IN
    if ids:
        connection.execute(delete(h).where(h.c.id.in_(ids)))
    return len(ids)


def _row(host: str, record: Record) -> dict[str, object]:
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
