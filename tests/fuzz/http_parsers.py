"""`make fuzz-http`: compares our HTTP parser with two others, on ambiguous bytes.

    make fuzz-http ARGS="--minutes 60"      runs for this time, with new bytes each time
    make fuzz-http ARGS="--seed 7"          the same 20,000 streams each time

A stream is several requests on one connection, valid or damaged where parsers are known to differ: lengths, transfer
codings, line ends, blanks, folded lines, chunks, trailers. If ours accepts a request, h11 and gunicorn must read the
same one: method, target, body, and the start of the next request. Otherwise an attacker could smuggle a request past a
proxy that parses as they do. Ours may refuse more than they do.
"""

import argparse
import random
import secrets
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import h11
from gunicorn.config import Config
from gunicorn.http.errors import NoMoreData, ParseException
from gunicorn.http.parser import RequestParser

from moorage.wire.server.connection import ClientGone, HttpConnection
from moorage.wire.server.http1 import BadRequestHead
from moorage.wire.server.limits import ServerLimits
from moorage.wire.server.request_body import BodyIntake

MOST_BODY_BYTES = 1 << 20


class Message(NamedTuple):
    method: bytes
    target: bytes
    body: bytes


class Reading(NamedTuple):
    """A parser's result for a stream."""

    messages: list[Message]
    end: str  #: ``refused``, ``incomplete`` (more must come), ``closed`` (no more is read on this connection)


# --- the parsers ------------------------------------------------------------------------------------------------------


class _Everything:
    """An `Admission` that admits every request."""

    def __call__(self, environ: Mapping[str, Any]) -> BodyIntake:
        return BodyIntake(MOST_BODY_BYTES, is_known=True)

    def is_urgent(self, target: str) -> bool:
        return False


def ours(raw: bytes, pieces: random.Random | None = None) -> Reading:
    """The result of the server's own connection over a socket; the stream is sent in these `pieces`."""
    messages: list[Message] = []
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        connection = HttpConnection(near, {}, ServerLimits(), _Everything())
        for piece in _cut(raw, pieces):
            far.sendall(piece)
            try:
                connection.receive()
                while (arrived := connection.next_request()) is not None:
                    request = arrived.request
                    body = arrived.body.read()
                    messages.append(Message(request.method.encode(), request.target.encode("latin-1"), body))
                    if not request.may_stay:
                        return Reading(messages, "closed")
            except (BadRequestHead, ClientGone):
                return Reading(messages, "refused")
    return Reading(messages, "incomplete")


def _cut(raw: bytes, pieces: random.Random | None) -> Iterator[bytes]:
    if pieces is None:
        yield raw
        return
    at = 0
    while at < len(raw):
        end = at + pieces.choice((1, 1, 2, 5, 20, 200))
        yield raw[at:end]
        at = end


