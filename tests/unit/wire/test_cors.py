"""CORS: the headers of responses to web pages of other origins."""

import pytest

from moorage.wire.middleware import CrossOrigin

CONSOLE = "https://console.example.org"


def api(environ, start_response):
    start_response("200 OK", [("content-type", "application/json"), ("vary", "openstack-api-version")])
    return [b"{}"]


@pytest.fixture
def ask():
    """(status, {header: value}, body) of a request by a page."""
    app = CrossOrigin(frozenset({CONSOLE}), frozenset({"x-auth-token"})).wrap(api)

    def ask(method, origin=None, /, **asked):
        environ = {"REQUEST_METHOD": method}
        if origin:
            environ["HTTP_ORIGIN"] = origin
        environ |= {f"HTTP_ACCESS_CONTROL_REQUEST_{name.upper()}": value for name, value in asked.items()}
        answers = []
        body = b"".join(app(environ, lambda status, headers, *_: answers.append((status, dict(headers)))))
        return *answers[0], body

    return ask


def test_a_page_of_an_allowed_origin_may_read_the_response(ask):
    _, headers, body = ask("GET", CONSOLE)
    assert body == b"{}"
    assert headers["access-control-allow-origin"] == CONSOLE
    assert "OpenStack-API-Version" in headers["access-control-expose-headers"]
    assert headers["vary"] == "openstack-api-version,Origin"


@pytest.mark.parametrize("origin", [None, "https://elsewhere.example.org", f"{CONSOLE}.evil.example", "null"])
def test_a_page_of_another_origin_gets_no_cors_headers(ask, origin):
    _, headers, body = ask("GET", origin)
    assert body == b"{}"
    assert not [name for name in headers if name.startswith("access-control")]
    assert headers["vary"] == "openstack-api-version"


def test_a_preflight_request_is_answered_without_calling_the_api(ask):
    status, headers, body = ask("OPTIONS", CONSOLE, method="PUT", headers="X-Auth-Token, content-type")
    assert (status, body) == ("200 OK", b"")
    assert headers["access-control-allow-origin"] == CONSOLE
    assert headers["access-control-allow-methods"] == "PUT"
    assert headers["access-control-allow-headers"] == "X-Auth-Token,content-type"
    assert headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("origin", "asked"),
    [
        ("https://elsewhere.example.org", {"method": "GET"}),
        (None, {"method": "GET"}),
        (CONSOLE, {}),
        (CONSOLE, {"method": "TRACE"}),
        (CONSOLE, {"method": "GET", "headers": "x-auth-token,x-other"}),
    ],
)
def test_a_preflight_request_for_something_not_allowed_gets_no_cors_headers(ask, origin, asked):
    status, headers, _ = ask("OPTIONS", origin, **asked)
    assert (status, headers) == ("200 OK", {"content-length": "0"})
