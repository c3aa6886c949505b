"""A plane that serves images alone, and its routes as clients see them."""

import json

import pytest

from tests.plane import InProcessPlane

PATCH = "application/openstack-images-v2.1-json-patch"


class Wire:
    """The routes as clients of several projects see them: (status, headers, document or bytes)."""

    def __init__(self, transport):
        self._transport = transport

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
def plane(tmp_path, clock, ids):
    with InProcessPlane(tmp_path, "image", clock=clock, ids=ids) as plane:
        yield plane


@pytest.fixture
def wire(plane):
    return Wire(plane.transport())
