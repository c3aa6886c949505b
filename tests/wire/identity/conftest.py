import json
from datetime import timedelta

import pytest

from moorage.identity.authenticators import EmbeddedTokens
from moorage.identity.embedded import open_or_create
from moorage.identity.routes import API, RULES
from moorage.identity.service import IdentityService
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.transports import InProcessTransport

BASE = "http://cloud.example:8778"
ENDPOINTS = {
    "identity": "/identity/v3",
    "placement": "/placement",
    "compute": "/compute/v2.1",
    "image": "http://glance.example:9292",
}


@pytest.fixture
def identity(tmp_path, clock, ids):
    return open_or_create(tmp_path / "state", clock=clock, ids=ids, token_lifetime=timedelta(hours=1), bcrypt_rounds=4)


@pytest.fixture
def passwords(identity, tmp_path):
    notes = json.loads((tmp_path / "state" / "credentials.json").read_text())
    return {name: note["password"] for name, note in notes.items()}


@pytest.fixture
def app(identity, ids):
    around = Surroundings(EmbeddedTokens(identity), RULES, ids)
    return mount({"/identity": build(API, IdentityService(identity, ENDPOINTS), around)})


class Wire:
    """The routes as a client sees them: (status, headers, document)."""

    def __init__(self, app, passwords):
        self._transport = InProcessTransport(app, BASE)
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
def wire(app, passwords):
    return Wire(app, passwords)
