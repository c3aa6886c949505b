"""The published document has the routes of the service, and answers conform to it."""

import jsonschema
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from moorage.network.routes import ABSENT, API, DOCUMENT_PATH

S = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


@pytest.fixture
def published(wire):
    status, body = wire.send("GET", DOCUMENT_PATH)
    assert status == 200
    return body


def test_the_document_has_every_route_that_is_not_refused_by_name(published):
    operations = {f"{method.upper()} {path}" for path, methods in published["paths"].items() for method in methods}
    absent = tuple(f"/v2.0/{name}" for name in ABSENT)
    assert operations == {f"{route.method} {route.path}" for route in API.routes if not route.path.startswith(absent)}


def test_the_document_is_valid_and_needs_no_token(wire, published):
    jsonschema_rs.validator_for(OPENAPI_31).validate(published)
    assert wire.plane.send("GET", f"/network{DOCUMENT_PATH}", who=None, roles=None).status == 200


def test_answers_conform_to_the_document(wire, published):
    def ask(method, template, body=None, *, query="", send=wire.operate, **ids):
        status, answer = send(method, template.format(**ids) + query, body)
        responses = published["paths"][template][method.lower()]["responses"]
        said = responses[str(status)]
        if "$ref" in said:
            said = published["components"]["responses"]["Refusal"]
        if "content" in said:
            schema = said["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator(schema).validate(answer)
        return status, answer

    flat = {"name": "n", "provider:network_type": "flat", "provider:physical_network": "br7"}
    network = ask("POST", "/v2.0/networks", {"network": flat})[1]["network"]["id"]
    wanted = {"network_id": network, "cidr": "203.0.113.0/24"}
    subnet = ask("POST", "/v2.0/subnets", {"subnet": wanted})[1]["subnet"]["id"]
    port = ask("POST", "/v2.0/ports", {"port": {"network_id": network}})[1]["port"]["id"]
    ids = {"network_id": network, "subnet_id": subnet, "port_id": port, "server_id": S, "alias": "provider"}
    for kind in ("network", "subnet", "port"):
        for send in (wire.operate, wire.send):
            assert ask("GET", f"/v2.0/{kind}s", send=send)[0] == 200
        assert ask("GET", f"/v2.0/{kind}s", query="?limit=1&fields=id")[0] == 200
        assert ask("GET", f"/v2.0/{kind}s", query="?none=1")[0] == 400
        item = f"/v2.0/{kind}s/{{{kind}_id}}"
        assert ask("GET", item, **ids)[0] == 200
        assert ask("PUT", item, {kind: {"name": "new"}}, **ids)[0] == 200
        assert ask("PUT", item, {kind: {"x": 1}}, **ids)[0] == 400
        assert ask("GET", item, **dict.fromkeys(ids, S))[0] == 404
        assert ask("DELETE", item, send=wire.send, **dict.fromkeys(ids, S))[0] in (403, 404)
    assert ask("DELETE", "/v2.0/networks/{network_id}", **ids)[0] == 409
    assert ask("DELETE", "/v2.0/ports/{port_id}", **ids)[0] == 204
    made = {"id": port, "project_id": "admin", "server_id": S, "host": "compute-1", "network_id": network}
    assert ask("PUT", "/moorage/v1/server-ports", {"ports": [made]}, send=wire.serve)[0] == 200
    learned = {"port_id": port, "server_id": S, "host": "compute-1", "mac": "fa:16:3e:00:00:01", "addresses": []}
    assert ask("PUT", "/moorage/v1/learned-addresses", {"ports": [learned]}, send=wire.serve)[0] == 200
    for path in ("server-ports/{server_id}/{port_id}", "server-ports/{server_id}"):
        assert ask("DELETE", f"/moorage/v1/{path}", send=wire.serve, **ids)[0] == 204
    for path in (
        "/", "/v2.0", "/v2.0/", "/v2.0/extensions", "/v2.0/extensions/{alias}", "/v2.0/quotas/{project_id}",
        "/v2.0/quotas/{project_id}/details", "/v2.0/quotas/{project_id}/details.json",
    ):  # fmt: skip
        assert ask("GET", path, project_id="red", **ids)[0] == 200
    for kind in ("subnet", "network"):
        assert ask("DELETE", f"/v2.0/{kind}s/{{{kind}_id}}", **ids)[0] == 204
