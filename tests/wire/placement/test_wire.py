"""The wire format except documents: errors, headers, versions, policy. Measured on Placement 16.0.0.

tests/conformance runs the upstream suite (1,316 requests); these tests cover what the suite does not assert.
"""

from dataclasses import replace

import pytest

from moorage.placement.service.deps import PlacementSettings
from tests.plane import URL

UUID = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"


def test_the_versions_need_no_token(wire):
    status, headers, document = wire.send("GET", "/", who=None, version=None)
    assert status == 200
    assert document["versions"][0]["max_version"] == "1.39"
    assert headers["openstack-api-version"] == "placement 1.0"
    assert wire.send("GET", "", who=None, version=None)[0] == 200, "with and without the slash"


def test_all_other_routes_need_a_token(wire):
    assert wire.send("GET", "/resource_providers", who=None)[0] == 401
    assert wire.send("GET", "/barnabas", who=None)[0] == 401


def test_a_refusal_names_the_policy_rule_in_upstreams_words(wire):
    status, _, detail = wire.fails("GET", f"/resource_providers/{UUID}/inventories", who="user", roles="member")
    assert status == 403
    assert detail == (
        "Access was denied to this resource.\n\n "
        "Policy does not allow placement:resource_providers:inventories:list to be performed.  "
    )


def test_only_services_may_reshape(wire):
    body = {"inventories": {UUID: {"resource_provider_generation": 0, "inventories": {}}}, "allocations": {}}
    assert wire.send("POST", "/reshaper", body)[0] == 403
    assert wire.send("POST", "/reshaper", body, who="nova", roles="service")[0] == 400


def test_readers_may_read_the_usages_of_their_own_project_only(wire):
    def status(path, **who):
        return wire.send("GET", path, **who)[0]

    assert status("/usages?project_id=red", who="alice:red", roles="reader") == 200
    assert status("/usages?project_id=blue", who="alice:red", roles="reader") == 403
    assert status("/usages?project_id=blue") == 200


def test_an_error_has_upstreams_words(wire):
    status, headers, document = wire.send("GET", f"/resource_providers/{UUID}", version="1.23")
    (error,) = document["errors"]
    assert status == 404
    assert error == {
        "status": 404,
        "title": "Not Found",
        "detail": f"The resource could not be found.\n\n No resource provider with uuid {UUID} found  ",
        "code": "placement.undefined_code",
        "request_id": headers["x-openstack-request-id"],
    }


def test_errors_have_no_codes_before_1_23(wire):
    _, _, document = wire.send("GET", f"/resource_providers/{UUID}", version="1.22")
    assert "code" not in document["errors"][0]


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("text/html", "text/html; charset=UTF-8"),
        ("text/html,application/json;q=0.9", "text/html; charset=UTF-8"),
        ("*/*", "application/json"),
        ("image/png", "text/plain; charset=UTF-8"),
    ],
)
def test_an_error_has_an_accepted_media_type(wire, accept, media_type):
    status, headers, _ = wire.send("GET", "/barnabas", accept=accept)
    assert (status, headers["content-type"]) == (404, media_type)


def test_a_client_that_does_not_accept_json_gets_406(wire):
    status, _, text = wire.send("GET", "/resource_providers", accept="text/plain")
    assert status == 406
    assert "Only application/json is provided" in text


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [("0.5", 406, "Unacceptable version header: 0.5"), ("1.40", 406, "1.40"), ("1.2.3", 400, "invalid version string")],
)
def test_an_invalid_microversion_is_refused_even_at_the_root(wire, version, status, words):
    answer, headers, document = wire.send("GET", "/", version=version, who=None)
    assert answer == status
    assert words in document["errors"][0]["detail"]
    assert "openstack-api-version" not in headers
    if status == 406:
        assert document["errors"][0]["max_version"] == "1.39"


def test_a_body_without_the_json_media_type_is_refused(wire):
    assert wire.send("POST", "/resource_providers", b"{}")[0] == 400
    status, _, detail = wire.fails("POST", "/resource_providers", b"{}", content_type="text/plain")
    assert status == 415
    assert detail.startswith("The request media type text/plain is not supported by this server.")
    assert wire.fails("PUT", f"/resource_providers/{UUID}")[0] == 415


def test_an_invalid_body_is_refused_with_the_words_of_jsonschema(wire):
    status, _, detail = wire.fails("POST", "/resource_providers", {"name": 1})
    assert status == 400
    assert "JSON does not validate: 1 is not of type 'string'" in detail
    assert "Failed validating 'type' in schema['properties']['name']" in detail
    assert "Malformed JSON: " in wire.fails("POST", "/resource_providers", b"{", content_type="application/json")[2]


def test_a_missing_provider_is_reported_before_an_invalid_body(wire):
    assert wire.fails("PUT", f"/resource_providers/{UUID}/inventories", {"bad": 1})[0] == 404


def test_locations_are_absolute_and_links_are_not(wire):
    status, headers, document = wire.send("POST", "/resource_providers", {"name": "host", "uuid": UUID})
    assert status == 200
    assert headers["location"] == f"{URL}/placement/resource_providers/{UUID}"
    assert {"rel": "self", "href": f"/placement/resource_providers/{UUID}"} in document["links"]


