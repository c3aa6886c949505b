"""A plane that serves Placement alone, and its routes as clients see them."""

import json

import pytest

from moorage.placement.client.placement_client import PlacementClient
from tests.plane import InProcessPlane


class Wire:
    """The routes as clients see them: (status, headers, document or text)."""

    def __init__(self, transport):
        self.transport = transport

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
        """The (status, code, detail) of a request that must be refused."""
        status, _, document = self.send(*args, **options)
        error = document["errors"][0]
        assert error["status"] == status
        return status, error.get("code"), error["detail"]

    def does(self, *args, **options):
        """The document of a request that must succeed."""
        status, _, document = self.send(*args, **options)
        assert 200 <= status < 300, document
        return document


@pytest.fixture
def plane(tmp_path, clock, ids):
    with InProcessPlane(tmp_path, "placement", clock=clock, ids=ids) as plane:
        yield plane


@pytest.fixture
def service(plane):
    return plane.service("placement")


@pytest.fixture
def wire(plane):
    return Wire(plane.transport())


@pytest.fixture
def client(plane):
    return PlacementClient(plane.client("placement", version="1.39"))
