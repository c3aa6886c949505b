"""Entries of the change log, as they are written and as clients read them; and the past states that follow from them.

Pure: `change_store` reads the log, `event_service` waits for new entries.

A `ChangeDocument` is the state of a provider or consumer after a write, as a JSON document, computed from states that
the writer has in memory. An entry has two kinds of readers: other Moorage processes read `provider_id` (the provider to
read again), clients read `kind`, `subject` and `document`.

The order of entries is the order of commits. An entry's document is complete, so seeing an entry twice does no harm.
The state of a provider at some time is its last complete document, updated with the last usages after it; the state of
a consumer is its last document. `superseded` finds old entries that no later state needs.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

import orjson

from moorage.core.errors import Invalid
from moorage.core.json import Json
from moorage.placement.forest.model import Consumer, Provider

#: Pseudo providers in the log.
NAMES_ID = 0  #: resource classes or traits were added or removed
EVERYTHING_ID = -1  #: readers must read everything again


class SubjectKind(StrEnum):
    PROVIDER = "provider"  #: a provider's whole state
    USAGES = "usages"  #: a provider's usages and generation, which update its last complete document
    CONSUMER = "consumer"  #: a consumer and its allocations
    NAMES = "names"
    EVERYTHING = "everything"


class ChangeDocument(NamedTuple):
    """`subject` is the uuid of a provider or consumer; `document` is None if it was deleted."""

    kind: SubjectKind
    provider_id: int | None
    subject: str | None = None
    document: str | None = None


NAMES = ChangeDocument(SubjectKind.NAMES, NAMES_ID)
EVERYTHING = ChangeDocument(SubjectKind.EVERYTHING, EVERYTHING_ID)


def provider_document(provider: Provider, parent_uuid: str | None, root_uuid: str) -> ChangeDocument:
    document = {
        "uuid": provider.uuid,
        "name": provider.name,
        "generation": provider.generation,
        "parent_provider_uuid": parent_uuid,
        "root_provider_uuid": root_uuid,
        "inventories": provider.inventories,
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
        "usages": provider.used,
    }
    return ChangeDocument(SubjectKind.PROVIDER, provider.id, provider.uuid, _json(document))


def usages_document(provider: Provider) -> ChangeDocument:
    """The document of a claim or release, which changes only the usage and generation of the provider."""
    document = {"generation": provider.generation, "usages": provider.used}
    return ChangeDocument(SubjectKind.USAGES, provider.id, provider.uuid, _json(document))


def deleted_provider_document(provider: Provider) -> ChangeDocument:
    return ChangeDocument(SubjectKind.PROVIDER, provider.id, provider.uuid)


def consumer_document(consumer: Consumer, allocations: Mapping[str, Mapping[str, int]]) -> ChangeDocument:
    """`allocations` is {provider uuid: {class: amount}}; empty if the consumer was deleted with its last allocation."""
    if not allocations:
        return ChangeDocument(SubjectKind.CONSUMER, None, consumer.uuid)
    document = {
        "generation": consumer.generation,
        "project_id": consumer.project_id,
        "user_id": consumer.user_id,
        "consumer_type": consumer.consumer_type,
        "allocations": allocations,
    }
    return ChangeDocument(SubjectKind.CONSUMER, None, consumer.uuid, _json(document))


def _json(document: Mapping[str, object]) -> str:
    return orjson.dumps(document).decode()


#: Approximate size of the JSON or event around a document.
ENVELOPE_BYTES = 250

_CURSOR = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?")

#: A position after all entries of a number: more than a transaction can write.
LAST_POSITION = 2**31 - 1


#: Kinds of entries about a provider, and about a consumer; the first of each is the whole state.
PROVIDER_KINDS = (SubjectKind.PROVIDER, SubjectKind.USAGES)


CONSUMER_KINDS = (SubjectKind.CONSUMER,)


class Cursor(NamedTuple):
    """A position in the log: after an entry (``7.2``), or after all entries of a number (``7``; `LAST_POSITION`)."""

    sequence: int
    position: int = LAST_POSITION

    def __str__(self) -> str:
        return f"{self.sequence}" if self.position == LAST_POSITION else f"{self.sequence}.{self.position}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Parses ``7.2`` or ``7``. Raises `Invalid`."""
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise Invalid(
                f"{text!r} is not a position in the change log; use the id of an entry, or its sequence number"
            )
        sequence, position = match.groups()
        return cls(int(sequence), LAST_POSITION if position is None else int(position))