def test_the_links_depend_on_the_version(wire):
    wire.send("POST", "/resource_providers", {"name": "host", "uuid": UUID})

    def rels(version):
        document = wire.does("GET", f"/resource_providers/{UUID}", version=version)
        return [link["rel"] for link in document["links"]], "root_provider_uuid" in document

    assert rels("1.0") == (["self", "inventories", "usages"], False)
    assert rels("1.13") == (["self", "inventories", "usages", "aggregates", "traits", "allocations"], False)
    assert rels("1.14")[1]


def test_answers_have_times_from_1_15_on(wire):
    wire.send("POST", "/resource_providers", {"name": "host", "uuid": UUID})
    for version, present in (("1.14", False), ("1.15", True)):
        _, headers, _ = wire.send("GET", f"/resource_providers/{UUID}", version=version)
        assert ("last-modified" in headers) is present
        assert ("cache-control" in headers) is present
    assert headers["last-modified"] == "Sun, 01 Mar 2026 09:30:00 GMT"


def test_unsupported_methods_are_405(wire):
    status, headers, document = wire.send("DELETE", "/resource_providers", version=None)
    assert status == 405
    assert sorted(headers["allow"].split(", ")) == ["GET", "POST"]
    assert document["errors"][0]["detail"].startswith("The method DELETE is not allowed for this resource. \n\n ")
    assert wire.transport.send("HEAD", "/placement/resource_providers", {"x-auth-token": "admin"}).status == 405
    assert wire.send("GET", "/resource_providers/")[0] == 404
    assert wire.send("DELETE", f"/resource_providers/{UUID}/inventories", version="1.4")[0] == 405


def test_an_operation_of_a_later_version_is_not_found(wire):
    assert wire.send("GET", "/traits", version="1.5")[0] == 404
    assert wire.send("GET", "/allocation_candidates?resources=VCPU:1", version="1.9")[0] == 404
    assert wire.send("POST", "/reshaper", {}, version="1.29")[0] == 404


def test_a_uuid_in_a_body_may_lack_its_dashes(wire):
    document = wire.does("POST", "/resource_providers", {"name": "host", "uuid": UUID.replace("-", "")})
    assert document["uuid"] == UUID
    status, code, detail = wire.fails("POST", "/resource_providers", {"name": "host"})
    assert (status, code) == (409, "placement.duplicate_name")
    assert "Conflicting resource provider name: host already exists." in detail


def test_old_and_new_bodies_of_an_allocation_mean_the_same(wire):
    wire.send("POST", "/resource_providers", {"name": "host", "uuid": UUID})
    inventories = {"VCPU": {"total": 8}}
    wire.does(
        "PUT",
        f"/resource_providers/{UUID}/inventories",
        {"resource_provider_generation": 0, "inventories": inventories},
    )
    consumer = "00000000-0000-4000-8000-000000000001"
    owner = {"project_id": "red", "user_id": "alice"}
    one = {"resource_provider": {"uuid": UUID}, "resources": {"VCPU": 1}}
    by_provider = {UUID: {"resources": {"VCPU": 1}}}
    bodies = [
        ("1.0", {"allocations": [one]}),
        ("1.8", {"allocations": [one], **owner}),
        ("1.12", {"allocations": by_provider, **owner}),
        ("1.28", {"allocations": by_provider, **owner, "consumer_generation": 3}),
        ("1.38", {"allocations": by_provider, **owner, "consumer_generation": 4, "consumer_type": "INSTANCE"}),
    ]
    for version, body in bodies:
        assert wire.send("PUT", f"/allocations/{consumer}", body, version=version)[0] == 204, version
        assert wire.does("GET", f"/resource_providers/{UUID}/usages")["usages"] == {"VCPU": 1}
    document = wire.does("GET", f"/allocations/{consumer}")
    assert document == {
        "allocations": {UUID: {"resources": {"VCPU": 1}, "generation": 6}},
        **owner,
        "consumer_generation": 5,
        "consumer_type": "INSTANCE",
    }
    status, code, detail = wire.fails("PUT", f"/allocations/{consumer}", bodies[-1][1])
    assert (status, code) == (409, "placement.concurrent_update")
    assert "consumer generation conflict - expected 5 but got 4" in detail


def test_a_search_over_the_limit_of_work_is_refused(wire, client, service):
    service.candidates = replace(service.candidates, settings=PlacementSettings(max_search_steps=2000))
    root = client.create_provider("host")
    for number in range(12):
        device = client.create_provider(f"device{number}", parent_uuid=root.uuid)
        client.ensure_trait(f"CUSTOM_D{number}")
        generation = client.set_traits(device.uuid, 0, [f"CUSTOM_D{number}"])
        wire.does(
            "PUT",
            f"/resource_providers/{device.uuid}/inventories",
            {"resource_provider_generation": generation, "inventories": {"VGPU": {"total": 1}}},
        )
    groups = "&".join(f"resources{number}=VGPU:1" for number in range(1, 12))
    query = f"/allocation_candidates?{groups}&group_policy=isolate"
    document = wire.does("GET", f"{query}&limit=3")
    assert len(document["allocation_requests"]) == 3
    status, code, detail = wire.fails("GET", query)
    assert (status, code) == (400, "placement.query.too_complex")
    assert "set a limit" in detail
