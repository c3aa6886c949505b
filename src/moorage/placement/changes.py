"""The log of changes, by which processes learn of each other's writes.

The sequence number is taken under a row lock inside the writing transaction, as its last statement before the
commit: commit order is sequence order.
"""

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, delete, insert, literal_column, select, update

from moorage.core.clock import SystemClock
from moorage.placement.tables import change_retention as retention
from moorage.placement.tables import change_sequence as counter
from moorage.placement.tables import changes

#: Pseudo providers in the log.
NAMES = 0  #: resource classes or traits were added or removed
EVERYTHING = -1  #: read all again

#: Entries older than this many numbers are dropped; who is further behind reads everything again.
KEPT = 100_000
TRIM_EVERY = 1_000

_TAKE = update(counter).where(counter.c.id == 1).values(last=counter.c.last + 1)
#: The number of the last change; what every request asks that reads the forest.
LAST = select(counter.c.last).where(counter.c.id == literal_column("1"))
_FIRST = select(retention.c.first).where(retention.c.id == 1)
_INSERT = insert(changes)
_SINCE = (
    select(changes.c.provider_id)
    .where(changes.c.sequence > bindparam("after"), changes.c.provider_id.is_not(None))
    .distinct()
)
_TRIM = delete(changes).where(changes.c.sequence < bindparam("before"))
_NOTE_TRIM = update(retention).where(retention.c.id == 1).values(first=bindparam("before"), since=bindparam("now"))


def record(connection: Connection, provider_ids: Collection[int]) -> int:
    """Write down that these changed; the number of this change. To be called last in a transaction."""
    connection.execute(_TAKE)
    sequence = last(connection)
    if provider_ids:
        rows = [
            {
                "sequence": sequence,
                "position": position,
                "provider_id": provider_id,
                "at": SystemClock().now(),
                "kind": {NAMES: "names", EVERYTHING: "everything"}.get(provider_id, "provider"),
            }
            for position, provider_id in enumerate(sorted(provider_ids))
        ]
        connection.execute(_INSERT, rows)
    if sequence % TRIM_EVERY == 0 and sequence > KEPT:
        connection.execute(_TRIM, {"before": sequence - KEPT})
        connection.execute(_NOTE_TRIM, {"before": sequence - KEPT, "now": SystemClock().now()})
    return sequence


def last(connection: Connection) -> int:
    return int(connection.execute(LAST).scalar_one())


def since(connection: Connection, sequence: int) -> frozenset[int]:
    """The ids that changed after `sequence`; just EVERYTHING when the log no longer reaches back that far."""
    if sequence + 1 < int(connection.execute(_FIRST).scalar_one()):
        return frozenset((EVERYTHING,))
    ids = frozenset(connection.execute(_SINCE, {"after": sequence}).scalars())
    return frozenset((EVERYTHING,)) if EVERYTHING in ids else ids
