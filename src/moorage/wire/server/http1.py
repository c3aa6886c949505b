"""Parses the heads of HTTP/1.1 requests and formats the heads of responses. No I/O (see
`moorage.wire.server.http_server`).

The parser is strict wherever two readers could interpret the same bytes differently, so that no request can be smuggled
past a proxy: it rejects everything that h11 or gunicorn rejects (`tests/fuzz/http_parsers.py` compares).
Source: RFC 9112 (messages), RFC 9110 (fields), PEP 3333 (the environment).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

#: Bounds of a head, in bytes and in lines, since it is kept in memory until it is complete.
MAX_HEAD_BYTES = 256 * 1024
MAX_FIELDS = 128

_NAME = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(rb"(%s) ([\x21-\x7e]+) HTTP/1\.([01])\Z" % _NAME)
_FIELD = re.compile(rb"(%s):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\Z" % _NAME)
_ABSOLUTE = re.compile(r"https?://([^/?#]+)", re.IGNORECASE)
#: Bytes that a request can begin with. Others, such as a TLS greeting, are rejected at once.
_FIRST_BYTES = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
#: Longer header blocks are not cached.
_REMEMBERED_BYTES = 2048


class BadRequestHead(Exception):
    """The head is invalid, so no application can handle the request; the connection closes after the response."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class HeaderFields:
    """The header fields of a request."""

    environ: Mapping[str, str]
    length: int | None  #: Content-Length; None if absent
    is_chunked: bool
    expects_continue: bool
    ends: bool  #: ``Connection: close``


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: str
    target: str
    is_old: bool  #: HTTP/1.0
    fields: HeaderFields

    @property
    def has_body(self) -> bool:
        return self.fields.is_chunked or bool(self.fields.length)

    @property
    def may_stay(self) -> bool:
        """Whether another request may follow on this connection."""
        return not (self.is_old or self.fields.ends)

    def environ(self, base: Mapping[str, object]) -> dict[str, object]:
        """The WSGI environment. `base` is the part that all requests of a connection share."""
        authority, path, query = _parts(self.target)
        environ = {**base, **self.fields.environ}
        environ["REQUEST_METHOD"] = self.method
        environ["PATH_INFO"] = unquote_to_bytes(path).decode("latin-1") if "%" in path else path
        environ["QUERY_STRING"] = query
        environ["SERVER_PROTOCOL"] = "HTTP/1.0" if self.is_old else "HTTP/1.1"
        if authority:
            environ["HTTP_HOST"] = authority
        return environ


def _parts(target: str) -> tuple[str, str, str]:
    """(authority, path, query). The authority is set only if the target is a full URL, as proxies send it."""
    authority = ""
    if not target.startswith("/") and (found := _ABSOLUTE.match(target)):
        authority, target = found[1], target[found.end() :]
    path, _, query = target.partition("?")
    return authority, path or "/", query


def find_head_end(buffer: bytes | bytearray, searched: int = 0) -> int:
    """The index behind the head at the beginning of `buffer`, including its empty line; 0 if it is incomplete.

    The first `searched` bytes are known to contain no end. Raises `BadRequestHead` for bytes that cannot become a head.
    """
    if buffer and buffer[0] not in _FIRST_BYTES:
        raise BadRequestHead(400, "not an HTTP/1.1 request")
    end = buffer.find(b"\r\n\r\n", max(0, searched - 3))
    if max(end, len(buffer) if end < 0 else 0) > MAX_HEAD_BYTES:
        raise BadRequestHead(431, f"the head of a request may have at most {MAX_HEAD_BYTES} bytes")
    return end + 4 if end >= 0 else 0


