import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from moorage.core.errors import NotFound, Unauthorized, Unavailable
from moorage.identity.client import PasswordTokens
from moorage.wire.client import ServiceClient
from moorage.wire.transports import ClientResponse
from tests.plane import URL


class CountingTransport:
    """A transport to identity that counts logins."""

    def __init__(self, plane):
        self._inner = plane.transport("/identity")
        self.logins = 0
        self._lock = threading.Lock()

    def send(self, method, path, headers, body=None):
        if path == "/v3/auth/tokens" and method == "POST":
            with self._lock:
                self.logins += 1
        return self._inner.send(method, path, headers, body)

    def stream(self, *arguments):
        return self._inner.stream(*arguments)


@pytest.fixture
def transport(plane):
    return CountingTransport(plane)


@pytest.fixture
def tokens(transport, passwords, clock):
    def make(name="moorage", project="service", password=None):
        return PasswordTokens(
            transport, username=name, password=password or passwords[name], project=project, clock=clock
        )

    return make


def test_one_login_is_used_until_shortly_before_the_token_expires(tokens, transport, clock):
    source = tokens()
    first = source.headers()
    clock.sleep(3600 - 121)
    assert source.headers() == first
    assert transport.logins == 1
    clock.sleep(2)
    assert source.headers() != first
    assert transport.logins == 2


def test_a_refused_token_is_replaced_by_a_new_one(tokens, transport):
    source = tokens()
    first = source.headers()
    assert source.headers(renew=True) != first
    assert transport.logins == 2


def test_threads_with_a_refused_token_log_in_only_once(tokens, transport):
    source = tokens()
    together = threading.Barrier(8)

    def use(_number):
        source.headers()
        together.wait()
        return source.headers(renew=True)["x-auth-token"]

    with ThreadPoolExecutor(8) as pool:
        renewed = set(pool.map(use, range(8)))
    assert len(renewed) == 1
    assert transport.logins == 2


def test_a_service_client_continues_after_its_token_became_invalid(tokens, transport, clock, plane):
    """The key is lost and created again while a client has a token."""
    source = tokens("admin", "admin")
    http = ServiceClient(transport, service_type="identity", credentials=source, clock=clock)
    assert http.get("/v3/projects")
    (plane.config.state / "token.key").unlink()
    plane.restart()
    assert http.get("/v3/projects")
    assert transport.logins == 2


def test_a_token_has_the_user_the_project_and_the_roles(tokens):
    token = tokens().current_token()
    assert token.roles == {"service", "admin", "manager", "member", "reader"}
    assert token.project_id
    assert token.text not in repr(token)


def test_endpoints_are_read_from_the_catalogue(tokens):
    source = tokens()
    assert source.endpoint("placement") == f"{URL}/placement"
    assert source.endpoint("compute", "internal", "RegionOne") == f"{URL}/compute/v2.1"
    served = "accelerator, compute, identity, image, network, placement, reservation"
    with pytest.raises(NotFound, match=f"no public endpoint of volume; it has {served}"):
        source.endpoint("volume")
    with pytest.raises(NotFound, match="in RegionTwo"):
        source.endpoint("placement", region="RegionTwo")


def test_a_wrong_password_is_one_clear_error(tokens, transport):
    with pytest.raises(Unauthorized, match="login of moorage in project service"):
        tokens(password="wrong").headers()
    assert transport.logins == 1


def test_an_identity_service_that_fails_is_unavailable(clock):
    class Broken:
        def send(self, *_arguments):
            return ClientResponse(500, {}, b'{"error": {"code": 500, "message": "database down", "title": "x"}}')

    source = PasswordTokens(Broken(), username="u", password="p", project="x", clock=clock)
    with pytest.raises(Unavailable, match="database down"):
        source.headers()
