"""What other processes have claimed since a number, in one question.

Claims and releases are nearly all that is written, and their entries in the log say what of a provider is used; what of
its row moved with them is beside it. Whatever else has changed is read from the tables (`moorage.placement.sync.snapshot`).
"""

from dataclasses import replace

import orjson
from sqlalchemy import bindparam, select

from moorage.db.driver_connections import Rows
from moorage.placement.forest.change_documents import SubjectKind
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.store.tables import change_retention as retention
from moorage.placement.store.tables import change_sequence as counter
from moorage.placement.store.tables import changes, providers

#: Entries; beyond, it is quicker to read the providers themselves.
MOST = 2_000

#: With at least one row, for what is asked of the counter; in the order of the log.
SINCE = (
    select(
        counter.c.last,
        retention.c.first,
        changes.c.kind,
        changes.c.provider_id,
        changes.c.document,
        providers.c.generation,
        providers.c.revision,
        providers.c.updated_at,
    )
    .select_from(
        counter.join(retention, retention.c.id == counter.c.id)
        .outerjoin(changes, (changes.c.sequence > bindparam("after")) & changes.c.provider_id.is_not(None))
        .outerjoin(providers, providers.c.id == changes.c.provider_id)
    )
    .where(counter.c.id == 1)
    .order_by(changes.c.sequence, changes.c.position)
    .limit(MOST + 1)
)


def caught_up(forest: Forest, rows: Rows) -> Forest | None:
    """The forest with what `rows`, the answer to `SINCE` its number, tell; None where they do not tell everything."""
    last, first = rows[0][:2]
    if last < forest.sequence or forest.sequence + 1 < first or len(rows) > MOST:
        return None
    states: dict[int, Provider | None] = {}
    for _, _, kind, provider_id, document, generation, revision, updated_at in reversed(rows):
        if kind is None:
            continue  # nothing, or nothing about providers
        old = forest.by_id(provider_id)
        if kind != SubjectKind.USAGES or old is None or generation is None:
            return None
        if provider_id not in states:
            used = orjson.loads(document)["usages"]
            states[provider_id] = replace(
                old, generation=generation, revision=revision, updated_at=updated_at, used=used
            )
    return forest.with_changes(states, sequence=last)
