"""The log of changes, by which processes learn of each other's writes.

The sequence number is taken under a row lock inside the writing transaction, as its last statement before the
commit: commit order is sequence order.
"""

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from moorage.placement.tables import change_sequence as counter
from moorage.placement.tables import changes

#: Pseudo providers in the log.
NAMES = 0  #: resource classes or traits were added or removed
EVERYTHING = -1  #: read all again

#: Entries older than this many numbers are dropped; who is further behind reads everything again.
KEPT = 100_000
TRIM_EVERY = 1_000

_TAKE = update(counter).where(counter.c.id == 1).values(last=counter.c.last + 1)
_LAST = select(counter.c.last).where(counter.c.id == 1)
_TRIMMED = select(counter.c.trimmed).where(counter.c.id == 1)
_INSERT = insert(changes)
_SINCE = select(changes.c.provider_id).where(changes.c.sequence > bindparam("after")).distinct()
_TRIM = delete(changes).where(changes.c.sequence < bindparam("before"))
_NOTE_TRIM = update(counter).where(counter.c.id == 1).values(trimmed=bindparam("before"))


def record(connection: Connection, provider_ids: Collection[int]) -> int:
    """Write down that these changed; the number of this change. To be called last in a transaction."""
    connection.execute(_TAKE)
    sequence = last(connection)
    if provider_ids:
        rows = [{"sequence": sequence, "provider_id": provider_id} for provider_id in sorted(provider_ids)]
        connection.execute(_INSERT, rows)
    if sequence % TRIM_EVERY == 0 and sequence > KEPT:
        connection.execute(_TRIM, {"before": sequence - KEPT})
        connection.execute(_NOTE_TRIM, {"before": sequence - KEPT})
    return sequence


def last(connection: Connection) -> int:
    return int(connection.execute(_LAST).scalar_one())


def since(connection: Connection, sequence: int) -> frozenset[int]:
    """The ids that changed after `sequence`; just EVERYTHING when the log no longer reaches back that far."""
    if sequence + 1 < int(connection.execute(_TRIMMED).scalar_one()):
        return frozenset((EVERYTHING,))
    ids = frozenset(connection.execute(_SINCE, {"after": sequence}).scalars())
    return frozenset((EVERYTHING,)) if EVERYTHING in ids else ids