@dataclass(frozen=True, slots=True)
class Filter:
    """Kinds and subjects to include; empty means all."""

    kinds: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One entry. `subject` is None for names and everything; `document` (JSON) is None for a deleted subject."""

    cursor: Cursor
    at: datetime
    kind: str
    subject: str | None
    document: str | None

    def json(self) -> str:
        """The entry as JSON, on one line."""
        subject = "null" if self.subject is None else f'"{self.subject}"'
        return (
            f'{{"id":"{self.cursor}","sequence":{self.cursor.sequence},"position":{self.cursor.position},'
            f'"at":"{iso_utc(self.at)}","kind":"{self.kind}","subject":{subject},'
            f'"document":{self.document or "null"}}}'
        )


@dataclass(frozen=True, slots=True)
class ChangePage:
    """A part of the log: the `entries` that match, and the position up to which entries were examined."""

    entries: tuple[ChangeEvent, ...]
    reached: Cursor
    last: int  #: the newest number when this was read
    first: int  #: the oldest number that is retained

    @property
    def is_last(self) -> bool:
        """True if the log has no entries after this page."""
        return self.reached >= Cursor(self.last)


def sse_frames(page: ChangePage) -> bytes:
    """The page as server-sent events. A client that resumes with the last id misses nothing and gets nothing twice."""
    shown = "".join(f"id: {entry.cursor}\nevent: {entry.kind}\ndata: {entry.json()}\n\n" for entry in page.entries)
    at_end = bool(page.entries) and page.entries[-1].cursor == page.reached
    return shown.encode() if at_end else shown.encode() + sse_heartbeat(page.reached)


def sse_heartbeat(reached: Cursor) -> bytes:
    """A comment, and an id without an event, which advances the position from which the client resumes."""
    return f": nothing more up to {reached}\nid: {reached}\n\n".encode()


def sse_retry(after_ms: int) -> bytes:
    """Tells the client how long to wait before it reconnects."""
    return f"retry: {after_ms}\n\n".encode()


def page_json(page: ChangePage) -> bytes:
    """The page as one JSON document; `next` is the start of the next page."""
    changes = ",".join(entry.json() for entry in page.entries)
    return (
        f'{{"changes":[{changes}],"next":"{page.reached}","is_last":{"true" if page.is_last else "false"},'
        f'"first":{page.first},"last":{page.last}}}'
    ).encode()


def iso_utc(moment: datetime) -> str:
    """ISO 8601 with microseconds, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def first_within(entries: Iterable[ChangeEvent], max_bytes: int) -> tuple[ChangeEvent, ...]:
    """The first entries that fit in `max_bytes`, at least one."""
    kept: list[ChangeEvent] = []
    size = 0
    for entry in entries:
        size += ENVELOPE_BYTES + len(entry.document or "")
        if kept and size > max_bytes:
            break
        kept.append(entry)
    return tuple(kept)


def with_usages(provider: Mapping[str, Json], usages: Mapping[str, Json]) -> dict[str, Json]:
    """A provider's document, updated with a later entry of kind ``usages``."""
    return {**provider, **usages}


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """An entry of the log without its document."""

    cursor: Cursor
    kind: str
    subject: str | None
    is_gone: bool


def superseded(entries: Iterable[EntryHeader]) -> list[Cursor]:
    """Entries that no state after the last of them depends on. `entries` must be complete, by subject and in order."""
    old: list[Cursor] = []
    for _, about in groupby(entries, lambda entry: entry.subject):
        rows = list(about)
        old += _superseded([row for row in rows if row.kind in PROVIDER_KINDS])
        old += _superseded([row for row in rows if row.kind in CONSUMER_KINDS])
    return old


def _superseded(rows: list[EntryHeader]) -> list[Cursor]:
    """All entries but the last complete state and the last usages after it; also that state if it is a deletion."""
    whole = next((row for row in reversed(rows) if row.kind != SubjectKind.USAGES), None)
    if whole is None:
        return [row.cursor for row in rows[:-1]]
    later = [row for row in rows if row.kind == SubjectKind.USAGES and row.cursor > whole.cursor]
    needed = {row.cursor for row in later[-1:]} | (set() if whole.is_gone else {whole.cursor})
    return [row.cursor for row in rows if row.cursor not in needed]
