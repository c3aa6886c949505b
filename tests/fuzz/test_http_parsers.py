"""If ours accepts a request, h11 and gunicorn read the same one. `make fuzz-http` runs this for longer."""

import pytest

from tests.fuzz.http_parsers import PEERS, by_gunicorn, by_h11, difference, ours, run

pytestmark = pytest.mark.core

CHUNKED = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"

#: Streams that the comparison has found: our parser accepted each, and another one refused it or read it differently.
FOUND = [
    b"POST /\xe9 HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n",
    b"\r\nGET / HTTP/1.1\r\nHost: here\r\n\r\n",
    CHUNKED + b"1 \r\na\r\n0\r\n\r\n",
    CHUNKED + b"1\t\r\na\r\n0\r\n\r\n",
    CHUNKED + b"1 ;a\r\na\r\n0\r\n\r\n",
    CHUNKED + b"1\r\na\r\n0 \r\n\r\n",
    CHUNKED + b"1\r\na\r\n0\r\nTransfer-Encoding: c\r\n\r\n",
    CHUNKED + b"1\r\na\r\n0\r\nContent-Length: x\r\n\r\n",
    CHUNKED + b"1\r\na\r\n0\r\nX-T: \x00\r\n\r\n",
    CHUNKED + b"1;a\nb\r\na\r\n0\r\n\r\n",
]


@pytest.mark.parametrize("raw", FOUND)
def test_our_parser_refuses_what_another_parser_refuses(raw):
    assert ours(raw).messages == []
    assert difference(raw) is None


def test_random_streams_have_the_same_result_in_all_parsers_whole_and_in_pieces():
    seen, bad = run(20261122, streams=2_000)
    assert bad == []
    assert seen["requests"] > 500, "refusing everything would be no finding"


def test_the_comparison_reports_a_difference():
    """The result of a parser that is too lenient is reported."""
    plain = b"GET /a HTTP/1.1\r\nHost: here\r\n\r\n"
    assert ours(plain).messages == by_h11(plain).messages == by_gunicorn(plain).messages != []
    lenient = ours(plain)
    for name in PEERS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(PEERS, name, lambda _raw: lenient._replace(messages=[], end="refused"))
            assert name in difference(plain)
