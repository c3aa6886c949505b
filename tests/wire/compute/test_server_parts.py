"""Sub-resources of a server: tags, pages of actions, lists that are always empty, and missing functions."""

import pytest

from moorage.compute.api.handlers import unsupported_routes
from moorage.compute.store.tables import moves
from tests.wire.compute.conftest import IMAGE


@pytest.fixture
def server_id(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.settle(host)
    return server_id


def test_tags_are_set_added_checked_and_removed(plane, server_id):
    path = f"/v2.1/servers/{server_id}/tags"
    assert plane.send("PUT", path, {"tags": ["web", "blue"]})[2] == {"tags": ["web", "blue"]}
    status, headers, _ = plane.send("PUT", f"{path}/third")
    assert (status, headers["location"].rpartition("/")[2]) == (201, "third")
    assert plane.send("PUT", f"{path}/third")[0] == 204
    assert plane.send("GET", f"{path}/third")[0] == 204
    assert plane.send("DELETE", f"{path}/web")[0] == 204
    assert plane.send("DELETE", f"{path}/web")[0] == plane.send("GET", f"{path}/web")[0] == 404
    assert plane.send("GET", path)[2] == {"tags": ["blue", "third"]}
    assert plane.send("PUT", f"{path}/a,b")[0] == 400
    assert plane.send("PUT", path, {"tags": ["x" * 61]})[0] == 400
    assert plane.send("DELETE", path)[0] == 204
    assert plane.send("GET", path)[2] == {"tags": []}
    assert plane.send("PUT", path, {"tags": [f"t{number}" for number in range(50)]})[0] == 200
    assert plane.send("PUT", f"{path}/one-more")[0] == 400
    assert plane.send("GET", path, version="2.25")[0] == 404
    assert plane.send("PUT", f"{path}/x", who="eve:blue")[0] == 404


@pytest.mark.parametrize("tag", ["%0d%0aset-cookie%3a%20a%3db", "%e6%97%a5%e6%9c%ac", "a%20b"])
def test_a_tag_cannot_inject_a_header_and_is_quoted_in_its_url(plane, server_id, tag):
    """The tag's URL is in a header, which is one line of latin-1."""
    path = f"/v2.1/servers/{server_id}/tags/{tag}"
    status, headers, _ = plane.send("PUT", path)
    assert status == 201
    assert headers["location"].lower().endswith(path)
    assert "set-cookie" not in headers
    assert plane.send("GET", path)[0] == 204


def test_a_server_being_built_accepts_no_tags(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    status, _, document = plane.send("PUT", f"/v2.1/servers/{server_id}/tags/web")
    assert status == 409
    assert "while it is in vm_state building" in document["conflictingRequest"]["message"]


def test_servers_are_found_by_their_tags(plane, host):
    plane.flavor("small")
    for name, tags in (("one", ["a"]), ("two", ["a", "b"]), ("three", [])):
        plane.boot("small", name, tags=tags)

    def names(query):
        return sorted(row["name"] for row in plane.send("GET", f"/v2.1/servers?{query}")[2]["servers"])

    assert names("tags=a,b") == ["two"]
    assert names("tags-any=a,b") == ["one", "two"]
    assert names("not-tags=a,b") == ["one", "three"]
    assert names("not-tags-any=a,b") == ["three"]


def test_a_period_of_changes_includes_the_second_that_is_shown(plane, host):
    """Clients send back the time that they are shown, which has no fraction of a second."""
    plane.clock.sleep(0.7)
    host.offer(VCPU=1, MEMORY_MB=512, DISK_GB=1)
    plane.boot(plane.flavor("small"))
    plane.settle(host)

    def count(path, query, **options):
        status, _, document = plane.admin("GET", f"/v2.1/{path}?{query}", version="2.66", **options)
        assert status == 200, document
        return len(next(iter(document.values())))

    (row,) = plane.admin("GET", "/v2.1/servers/detail?all_tenants=1")[2]["servers"]
    shown = row["updated"]
    assert plane.clock.now().microsecond, "otherwise the test shows nothing"
    assert count("servers", f"all_tenants=1&changes-before={shown}") == 1
    assert count("servers", f"all_tenants=1&changes-since={shown}&changes-before={shown}") == 1
    assert count("servers", f"all_tenants=1&changes-before={shown[:-1]}.000001Z") == 0, "a fraction is taken exactly"
    assert count("servers", "all_tenants=1&changes-before=2020-01-01T00:00:00Z") == 0
    later = f"all_tenants=1&changes-since=2999-01-01T00:00:00Z&changes-before={shown}"
    assert plane.admin("GET", f"/v2.1/servers?{later}", version="2.66")[0] == 400
    plane.send("DELETE", f"/v2.1/servers/{row['id']}")
    plane.settle(host)
    assert count("servers", "all_tenants=1&changes-before=2999-01-01T00:00:00Z") == 1, "deletions are changes"
    assert count("servers", "all_tenants=1") == 0


def test_actions_are_listed_in_pages_and_by_period(plane, host, server_id):
    path = f"/v2.1/servers/{server_id}/os-instance-actions"
    for action in ("os-stop", "os-start", "pause"):
        plane.clock.sleep(10)
        plane.act(server_id, action)
        plane.settle(host)
    first = plane.send("GET", f"{path}?limit=3", version="2.58")[2]
    assert [row["action"] for row in first["instanceActions"]] == ["pause", "start", "stop"]
    assert first["links"][0]["rel"] == "next"
    rest = first["links"][0]["href"].partition("/compute")[2]
    assert [row["action"] for row in plane.send("GET", rest, version="2.58")[2]["instanceActions"]] == ["create"]
    since = first["instanceActions"][1]["start_time"]
    later = plane.send("GET", f"{path}?changes-since={since}", version="2.58")[2]["instanceActions"]
    assert [row["action"] for row in later] == ["pause", "start"]
    between = plane.send("GET", f"{path}?changes-since={since}&changes-before={since}", version="2.66")[2]
    assert [row["action"] for row in between["instanceActions"]] == ["start"]
    second = since.partition(".")[0]
    until = plane.send("GET", f"{path}?changes-before={second}", version="2.66")[2]["instanceActions"]
    assert [row["action"] for row in until] == ["start", "stop", "create"]
    assert plane.send("GET", f"{path}?changes-before=2020-01-01T00:00:00Z&changes-since={since}")[0] == 400
    assert plane.send("GET", f"{path}?marker=nope", version="2.58")[0] == 400
    assert plane.send("GET", f"{path}?offset=1", version="2.58")[0] == 400
    assert "updated_at" not in plane.send("GET", path, version="2.57")[2]["instanceActions"][0]


@pytest.mark.parametrize(
    ("part", "answer"),
    [
        ("ips", {"addresses": {}}),
        ("os-interface", {"interfaceAttachments": []}),
        ("os-volume_attachments", {"volumeAttachments": []}),
        ("os-security-groups", {"security_groups": []}),
        ("topology", {"nodes": [], "pagesize_kb": None}),
        ("os-server-password", {"password": ""}),
    ],
)
def test_lists_of_unsupported_parts_are_empty(plane, server_id, part, answer):
    assert plane.send("GET", f"/v2.1/servers/{server_id}/{part}")[2] == answer
    assert plane.send("GET", f"/v2.1/servers/{server_id}/{part}", who="eve:blue")[0] == 404


def test_diagnostics_show_the_known_values_of_a_guest(plane, host, server_id):
    path = f"/v2.1/servers/{server_id}/diagnostics"
    body = plane.admin("GET", path)[2]
    assert (body["state"], body["num_cpus"], body["memory_details"]["maximum"]) == ("running", 1, 512)
    assert plane.admin("GET", path, version="2.47")[0] == 501
    assert plane.send("GET", path)[0] == 403


@pytest.mark.parametrize("path", ["/os-networks", "/os-networks/1", "/os-tenant-networks"])
def test_novas_networks_are_gone_and_the_message_names_the_service_that_has_them(plane, path):
    status, _, document = plane.send("GET", f"/v2.1{path}")
    assert (status, "use the network service" in next(iter(document.values()))["message"]) == (410, True)


@pytest.mark.parametrize("row", unsupported_routes.UNSUPPORTED_ROUTES, ids=lambda row: f"{row.methods} {row.path}")
def test_an_unsupported_function_is_refused_with_a_message(plane, row):
    path = "/v2.1" + "/".join("x" if part.startswith("{") else part for part in row.path.split("/"))
    version = f"2.{row.since or row.until or 60}"
    for method in row.methods.split():
        status, _, document = plane.send(method, path, {} if method in ("POST", "PUT") else None, version=version)
        ((_, fault),) = document.items()
        assert (status, fault["message"]) == (row.status, row.message)
        if row.until is not None:
            assert plane.send(method, path, version=f"2.{row.until + 1}")[0] == 404


def test_extensions_are_listed_and_shown(plane):
    listed = plane.send("GET", "/v2.1/extensions")[2]["extensions"]
    shown = plane.send("GET", f"/v2.1/extensions/{listed[0]['alias']}")[2]["extension"]
    assert shown == listed[0]
    assert plane.send("GET", "/v2.1/extensions/nope")[0] == 404


def test_migrations_are_listed_by_microversion_and_filter(plane, host, server_id):
    """The rows are as operations write them, the answers as Nova's API documents them."""
    moment = plane.clock.now()
    row = {
        "kind": "migration", "status": "done", "is_open": False, "source_host": "compute-1", "dest_host": "compute-2",
        "old_state": "active", "old_flavor": {}, "new_flavor": {}, "details": {}, "user_id": "alice",
        "project_id": "red", "created_at": moment, "updated_at": moment, "server_id": server_id,
    }  # fmt: skip
    with plane.engine.begin() as connection:
        for number in (1, 2):
            connection.execute(moves.insert(), row | {"id": f"00000000-0000-4000-8000-00000000000{number}"})
        live = {"kind": "live-migration", "is_open": True, "status": "running"}
        connection.execute(moves.insert(), row | live | {"id": "00000000-0000-4000-8000-000000000003"})
    first = plane.admin("GET", "/v2.1/os-migrations?limit=2", version="2.80")[2]
    assert [one["id"] for one in first["migrations"]] == [3, 2]
    assert sorted(first["migrations"][0]) == [
        "created_at", "dest_compute", "dest_host", "dest_node", "id", "instance_uuid", "migration_type",
        "new_instance_type_id", "old_instance_type_id", "project_id", "source_compute", "source_node", "status",
        "updated_at", "user_id", "uuid",
    ]  # fmt: skip
    rest = first["migrations_links"][0]["href"].partition("/compute")[2]
    assert [one["id"] for one in plane.admin("GET", rest, version="2.80")[2]["migrations"]] == [1]
    assert "migration_type" not in plane.admin("GET", "/v2.1/os-migrations", version="2.22")[2]["migrations"][0]

    def ids(query):
        return [
            one["id"] for one in plane.admin("GET", f"/v2.1/os-migrations?{query}", version="2.80")[2]["migrations"]
        ]

    assert ids(f"instance_uuid={server_id}&status=done") == [2, 1]
    assert ids("host=compute-2&migration_type=live-migration") == [3]
    assert ids("host=compute-3") == ids("project_id=blue") == []
    assert plane.send("GET", "/v2.1/os-migrations")[0] == 403
    going_on = plane.admin("GET", f"/v2.1/servers/{server_id}/migrations", version="2.23")[2]["migrations"]
    assert [(one["id"], one["server_uuid"]) for one in going_on] == [(3, server_id)]
    shown = f"/v2.1/servers/{server_id}/migrations"
    assert plane.admin("GET", f"{shown}/3", version="2.23")[2]["migration"] == going_on[0]
    assert plane.admin("GET", f"{shown}/1", version="2.23")[0] == 404


def test_the_hosts_job_has_the_guests_metadata_and_user_data(plane, host):
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq58IlCWeEZskehFJsXerpeqXANAIKO2SOIJWaMJ2VT"
    plane.send("POST", "/v2.1/os-keypairs", {"keypair": {"name": "mine", "public_key": key}})
    told = {"user_data": "aGVsbG8=", "metadata": {"a": "b"}, "key_name": "mine", "hostname": "web-1"}
    plane.boot(plane.flavor("small"), "with", config_drive=True, **told)
    plane.boot("small", "without")
    plane.send("DELETE", "/v2.1/os-keypairs/mine")  # the server has a copy of it
    plane.settle(host)
    guests = {payload["server"]["name"]: payload["server"]["guest"] for payload in host.built}
    assert guests["without"] is None
    assert guests["with"]["public_keys"] == {"mine": key}
    assert (guests["with"]["hostname"], guests["with"]["metadata"]) == ("web-1", {"a": "b"})
    assert guests["with"]["user_data"] == "aGVsbG8="


def test_a_rebuilt_server_gets_the_key_of_the_user_who_rebuilds_it(plane, host):
    """Or no key, or its old one; key pairs of other users are not found."""
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq58IlCWeEZskehFJsXerpeqXANAIKO2SOIJWaMJ2VT"
    for who in ("alice", "carol"):
        body = {"keypair": {"name": f"of-{who}", "public_key": f"{key} {who}"}}
        assert plane.send("POST", "/v2.1/os-keypairs", body, who=f"{who}:red")[0] == 201
    server_id = plane.boot(plane.flavor("small"), config_drive=True, key_name="of-alice")
    plane.settle(host)

    def rebuilt(**key):
        """The guest's metadata after a rebuild."""
        status, _, document = plane.act(server_id, "rebuild", {"imageRef": IMAGE, **key}, who="carol:red")
        if status == 400:
            return document["badRequest"]["message"]
        (job,) = host.claim()
        host.report(job)
        assert document["server"]["key_name"] == plane.show(server_id)["key_name"]
        return job.payload["server"]["guest"]["public_keys"]

    assert rebuilt() == {"of-alice": f"{key} alice"}
    assert rebuilt(key_name="of-alice") == rebuilt(key_name="nobodys") == "Invalid key_name provided."
    assert rebuilt(key_name="of-carol") == {"of-carol": f"{key} carol"}
    assert rebuilt(key_name=None) == {}
