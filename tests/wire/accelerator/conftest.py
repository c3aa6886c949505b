"""A plane that serves the Accelerator API, with callers by role, and the API as users and hosts see it."""

import json
from dataclasses import dataclass

import pytest

from moorage.accelerator.client import AcceleratorClient
from moorage.core.caller import Caller
from moorage.core.errors import Unauthorized
from moorage.wire.client import ServiceClient
from moorage.wire.transports import Transport
from tests.plane import InProcessPlane
from tests.unit.accelerator.rig import PROJECT


class ByRole:
    """Authenticates by the token ``<role>[@<project>][+service]``.

    The caller belongs to the project `PROJECT` or to the named one; ``@none`` means no project, ``@system`` a
    system-scoped token. With ``+service`` a service sends the request for the user.
    """

    def authenticate(self, headers, environ):
        token, by_service, _ = headers.get("x-auth-token", "").partition("+service")
        role, _, project = token.partition("@")
        if not role:
            raise Unauthorized("who are you?")
        return Caller(
            "u",
            "" if project in ("none", "system") else project or PROJECT,
            frozenset({role}),
            system_scope=project == "system",
            by_service=bool(by_service),
        )


@dataclass(frozen=True)
class Seen:
    status: int
    headers: dict
    body: object
    raw: bytes = b""

    @property
    def fault(self) -> str:
        """The text of the fault, which upstream encodes as JSON within JSON."""
        return json.loads(self.body["error_message"])["faultstring"]


class Wire:
    def __init__(self, transport: Transport) -> None:
        """`transport` leads to the service, below its prefix."""
        self._transport = transport

    def __call__(self, method, path, *, role="admin", version=None, body=None) -> Seen:
        headers = {"x-auth-token": role} if role else {}
        if version:
            headers["openstack-api-version"] = version
        if body is not None:
            headers["content-type"] = "application/json"
        raw = None if body is None else json.dumps(body).encode()
        answer = self._transport.send(method, path, headers, raw)
        body = json.loads(answer.body) if answer.body else None
        return Seen(answer.status, dict(answer.headers), body, answer.body)

    def client(self, role="service") -> AcceleratorClient:
        http = ServiceClient(self._transport, service_type="accelerator", credentials=Token(role))
        return AcceleratorClient(http)


class Token:
    def __init__(self, role) -> None:
        self._role = role

    def headers(self, *, renew=False):
        return {"x-auth-token": self._role}


class RecordedHints:
    """Records hints to hosts; `heard` is called for each, and stands for the host's reaction."""

    def __init__(self) -> None:
        self.heard = lambda: None

    def send(self, queue):
        self.heard()

    def close(self):
        pass


@pytest.fixture
def hints() -> RecordedHints:
    return RecordedHints()


def process_in(directory, hints, services="accelerator", **options) -> InProcessPlane:
    """A process with the accelerator service, without a compute service. `hints` receives the hints to its hosts."""
    return InProcessPlane(
        directory,
        services,
        authenticator=ByRole(),
        credentials=Token("admin"),
        hints=lambda _wakeups: hints,
        endpoints={"compute": "http://nowhere"},
        **options,
    )


@pytest.fixture
def process(tmp_path, clock, ids, hints):
    with process_in(tmp_path / "service", hints, clock=clock, ids=ids) as process:
        yield process


@pytest.fixture
def wire(process) -> Wire:
    return Wire(process.transport("/accelerator"))
