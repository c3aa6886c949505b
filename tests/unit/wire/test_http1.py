"""HTTP/1: the heads of requests and responses, and bodies that arrive in pieces."""

import io

import pytest

from moorage.core.errors import Invalid, TooLarge, Unauthorized
from moorage.wire.server.http1 import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    BadRequestHead,
    error_response,
    find_head_end,
    parse_head,
    response_head,
)
from moorage.wire.server.request_body import BodyIntake, ChunkedBody, RefusedBody, SizedBody, StreamedBody


def head(*lines, first="GET /a HTTP/1.1", host="Host: here"):
    return "\r\n".join([first, *filter(None, [host]), *lines, "", ""]).encode("latin-1")


def environ(raw, **base):
    return parse_head(raw).environ(base)


# --- heads --------------------------------------------------------------------------------------------------------


def test_the_head_of_a_request_ends_with_an_empty_line():
    raw = head("A: b")
    assert [find_head_end(raw[:length]) for length in (0, 1, len(raw) - 1, len(raw))] == [0, 0, 0, len(raw)]
    assert find_head_end(raw + b"more") == len(raw)


def test_the_end_of_a_head_is_found_when_it_arrives_in_two_pieces():
    raw = head()
    for searched in range(len(raw)):
        assert find_head_end(raw, searched if find_head_end(raw[:searched]) == 0 else 0) == len(raw)


def test_a_head_without_an_end_is_refused_when_it_is_too_long():
    assert find_head_end(b"G" * MAX_HEAD_BYTES) == 0
    with pytest.raises(BadRequestHead) as refused:
        find_head_end(b"G" * (MAX_HEAD_BYTES + 1))
    assert refused.value.status == 431


@pytest.mark.parametrize("raw", [b"\x16\x03\x01", b"\0", b" GET", b"\n"])
def test_bytes_that_cannot_begin_a_request_are_refused_at_once(raw):
    with pytest.raises(BadRequestHead):
        find_head_end(raw)


def test_a_head_is_parsed_to_a_wsgi_environment():
    raw = head(
        "X-Auth-Token:  a b ", "Content-Type: x/y", "Content-Length: 7", first="PUT /a%20b/%e2?c=%20d?e HTTP/1.1"
    )
    assert environ(raw, SERVER_PORT="80") == {
        "SERVER_PORT": "80",
        "REQUEST_METHOD": "PUT",
        "PATH_INFO": "/a b/\xe2",
        "QUERY_STRING": "c=%20d?e",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "here",
        "HTTP_X_AUTH_TOKEN": "a b",
        "CONTENT_TYPE": "x/y",
        "CONTENT_LENGTH": "7",
    }


def test_the_host_is_taken_from_an_absolute_url():
    found = environ(head(first="GET http://there:8/a?b HTTP/1.1"))
    assert (found["HTTP_HOST"], found["PATH_INFO"], found["QUERY_STRING"]) == ("there:8", "/a", "b")
    assert environ(head(first="GET http://there HTTP/1.1"))["PATH_INFO"] == "/"


def test_repeated_header_fields_are_joined():
    assert environ(head("A: 1", "a: 2"))["HTTP_A"] == "1,2"
    assert environ(head("Cookie: 1", "Cookie: 2"))["HTTP_COOKIE"] == "1;2"


def test_header_fields_with_underscores_are_ignored():
    """In the environment they would equal those with hyphens, which a proxy may have removed or set."""
    assert "HTTP_X_ROLES" not in environ(head("X_Roles: admin"))
    assert environ(head("X-Roles: reader", "X_Roles: admin"))["HTTP_X_ROLES"] == "reader"


def test_content_length_with_an_underscore_is_ignored():
    assert parse_head(head("Content_Length: 7")).fields.length is None


@pytest.mark.parametrize(
    "raw",
    [
        head(first="GET /a"),
        head(first="GET  /a HTTP/1.1"),
        head(first="GET /a b HTTP/1.1"),
        head(first="GET /a HTTP/2.0"),
        head(first="GET /a HTTP/1.1 "),
        head(first="G\xc9T /a HTTP/1.1"),
        head(first="GET a HTTP/1.1"),
        head(first="CONNECT here:80 HTTP/1.1"),
        head(host=""),
        head("Host: there"),
        head("A"),
        head("A : b"),
        head(" A: b"),
        head("A: b", " folded"),
        head("A: b\nX-Roles: admin"),
        head("A: b\rX-Roles: admin"),
        head("A: b\0"),
        head("Content-Length: 1", "Content-Length: 1"),
        head("Content-Length: -1"),
        head("Content-Length: +1"),
        head("Content-Length: 1_0"),
        head("Content-Length: \xb2"),
        head("Content-Length: 1, 1"),
        head("Content-Length: " + "9" * 19),
        head("Content-Length: 1", "Transfer-Encoding: chunked"),
        head("Transfer-Encoding: gzip, chunked"),
        head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        head("Transfer-Encoding: chunked", first="POST /a HTTP/1.0"),
        head("Expect: a miracle"),
        head(*["A: b"] * MAX_FIELDS),
    ],
)
def test_an_ambiguous_or_invalid_head_is_refused(raw):
    with pytest.raises(BadRequestHead) as refused:
        parse_head(raw)
    assert error_response(refused.value).startswith(f"HTTP/1.1 {refused.value.status} ".encode())
    assert 400 <= refused.value.status < 500