def by_h11(raw: bytes) -> Reading:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    messages: list[Message] = []
    request, body = None, b""
    connection.receive_data(raw)
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return Reading(messages, "refused")
        if isinstance(event, h11.Request):
            request, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            messages.append(Message(request.method, request.target, body))
            connection.send(h11.Response(status_code=204, headers=[]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:
                return Reading(messages, "closed")
            connection.start_next_cycle()
        else:
            return Reading(messages, "incomplete")


_GUNICORN = Config()
#: As lenient as possible. The length of a body does not depend on the method.
_GENEROUS = {
    "limit_request_line": 0,
    "limit_request_fields": 32768,
    "limit_request_field_size": 0,
    "permit_unconventional_http_method": True,
}
for _name, _value in _GENEROUS.items():
    _GUNICORN.set(_name, _value)


def by_gunicorn(raw: bytes) -> Reading:
    messages: list[Message] = []
    parser = RequestParser(_GUNICORN, iter([raw]), ("127.0.0.1", 1))
    try:
        for request in parser:
            body = request.body.read()
            messages.append(Message(request.method.encode(), request.uri.encode("latin-1"), body))
            if request.should_close():
                return Reading(messages, "closed")
    except NoMoreData:
        return Reading(messages, "incomplete")
    except (ParseException, OSError, ValueError):
        return Reading(messages, "refused")
    return Reading(messages, "incomplete")


PEERS: dict[str, Callable[[bytes], Reading]] = {"h11": by_h11, "gunicorn": by_gunicorn}


def difference(raw: bytes, pieces: random.Random | None = None) -> str | None:
    """Another parser's refusal or different result for a request that ours accepts; None if all agree."""
    found = ours(raw, pieces)
    for name, read in PEERS.items():
        if not found.messages:
            break
        said = read(raw)
        for number, message in enumerate(found.messages):
            if number >= len(said.messages):
                if said.end == "closed":  # it does not read that far, so no request can be smuggled past it
                    break
                return f"request {number + 1} is {message} here, and {said.end} by {name}"
            if said.messages[number] != message:
                return f"request {number + 1} is {message} here, and {said.messages[number]} by {name}"
    return None


# --- the streams ------------------------------------------------------------------------------------------------------

_METHODS = (
    b"GET",
    b"POST",
    b"PUT",
    b"DELETE",
    b"HEAD",
    b"PATCH",
    b"OPTIONS",
    b"get",
    b"M-SEARCH",
    b"GE T",
    b"G\x01T",
    b"",
)
_TARGETS = (
    b"/",
    b"/a?b=c",
    b"*",
    b"http://here/a",
    b"/a b",
    b"/a\tb",
    b"/\xe9",
    b"/a#b",
    b"//a",
    b"a",
    b"",
    b"/%2e%2e/",
    b"here:80",
)
_VERSIONS = (b"HTTP/1.1",) * 12 + (
    b"HTTP/1.0",
    b"HTTP/1.2",
    b"HTTP/2.0",
    b"HTTP/1.1 ",
    b"http/1.1",
    b"HTTP/1.10",
    b"HTTP/01.1",
    b"",
)
_ENDS = (b"\r\n",) * 30 + (b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\x0b\r\n", b" \r\n", b"\r\n\r\n")
_COLONS = (b": ",) * 12 + (b":", b" : ", b" :", b":\t", b":\x0b", b":\x00", b"\t: ", b"", b"::", b":\xa0")
_LENGTHS = (
    b"0", b"1", b"5", b"10", b"+5", b"-1", b"5, 5", b"5,6", b"0x5", b"05", b"5 5", b"5;", b"", b"5\x00", b"\xb2", b"1_0",
    b"9" * 25, b"5\t", b" 5", b"5.0", b"5e0", b"00000000000000000000005",
)  # fmt: skip
_CODINGS = (b"chunked",) * 6 + (
    b"Chunked", b"chunked ", b" chunked", b"chunked, chunked", b"gzip, chunked", b"chunked, gzip", b"identity", b"xchunked",
    b"chunked;a=b", b"\x0bchunked", b"chunked,", b",chunked", b"", b"chunked\x00", b"identity, chunked", b'"chunked"', b"chun\rked",
)  # fmt: skip
_NAMES = (
    b"X-A", b"x-a", b"Content_Length", b"Transfer_Encoding", b"Content-Length ", b"X A", b"", b"X\x00A", b"X-\xe9", b"X(A",
    b" X-A", b"\tX-A", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Expect", b"Upgrade", b"TE", b"Trailer",
    b"Host", b"X-Forwarded-For", b"Keep-Alive", b"Proxy-Connection",
)  # fmt: skip
_VALUES = (b"b", b"", b" b ", b"b\tc", b"\xe9", b"b\x00c", b"b\x01", b"b\x7f", b"b\rc", b"b\nc", b"close", b"keep-alive", b"5", b"chunked",
           b"100-continue", b"h2c", b"Content-Length", b"b\r\n c", b"b\r\n\tc", b"b\x0bc")  # fmt: skip
_SIZES = (b"%x",) * 14 + (
    b"%x;a=b", b'%x;a="b"', b"%x ", b"%x ;a", b" %x", b"0%x", b"0x%x", b"+%x", b"-%x", b"%x\t", b"%x;\x00", b"%x;a\nb", b"%x;a\rb",
    b"%xg", b"", b"%x,%x", b"000000000000000%x", b"00000000000000000000%x", b"%x;" + b"a" * 5000, b"%x\x0b", b"%x_0",
)  # fmt: skip
_TRAILERS = (b"",) * 12 + (b"X-T: a\r\n", b"Content-Length: 5\r\n", b"X T: a\r\n", b"a\r\n", b"X-T: a\n", b"X-T : a\r\n", b" X: a\r\n",
                           b"X-T: a\r\n b\r\n", b"X-T: \x00\r\n", b"Transfer-Encoding: chunked\r\n")  # fmt: skip


class Streams:
    """Streams of requests that depend only on the seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> bytes:
        chance = self._random.random
        raw = b"".join(self._request() for _ in range(self._random.choice((1, 1, 2, 3))))
        if chance() < 0.05:
            raw = self._random.choice((b"\r\n", b"\n", b"\r\n\r\n", b"\r", b" ", b"\0")) + raw
        if chance() < 0.15:
            raw = self._spoilt(raw)
        if chance() < 0.05:
            raw = raw[: self._random.randrange(len(raw) + 1)]
        return raw

    def _usual(self, rare: float, usual: bytes, others: tuple[bytes, ...]) -> bytes:
        return self._random.choice(others) if self._random.random() < rare else usual

    def _request(self) -> bytes:
        choice, chance = self._random.choice, self._random.random
        method, target = (
            self._usual(0.05, choice(_METHODS[:4]), _METHODS),
            self._usual(0.05, choice(_TARGETS[:2]), _TARGETS),
        )
        line = b" ".join([method, target, self._usual(0.05, b"HTTP/1.1", _VERSIONS)])
        fields = [b"Host: here"] if chance() > 0.03 else []
        body = bytes(self._random.choices(b"abc\r\n0 :GET /", k=choice((0, 1, 5, 10, 40))))
        kind = chance()
        if kind < 0.35:
            fields.append(self._field(b"Content-Length", self._usual(0.25, b"%d" % len(body), _LENGTHS)))
        elif kind < 0.75:
            fields.append(self._field(b"Transfer-Encoding", self._usual(0.25, b"chunked", _CODINGS)))
            body = self._chunks(body)
        elif kind < 0.85:
            fields.append(self._field(b"Content-Length", self._usual(0.3, b"%d" % len(body), _LENGTHS)))
            fields.append(self._field(b"Transfer-Encoding", self._usual(0.3, b"chunked", _CODINGS)))
            body = self._chunks(body) if chance() < 0.5 else body
        else:
            body = b""
        while chance() < 0.25:
            fields.append(self._field(choice(_NAMES), choice(_VALUES + _LENGTHS + _CODINGS)))
        self._random.shuffle(fields)
        lines = [line, *fields]
        if chance() < 0.1:
            return b"".join(one + choice(_ENDS) for one in lines) + choice(_ENDS) + body
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    def _field(self, name: bytes, value: bytes) -> bytes:
        return name + self._usual(0.08, b": ", _COLONS) + value

    def _chunks(self, body: bytes) -> bytes:
        choice, chance = self._random.choice, self._random.random
        parts, at = [], 0
        while at < len(body):
            piece = body[at : at + choice((1, 3, 20))]
            at += len(piece)
            size = self._usual(0.12, b"%x", _SIZES)
            parts.append(size.replace(b"%x", b"%x" % len(piece)) + self._usual(0.05, b"\r\n", _ENDS))
            parts.append(piece + self._usual(0.05, b"\r\n", _ENDS))
        last = self._usual(0.1, b"0", (b"00", b"0;a", b"", b"0 ", b"-0", b"0x0", b"0\t;a=b", b"000000000000000000000"))
        parts.append(last + self._usual(0.05, b"\r\n", _ENDS) + choice(_TRAILERS) + self._usual(0.05, b"\r\n", _ENDS))
        return b"".join(parts) if chance() > 0.03 else b"".join(parts)[:-2]

    def _spoilt(self, raw: bytes) -> bytes:
        spoilt = bytearray(raw)
        for _ in range(self._random.choice((1, 1, 2, 4))):
            at = self._random.randrange(len(spoilt) + 1)
            match self._random.randrange(3):
                case 0:
                    spoilt[at:at] = self._random.choice(
                        (b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b":", b",", b";", b"\x0b", b"0")
                    )
                case 1:
                    del spoilt[at : at + self._random.choice((1, 2, 5))]
                case _:
                    spoilt[at : at + 1] = bytes([self._random.randrange(256)])
        return bytes(spoilt)


def run(
    seed: int, *, streams: int | None = None, seconds: float | None = None
) -> tuple[Counter[str], list[tuple[bytes, str]]]:
    """Counts the streams by their result, and `requests` in all; returns the counts, and the streams with a
    difference.
    """
    made, pieces = Streams(seed), random.Random(seed)
    seen: Counter[str] = Counter()
    bad: list[tuple[bytes, str]] = []
    end = None if seconds is None else time.monotonic() + seconds
    while (streams is None or seen["streams"] < streams) and (end is None or time.monotonic() < end):
        raw = made.next()
        whole = ours(raw)
        seen.update(("streams", whole.end))
        seen["requests"] += len(whole.messages)
        if (cut := ours(raw, pieces)) != whole:
            bad.append((raw, f"in pieces it is {cut}, and at once {whole}"))
        elif said := difference(raw):
            bad.append((raw, said))
    return seen, bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz-http ARGS=...", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--minutes", type=float, help="for so long, instead of 20,000 streams")
    parser.add_argument("--seed", type=int, help="else another one each time; it is printed")
    asked = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    seconds = None if asked.minutes is None else asked.minutes * 60
    seen, bad = run(seed, seconds=seconds, streams=20_000 if seconds is None else None)
    print(", ".join(f"{count:,} {name}" for name, count in sorted(seen.items())))
    for raw, said in bad[:20]:
        print(f"--- {raw!r}\n{said}")
    print(f"{len(bad)} read in two ways" if bad else "none read in two ways")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
