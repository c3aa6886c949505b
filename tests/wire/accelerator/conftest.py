"""The Accelerator API mounted as in a plane, with callers by role, and an agent that reports to it."""

import json
from dataclasses import dataclass

import pytest

from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.routes import API, RULES
from moorage.accelerator.service import AcceleratorService
from moorage.core.caller import Caller
from moorage.core.errors import Unauthorized
from moorage.db import migrations
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from tests.unit.accelerator.rig import PROJECT

BASE = "http://cloud.example:8778"


class ByRole:
    """The token is ``<role>[@<project>][+service]``.

    Its bearer is of the project `PROJECT`, or of another where it says so: ``@none`` of none at all, ``@system`` of the
    whole system. With ``+service`` a service sends the request for them.
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
        """The sentence inside the peer's JSON within JSON."""
        return json.loads(self.body["error_message"])["faultstring"]


class Wire:
    def __init__(self, transport: InProcessTransport) -> None:
        self.transport = transport

    def __call__(self, method, path, *, role="admin", version=None, body=None) -> Seen:
        headers = {"x-auth-token": role} if role else {}
        if version:
            headers["openstack-api-version"] = version
        if body is not None:
            headers["content-type"] = "application/json"
        raw = None if body is None else json.dumps(body).encode()
        answer = self.transport.send(method, f"/accelerator{path}", headers, raw)
        body = json.loads(answer.body) if answer.body else None
        return Seen(answer.status, dict(answer.headers), body, answer.body)

    def client(self, role="service") -> AcceleratorClient:
        below = InProcessTransport(self.transport._app, f"{BASE}/accelerator")
        return AcceleratorClient(ServiceClient(below, service_type="accelerator", credentials=Token(role)))


class Token:
    def __init__(self, role) -> None:
        self._role = role

    def headers(self, *, renew=False):
        return {"x-auth-token": self._role}


class Told:
    """Hints to hosts; `heard` is what a host does on hearing one."""

    def __init__(self) -> None:
        self.heard = lambda: None

    def send(self, queue):
        self.heard()

    def close(self):
        pass


@pytest.fixture
def hints() -> Told:
    return Told()


def app_on(engine, clock, ids, hints, images=None):
    """The Accelerator API over a database that is empty yet."""
    migrations.upgrade(engine, "accelerator")
    service = AcceleratorService(engine, clock, ids, hints, images)
    return mount({"/accelerator": build(API, service, Surroundings(ByRole(), RULES, ids))})


@pytest.fixture
def app(sqlite_engine, clock, ids, hints):
    return app_on(sqlite_engine, clock, ids, hints)


@pytest.fixture
def wire(app) -> Wire:
    return Wire(InProcessTransport(app, BASE))
