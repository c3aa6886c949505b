"""Answers as in Nova: fields by microversion, errors, versions, lists."""

import json
from pathlib import Path

import pytest

from tests.plane import URL
from tests.wire.compute.conftest import IMAGE

FIELDS = json.loads((Path(__file__).parent / "fields.json").read_text())


@pytest.fixture
def server_id(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    return server_id


@pytest.mark.parametrize("version", ["2.1", "2.47", "2.96"])
def test_a_server_has_the_fields_of_its_microversion(plane, server_id, version):
    """Recorded from Nova 34 (`fields.json`)."""
    assert sorted(plane.show(server_id, version=version)) == FIELDS[f"server {version}"]


@pytest.mark.parametrize("version", ["2.1", "2.96"])
def test_a_flavor_has_the_fields_of_its_microversion(plane, version):
    plane.flavor("small")
    flavor = plane.send("GET", "/v2.1/flavors/small", version=version)[2]["flavor"]
    assert sorted(flavor) == FIELDS[f"flavor {version}"]


@pytest.mark.parametrize("version", ["2.1", "2.96"])
def test_a_hypervisor_has_the_fields_of_its_microversion(plane, host, version):
    listed = plane.admin("GET", "/v2.1/os-hypervisors/detail", version=version)[2]["hypervisors"]
    assert sorted(listed[0]) == FIELDS[f"hypervisor {version}"]
    assert isinstance(listed[0]["id"], int if version == "2.1" else str)


def test_version_documents_need_no_token(plane):
    for path in ("/", "/v2.1", "/v2.1/"):
        assert plane.send("GET", path, who=None, version=None)[0] == 200
    root = plane.send("GET", "/", who=None)[2]["versions"][0]
    assert (root["id"], root["version"], root["min_version"]) == ("v2.1", "2.100", "2.1")
    assert root["links"] == [{"rel": "self", "href": f"{URL}/compute/v2.1/"}]
    assert plane.send("GET", "/v2.1/servers", who=None)[0] == 401


def test_both_version_headers_are_accepted_and_returned(plane):
    status, headers, _ = plane.send(
        "GET", "/v2.1/flavors", version=None, X_OpenStack_Nova_API_Version="2.60", who="alice:red"
    )
    assert status == 200
    assert headers["openstack-api-version"] == "compute 2.60"
    assert headers["x-openstack-nova-api-version"] == "2.60"
    assert headers["vary"] == "OpenStack-API-Version, X-OpenStack-Nova-API-Version"
    status, _, document = plane.send("GET", "/v2.1/flavors", version="2.101")
    assert (status, next(iter(document))) == (406, "computeFault")
    status, _, document = plane.send("GET", "/v2.1/flavors", version="two")
    assert (status, next(iter(document))) == (400, "badRequest")


def test_errors_have_novas_names(plane):
    def name(method, path, body=None, **options):
        status, _, document = plane.send(method, path, body, **options)
        (name, fault), *_ = document.items()
        assert fault["code"] == status
        return status, name

    assert name("GET", "/v2.1/servers/nope") == (404, "itemNotFound")
    assert name("GET", "/v2.1/nope") == (404, "itemNotFound")
    assert name("GET", "/v2.1/os-hypervisors") == (403, "forbidden")
    assert name("DELETE", "/v2.1/servers") == (405, "badMethod")
    assert name("POST", "/v2.1/servers", {"server": {}}) == (400, "badRequest")
    volume = {"name": "v", "flavorRef": "small", "imageRef": IMAGE, "networks": [{"uuid": IMAGE}]}
    assert name("POST", "/v2.1/servers", {"server": volume}) == (501, "notImplemented")
    assert name("GET", "/v2.1/servers", who=None) == (401, "unauthorized")


def test_errors_of_the_schema_name_the_field_and_the_value(plane):
    body = {"server": {"name": "", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}}
    message = plane.send("POST", "/v2.1/servers", body)[2]["badRequest"]["message"]
    assert message.startswith("Invalid input for field/attribute name. Value: .")


def test_another_projects_server_is_not_found(plane, host, server_id):
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/action"), ("GET", "/metadata")):
        body = {"os-stop": None} if method == "POST" else None
        status, _, document = plane.send(method, f"/v2.1/servers/{server_id}{path}", body, who="eve:blue")
        assert (status, document["itemNotFound"]["message"]) == (404, f"Instance {server_id} could not be found.")


def test_hosts_are_shown_to_administrators_only(plane, host, server_id):
    own = plane.send("GET", f"/v2.1/servers/{server_id}")[2]["server"]
    assert not [key for key in own if key.startswith("OS-EXT-SRV-ATTR")]
    assert own["hostId"] == plane.show(server_id)["hostId"] != ""


def test_lists_of_servers_are_filtered(plane, host):
    plane.flavor("small")
    plane.flavor("large", vcpus=2)
    mine = plane.boot("small", "web-1")
    plane.boot("large", "web-2")
    plane.boot("small", "db", who="eve:blue")
    plane.settle(host)
    plane.act(mine, "os-stop")
    host.work()

    def names(query, **options):
        status, _, document = plane.send("GET", f"/v2.1/servers/detail?{query}", **options)
        assert status == 200, document
        return sorted(server["name"] for server in document["servers"])

    everything = (
        "flavor=None&image=None&name=None&project_id=None&reservation_id=None&status=None&user_id=None&deleted=False"
        "&host=None&ip=None&ip6=None&changes-since=None&changes-before=None"
    )
    assert names(everything) == ["web-1", "web-2"]
    assert names("name=web") == ["web-1", "web-2"]
    assert names("name=^web-1$") == ["web-1"]
    assert names("name=(a%2B)%2B$") == []
    assert names("status=SHUTOFF") == ["web-1"]
    assert names("status=active") == ["web-2"]
    assert names("flavor=large") == ["web-2"]
    assert names("ip=10.0.0.1") == []
    assert names("sort_key=display_name&sort_dir=asc&limit=1") == ["web-1"]
    assert plane.send("GET", "/v2.1/servers?all_tenants=True")[0] == 403
    admin = {"who": "root:admin", "roles": "admin"}
    assert names("all_tenants=True", **admin) == ["db", "web-1", "web-2"]
    assert names("all_tenants=True&project_id=blue", **admin) == ["db"]
    assert names("all_tenants=True&host=compute-1&flavor=small", **admin) == ["db", "web-1"]
    assert names("all_tenants=True&host=other", **admin) == []
    assert names("", **admin) == []


def test_servers_are_listed_in_pages(plane):
    plane.flavor("small")
    for number in range(5):
        plane.boot("small", f"vm{number}")
        plane.clock.sleep(1)
    path, seen = "/v2.1/servers?limit=2", []
    while path:
        document = plane.send("GET", path)[2]
        seen += [server["name"] for server in document["servers"]]
        following = document.get("servers_links")
        path = following and following[0]["href"].removeprefix(f"{URL}/compute")
    assert seen == ["vm4", "vm3", "vm2", "vm1", "vm0"]
    assert plane.send("GET", "/v2.1/servers?marker=nope")[0] == 400
