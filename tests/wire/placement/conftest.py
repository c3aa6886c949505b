import json

import pytest

from moorage.core.ids import SeededIds
from moorage.db.migrations import upgrade
from moorage.identity.authenticators import TestTokens
from moorage.placement.client import PlacementClient
from moorage.placement.routes import API, RULES
from moorage.placement.service import PlacementService
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport

BASE = "http://cloud.example:8778"


class Wire:
    """The routes as clients see them: (status, headers, document or text)."""

    def __init__(self, app):
        self.transport = InProcessTransport(app, BASE)

    def send(self, method, path, body=None, *, version="1.39", who="admin", roles=None, **headers):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who is not None:
            sent["x-auth-token"] = who
        if roles is not None:
            sent["x-roles"] = roles
        if version is not None:
            sent["openstack-api-version"] = f"placement {version}"
        data = body if isinstance(body, bytes) else None
        if body is not None and data is None:
            data = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        answer = self.transport.send(method, f"/placement{path}", sent, data)
        is_json = answer.headers.get("content-type", "") == "application/json"
        return answer.status, answer.headers, json.loads(answer.body) if is_json else answer.body.decode()

    def fails(self, *args, **options):
        """(status, code, detail) of a refusal."""
        status, _, document = self.send(*args, **options)
        error = document["errors"][0]
        assert error["status"] == status
        return status, error.get("code"), error["detail"]

    def does(self, *args, **options):
        """The document of a success."""
        status, _, document = self.send(*args, **options)
        assert 200 <= status < 300, document
        return document


class Admin:
    def headers(self, *, renew=False):
        return {"x-auth-token": "admin"}


@pytest.fixture
def service(sqlite_engine, clock, ids):
    upgrade(sqlite_engine, "placement")
    # No watch is held open: whoever asks for events gets what there is.
    service = PlacementService(sqlite_engine, clock, ids, watchers=0)
    service.start()
    return service


@pytest.fixture
def app(service):
    return mount({"/placement": build(API, service, Surroundings(TestTokens(), RULES, SeededIds(2)))})


@pytest.fixture
def wire(app):
    return Wire(app)


@pytest.fixture
def client(app):
    http = ServiceClient(
        InProcessTransport(app, f"{BASE}/placement"), service_type="placement", version="1.39", credentials=Admin()
    )
    return PlacementClient(http)
