"""Reads Moorage's change log of Placement over HTTP; OpenStack Placement has none.

follow_changes       all changes, as they are committed, for as long as the caller iterates
ProviderChangeLog    the providers that have changed since a position
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import NotFound, RemoteError, Unavailable
from moorage.core.json import Json
from moorage.placement.forest.change_entries import Filter
from moorage.wire.client import ServiceClient, with_query

EVENTS = "/moorage/v1/events"
_CHANGES = "/moorage/v1/changes"

#: Reconnect delay if the server did not name one, or did not answer.
PAUSE_S = 1.0


class ChangeDocument(TypedDict):
    """An entry of Placement's change feed."""

    id: str
    at: str
    kind: str
    subject: str | None
    document: dict[str, Json] | None


@dataclass(slots=True)
class _Position:
    """The position in the log, and the reconnect delay that the server requested."""

    last_id: str | None
    pause_s: float = PAUSE_S


def follow_changes(client: ServiceClient, clock: Clock, since: str | None, wanted: Filter) -> Iterator[ChangeDocument]:
    """Yields entries after `since` (None: after now) as they are committed. Never ends.

    The server ends each answer after a while. The client then reconnects with the last id, also after a failure of the
    server, so it misses no entry and receives none twice.

    Raises `RemoteError` for a refusal: 410 if the position is no longer retained.
    """
    position = _Position(since)
    while True:
        try:
            yield from _entries_of_answer(client, position, wanted)
        except Unavailable:
            position.pause_s = PAUSE_S
        clock.sleep(position.pause_s)


def _entries_of_answer(client: ServiceClient, position: _Position, wanted: Filter) -> Iterator[ChangeDocument]:
    query = {"kind": ",".join(wanted.kinds) or None, "subject": ",".join(wanted.subjects) or None}
    headers = {"accept": "text/event-stream"}
    if position.last_id is not None:
        headers["last-event-id"] = position.last_id
    with client.download(with_query(EVENTS, query), headers) as chunks:
        for fields in sse_blocks(chunks):
            if "retry" in fields:
                position.pause_s = int(fields["retry"]) / 1000
            # Set before the entry is yielded, because a caller that stops here has received it.
            position.last_id = fields.get("id", position.last_id)
            if "data" in fields:
                yield orjson.loads(fields["data"])


def sse_blocks(chunks: Iterable[bytes]) -> Iterator[dict[str, str]]:
    """The fields of each complete block of server-sent events; an incomplete last block is dropped."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for block in whole:
            lines = (line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
            yield {line[0]: line[-1] for line in lines}


class Getter(Protocol):
    def __call__(self, path: str, query: list[tuple[str, str]], /) -> Any:
        """The JSON document at `path`. Raises `NotFound` for 404 and `RemoteError` for other refusals."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderPlace:
    name: str
    root_uuid: str


@dataclass(frozen=True, slots=True)
class ProviderChanges:
    """Changed providers, and the position in the change log after these changes.

    `places`: {uuid: its place after its last change; None: it was deleted}. `is_everything`: any provider may have
    changed.
    """

    position: int
    places: Mapping[str, ProviderPlace | None]
    is_everything: bool = False


class ProviderChangeLog:
    def __init__(self, get: Getter) -> None:
        self._get = get

    def newest_position(self) -> int | None:
        """The position after the newest change; None if the service has no change log."""
        try:
            return int(self._get(_CHANGES, [("kind", "names"), ("limit", "1")])["last"])
        except NotFound:
            return None

    def since(self, position: int) -> ProviderChanges | None:
        """The changes after `position` of inventories, traits, aggregates and places in the tree, but not of usages.

        None if the service cannot tell: the changes are no longer retained, its database was restored from an older
        backup, or it has no change log.
        """
        places: dict[str, ProviderPlace | None] = {}
        is_everything, since = False, str(position)
        while True:
            query = [("since", since), ("kind", "provider,everything"), ("limit", "1000")]
            try:
                page = self._get(_CHANGES, query)
            except NotFound:
                return None
            except RemoteError as error:
                if error.status in (400, 410):
                    return None
                raise
            for change in page["changes"]:
                if change["subject"] is None:
                    is_everything = True
                else:
                    places[change["subject"]] = _place(change["document"])
            if page["is_last"]:
                return ProviderChanges(int(page["last"]), places, is_everything)
            since = page["next"]

    def past_place(self, uuid: str) -> ProviderPlace | None:
        """The place of a provider that was deleted; None if the log does not retain it."""
        try:
            changes = self._get(f"/moorage/v1/history/providers/{uuid}/changes", [("limit", "1000")])["changes"]
        except NotFound:
            return None
        # Changes of usages alone have no name.
        places = [place for change in changes if (place := _place(change["document"])) is not None]
        return places[-1] if places else None


def _place(document: Mapping[str, Any] | None) -> ProviderPlace | None:
    if document is None or "name" not in document:
        return None
    return ProviderPlace(document["name"], document["root_provider_uuid"])
