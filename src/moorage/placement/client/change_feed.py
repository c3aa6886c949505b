"""Follows the change log of a placement service over HTTP, for as long as the caller iterates.

The server ends each answer after a while. The client then reconnects with the last id, also after a failure of the
server, so it misses no entry and receives none twice.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypedDict

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import Unavailable
from moorage.core.json import Json
from moorage.placement.forest.change_events import Filter
from moorage.wire.client import ServiceClient, with_query

EVENTS = "/moorage/v1/events"

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
