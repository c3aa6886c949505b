"""What a provider or consumer was at some time, from the change log; and which old entries no such answer needs.

A provider's state is its last whole document, with the usages that a claim wrote after it laid over. A consumer's is
its last document. Pure: reading the log is in `change_store`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from moorage.placement.forest.change_documents import SubjectKind
from moorage.placement.forest.change_events import Cursor

#: Kinds of entries about a provider, and about a consumer; the first of each is the whole state.
OF_PROVIDER = (SubjectKind.PROVIDER, SubjectKind.USAGES)
OF_CONSUMER = (SubjectKind.CONSUMER,)


def laid_over(provider: Mapping[str, Any], usages: Mapping[str, Any]) -> dict[str, Any]:
    """A provider's document with a later entry of kind ``usages``."""
    return {**provider, **usages}


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """An entry of the log without its document."""

    cursor: Cursor
    kind: str
    subject: str | None
    is_gone: bool


def superseded(entries: Iterable[EntryHeader]) -> list[Cursor]:
    """Those that no state after the last of them rests on. `entries` are all there are, by subject and in order."""
    old: list[Cursor] = []
    for _, about in groupby(entries, lambda entry: entry.subject):
        rows = list(about)
        old += _superseded([row for row in rows if row.kind in OF_PROVIDER])
        old += _superseded([row for row in rows if row.kind in OF_CONSUMER])
    return old


def _superseded(rows: list[EntryHeader]) -> list[Cursor]:
    """All but the last whole state, unless that says that it is gone, and the last usages after it."""
    whole = next((row for row in reversed(rows) if row.kind != SubjectKind.USAGES), None)
    if whole is None:
        return [row.cursor for row in rows[:-1]]
    later = [row for row in rows if row.kind == SubjectKind.USAGES and row.cursor > whole.cursor]
    needed = {row.cursor for row in later[-1:]} | (set() if whole.is_gone else {whole.cursor})
    return [row.cursor for row in rows if row.cursor not in needed]