def test_a_connection_is_closed_after_connection_close_or_http_1_0():
    assert parse_head(head()).may_stay
    assert not parse_head(head("Connection: Keep-Alive, Close")).may_stay
    assert not parse_head(head(first="GET /a HTTP/1.0", host="")).may_stay


# --- responses ----------------------------------------------------------------------------------------------------


def test_the_head_of_a_response_ends_with_an_empty_line():
    assert response_head("200 OK", [("a", "b")], ["c: d"]) == b"HTTP/1.1 200 OK\r\na: b\r\nc: d\r\n\r\n"


@pytest.mark.parametrize("value", ["b\r\nset-cookie: c", "b\nc", "b\rc", "b\0", "\u0142"])
def test_a_header_value_with_a_line_break_or_invalid_character_is_an_error(value):
    with pytest.raises(ValueError):
        response_head("200 OK", [("a", value)], ())


# --- bodies -------------------------------------------------------------------------------------------------------


CHUNKED = b"5;note=a\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nNEXT"


def fed(decoder, raw, size):
    """The result of `decoder` for `raw` in pieces of `size`, and the bytes after the body."""
    found, at = b"", 0
    while not decoder.is_complete and at < len(raw):
        found += decoder.feed(raw[at : at + size])
        at += size
    return found, decoder.remainder + raw[at:]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_chunked_body_is_decoded_from_pieces_of_any_size(size):
    assert fed(ChunkedBody(), CHUNKED, size) == (b"hello 0123456789", b"NEXT")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_sized_body_ends_after_its_length(size):
    assert fed(SizedBody(5), b"helloNEXT", size) == (b"hello", b"NEXT")


def read(decoder, raw, size, ahead=0):
    """Reads the body as an application does while it arrives; `ahead` bytes arrived with the head."""
    rest = io.BytesIO(raw[ahead:])
    return io.BufferedReader(StreamedBody(decoder, raw[:ahead], lambda: rest.read(size))).read()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("ahead", [0, 1, 9, len(CHUNKED)])
def test_a_body_can_be_read_while_it_arrives(size, ahead):
    assert read(ChunkedBody(), CHUNKED, size, ahead) == b"hello 0123456789"
    assert read(SizedBody(5), b"helloNEXT", size, min(ahead, 9)) == b"hello"


@pytest.mark.parametrize(
    "raw", [b"x\r\n", b"-1\r\n", b"5\r\nhelloo\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"1" * 5000, b"\r\n",
            b"0\r\n" + b"a: b\r\n" * 100 + b"\r\n", b"5\nhello\n0\n\n" + b" " * 5000, b"5 5\r\n", b"5;a\x00\r\n", b" 5\r\n",
            b"5;a\nb\r\nhello\r\n0\r\n\r\n", b"0\r\na\r\n\r\n", b"0\r\na : b\r\n\r\n", b"0\r\na: b\nc: d\r\n\r\n"],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 1000])
def test_an_invalid_chunk_is_an_error_of_the_client(raw, size):
    with pytest.raises(Invalid):
        fed(ChunkedBody(), raw, size)


@pytest.mark.parametrize(
    ("decoder", "raw"), [(ChunkedBody, b"5\r\nhel"), (ChunkedBody, b""), (lambda: SizedBody(5), b"hel")]
)
def test_a_body_that_ends_early_is_an_error_of_the_client(decoder, raw):
    with pytest.raises(Invalid, match="in the middle"):
        read(decoder(), raw, 2)


def test_reading_a_refused_body_raises_the_reason():
    with pytest.raises(TooLarge, match="at most 7 bytes"):
        RefusedBody(BodyIntake(7)).read()
    with pytest.raises(Unauthorized):
        RefusedBody(BodyIntake(refusal=Unauthorized("who?"))).read()