def parse_head(head: bytes) -> RequestHead:
    """`head` ends with its empty line. Raises `BadRequestHead`."""
    first, _, rest = head.partition(b"\r\n")
    line = _REQUEST_LINE.match(first)
    if line is None:
        raise BadRequestHead(400, "the first line is not METHOD TARGET HTTP/1.1")
    method, target, minor = line.groups()
    fields = (_cached_fields if len(rest) <= _REMEMBERED_BYTES else _fields)(rest)
    request = RequestHead(method.decode("ascii"), target.decode("latin-1"), minor == b"0", fields)
    if request.is_old and fields.is_chunked:
        raise BadRequestHead(400, "HTTP/1.0 has no transfer codings")
    if not request.is_old and "HTTP_HOST" not in fields.environ:
        raise BadRequestHead(400, "the Host header is missing")
    if not request.target.startswith("/") and not _ABSOLUTE.match(request.target) and request.target != "*":
        raise BadRequestHead(400, "the target is neither a path nor a URL")
    return request


def _fields(block: bytes) -> HeaderFields:
    """`block`: the header lines with their line ends, including the empty line."""
    lines = block[:-2].split(b"\r\n")[:-1]
    if len(lines) > MAX_FIELDS:
        raise BadRequestHead(431, f"a request may have at most {MAX_FIELDS} header fields")
    values: dict[str, str] = {}
    for line in lines:
        found = _FIELD.match(line)
        if found is None:
            raise BadRequestHead(400, "a line of the head is not NAME: VALUE")
        name, value = found[1].decode("ascii").upper(), found[2].decode("latin-1").rstrip(" \t")
        # In WSGI, "X_Auth" and "X-Auth" have the same key. A proxy that removes one of them would let the other pass.
        if "_" in name:
            continue
        if name in values:
            if name in _ONCE:
                raise BadRequestHead(400, f"there are two of {name.title()}")
            value = f"{values[name]}{';' if name == 'COOKIE' else ','}{value}"
        values[name] = value
    return _interpret_fields(values)


#: Clients send the same header lines again and again.
_cached_fields = lru_cache(maxsize=512)(_fields)

#: Headers that may appear only once: different readers would use different values.
_ONCE = frozenset({"HOST", "CONTENT-LENGTH", "TRANSFER-ENCODING", "CONTENT-TYPE"})
_BARE = {"CONTENT-TYPE": "CONTENT_TYPE", "CONTENT-LENGTH": "CONTENT_LENGTH"}


def _interpret_fields(values: dict[str, str]) -> HeaderFields:
    length_text, coding = values.get("CONTENT-LENGTH"), values.get("TRANSFER-ENCODING")
    if length_text is not None and not (length_text.isascii() and length_text.isdigit() and len(length_text) < 19):
        raise BadRequestHead(400, "Content-Length is not a number of bytes")
    if coding is not None and coding.lower() != "chunked":
        raise BadRequestHead(400, "the only supported transfer coding is chunked")
    if coding is not None and length_text is not None:
        raise BadRequestHead(400, "a body must have either a Content-Length or be chunked, not both")
    expected = values.get("EXPECT", "").lower()
    if expected not in ("", "100-continue"):
        raise BadRequestHead(417, "the only supported expectation is 100-continue")
    words = [word.strip() for word in values.get("CONNECTION", "").lower().split(",")]
    return HeaderFields(
        environ={_BARE.get(name) or "HTTP_" + name.replace("-", "_"): value for name, value in values.items()},
        length=None if length_text is None else int(length_text),
        is_chunked=coding is not None,
        expects_continue=bool(expected),
        ends="close" in words,
    )


# --- answers ------------------------------------------------------------------------------------------------------


def has_no_body(status: str) -> bool:
    """Whether responses with this status have neither a body nor a Content-Length."""
    return status.startswith(("1", "204", "304"))


def response_head(status: str, headers: Iterable[tuple[str, str]], more: Iterable[str]) -> bytes:
    """`more`: complete header lines. Raises `ValueError` if a value contains a line end."""
    lines = [f"HTTP/1.1 {status}", *[f"{name}: {value}" for name, value in headers], *more]
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
        raise ValueError(f"a status or header of a response contains a line end: {lines!r}")
    return f"{text}\r\n\r\n".encode("latin-1")


def error_response(refused: BadRequestHead) -> bytes:
    """A response without a body, since only the application knows the shape of its error bodies."""
    status = f"{refused.status} {HTTPStatus(refused.status).phrase}: {refused.why}"
    return response_head(status, [("content-length", "0"), ("connection", "close")], ())
