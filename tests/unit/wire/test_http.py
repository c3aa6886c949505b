"""`Headers`: the headers of a request, read from the WSGI environment; and the qualities of media types in Accept."""

import pytest

from moorage.wire.http import Headers, accept_quality

ENVIRON = {
    "HTTP_X_AUTH_TOKEN": "secret",
    "HTTP_ACCEPT": "application/json",
    "CONTENT_TYPE": "text/plain",
    "REQUEST_METHOD": "GET",
    "wsgi.version": (1, 0),
    "PATH": "/usr/bin",
}


def test_header_names_are_lower_case_with_hyphens():
    headers = Headers(ENVIRON)
    assert headers["x-auth-token"] == "secret"
    assert headers.get("content-type") == "text/plain"
    assert "accept" in headers


def test_other_keys_of_the_environment_are_no_headers():
    headers = Headers(ENVIRON)
    for name in ("path", "request-method", "wsgi.version", "content-length", "x-roles"):
        assert name not in headers
        assert headers.get(name) is None
        assert headers.get(name, "else") == "else"


def test_headers_are_a_mapping():
    expected = {"x-auth-token": "secret", "accept": "application/json", "content-type": "text/plain"}
    assert dict(Headers(ENVIRON)) == expected
    assert len(Headers(ENVIRON)) == 3


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json", 1.0),
        ("*/*;q=0.5", 0.5),
        ("application/*;q=0.3,*/*", 0.3),
        ("text/html", 0.0),
        ("application/json;q=0,*/*", 0.0),
        ("application/json;q=x", 0.0),
    ],
)
def test_the_most_specific_media_range_of_accept_counts(accept, expected):
    assert accept_quality(accept, "application/json") == expected
