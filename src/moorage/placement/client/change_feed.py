"""Follows placement's changes over HTTP, for as long as the caller iterates.

The server ends each answer after a while; the follower reconnects with the last id, also after a failure of the
server. So nothing is missed, and nothing is delivered twice.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import Unavailable
from moorage.placement.forest.change_events import Filter
from moorage.wire.client import ServiceClient, with_query

EVENTS = "/moorage/v1/events"

#: Reconnect delay if the server did not name one, or did not answer.
PAUSE_S = 1.0


@dataclass(slots=True)
class _Place:
    """The follower's position, and the reconnect delay that the server asked for."""

    last_id: str | None
    pause_s: float = PAUSE_S


def follow_changes(client: ServiceClient, clock: Clock, since: str | None, wanted: Filter) -> Iterator[dict[str, Any]]:
    """Entries after `since` (None: from now on) as they come, without an end.

    Raises `RemoteError` for a refusal: 410 if the position is no longer retained.
    """
    place = _Place(since)
    while True:
        try:
            yield from _answer(client, place, wanted)
        except Unavailable:
            place.pause_s = PAUSE_S
        clock.sleep(place.pause_s)


def _answer(client: ServiceClient, place: _Place, wanted: Filter) -> Iterator[dict[str, Any]]:
    query = {"kind": ",".join(wanted.kinds) or None, "subject": ",".join(wanted.subjects) or None}
    headers = {"accept": "text/event-stream"}
    if place.last_id is not None:
        headers["last-event-id"] = place.last_id
    with client.download(with_query(EVENTS, query), headers) as chunks:
        for fields in sse_blocks(chunks):
            if "retry" in fields:
                place.pause_s = int(fields["retry"]) / 1000
            # Set before the entry is yielded: a caller that stops here has received it.
            place.last_id = fields.get("id", place.last_id)
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
