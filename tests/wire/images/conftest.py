import json

import pytest

from moorage.core.ids import SeededIds
from moorage.identity.authenticators import TestTokens
from moorage.images.directory import ImageDirectory
from moorage.images.routes import API, RULES
from moorage.images.service import ImageService
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.transports import InProcessTransport

BASE = "http://cloud.example:8778"
PATCH = "application/openstack-images-v2.1-json-patch"


class Wire:
    """The routes as clients of several projects see them: (status, headers, document or bytes)."""

    def __init__(self, app):
        self._transport = InProcessTransport(app, BASE)

    def send(
        self,
        method,
        path,
        body=None,
        *,
        who="alice:red",
        roles="member",
        kind=None,
        accept="application/json",
        **headers,
    ):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"accept": accept}
        if who is not None:
            sent |= {"x-auth-token": who, "x-roles": roles}
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            kind = kind or "application/json"
        if kind:
            sent["content-type"] = kind
        answer = self._transport.send(method, f"/image{path}", sent, body)
        is_json = answer.headers.get("content-type", "") == "application/json"
        return answer.status, answer.headers, json.loads(answer.body) if is_json else answer.body

    def create(self, **body):
        who, roles = body.pop("who", "alice:red"), body.pop("roles", "member")
        body = {"disk_format": "raw", "container_format": "bare"} | body
        status, _, document = self.send("POST", "/v2/images", body, who=who, roles=roles)
        assert status == 201, document
        return document

    def patch(self, image_id, *operations, **options):
        return self.send("PATCH", f"/v2/images/{image_id}", list(operations), kind=PATCH, **options)

    def upload(self, image_id, data, **options):
        return self.send("PUT", f"/v2/images/{image_id}/file", data, kind="application/octet-stream", **options)

    def names(self, query="", **options):
        status, _, document = self.send("GET", f"/v2/images{query}", **options)
        assert status == 200, document
        return [row["name"] for row in document["images"]]


@pytest.fixture
def directory(tmp_path, clock, ids):
    return ImageDirectory(tmp_path / "images", clock=clock, ids=ids)


@pytest.fixture
def app(directory, clock):
    around = Surroundings(TestTokens(), RULES, SeededIds(2))
    return mount({"/image": build(API, ImageService(directory, clock=clock, ids=SeededIds(3)), around)})


@pytest.fixture
def wire(app):
    return Wire(app)
