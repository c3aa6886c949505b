"""A plane that serves identity alone, with its own users, and its routes as a client sees them."""

import json

import pytest

from moorage.identity.first_start.first_credentials import FIRST_USERS, first_credentials
from tests.plane import InProcessPlane


@pytest.fixture
def plane(tmp_path, clock, ids):
    elsewhere = {"image": "http://glance.example:9292", "network": "http://neutron.example:9696"}
    with InProcessPlane(tmp_path, "identity", clock=clock, ids=ids, authenticator=None, endpoints=elsewhere) as plane:
        yield plane


@pytest.fixture
def passwords(plane):
    return {name: first_credentials(plane.config.state, name)[0] for name in FIRST_USERS}


class Wire:
    """The routes as a client sees them: (status, headers, document)."""

    def __init__(self, transport, passwords):
        self._transport = transport
        self._passwords = passwords

    def send(self, method, path, body=None, token=None, **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["x-auth-token"] = token
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        answer = self._transport.send(method, f"/identity{path}", sent, raw)
        return answer.status, answer.headers, json.loads(answer.body) if answer.body else None

    def log_in(self, name, project=None, password=None, scope=None, user=None):
        user = user or {"name": name, "domain": {"id": "default"}}
        user |= {"password": password or self._passwords[name]}
        auth = {"identity": {"methods": ["password"], "password": {"user": user}}}
        if project:
            auth["scope"] = {"project": {"name": project, "domain": {"name": "Default"}}}
        if scope is not None:
            auth["scope"] = scope
        return self.send("POST", "/v3/auth/tokens", {"auth": auth})

    def token(self, name, project=None, **options):
        status, headers, document = self.log_in(name, project, **options)
        assert status == 201, document
        return headers["x-subject-token"]


@pytest.fixture
def wire(plane, passwords):
    return Wire(plane.transport(), passwords)
