"""Each resource of the API: a successful request and its refusals."""

import pytest

ROOT = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
CHILD = "5e28e52b-941e-48c3-a2d8-5fa0d1bf722f"
AGGREGATE = "6f39f63c-a52f-49d4-b3e9-60b1e2c0833a"
CONSUMERS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(4)]
URL = f"/resource_providers/{ROOT}"


@pytest.fixture
def host(wire):
    """ROOT with VCPU 8 and DISK_GB 100, and below it CHILD with two VGPUs."""
    wire.does("POST", "/resource_providers", {"name": "host", "uuid": ROOT})
    wire.does("POST", "/resource_providers", {"name": "gpu", "uuid": CHILD, "parent_provider_uuid": ROOT})
    wire.does("PUT", f"{URL}/inventories", offer(0, VCPU={"total": 8}, DISK_GB={"total": 100, "reserved": 10}))
    wire.does("PUT", f"/resource_providers/{CHILD}/inventories", offer(0, VGPU={"total": 2}))
    return wire


def offer(generation, **inventories):
    return {"resource_provider_generation": generation, "inventories": inventories}


def hold(wire, consumer, provider, kind="INSTANCE", project="red", **resources):
    body = {
        "allocations": {provider: {"resources": resources}},
        "project_id": project,
        "user_id": "alice",
        "consumer_generation": None,
        "consumer_type": kind,
    }
    assert wire.send("PUT", f"/allocations/{consumer}", body)[0] == 204


# --- providers --------------------------------------------------------------------------------------------------


def names(wire, query, version="1.39"):
    document = wire.does("GET", f"/resource_providers?{query}", version=version)
    return sorted(provider["name"] for provider in document["resource_providers"])


def test_providers_are_listed_by_each_filter(host):
    generation = host.does("GET", URL)["generation"]
    body = {"traits": ["HW_CPU_X86_AVX2"], "resource_provider_generation": generation}
    generation = host.does("PUT", f"{URL}/traits", body)["resource_provider_generation"]
    body = {"aggregates": [AGGREGATE], "resource_provider_generation": generation}
    host.does("PUT", f"{URL}/aggregates", body)
    assert names(host, "") == ["gpu", "host"]
    assert names(host, "name=gpu") == ["gpu"]
    assert names(host, f"uuid={ROOT}") == ["host"]
    assert names(host, f"uuid={AGGREGATE}") == []
    assert names(host, f"in_tree={CHILD}") == ["gpu", "host"]
    assert names(host, f"in_tree={AGGREGATE}") == []
    assert names(host, f"in_tree={CHILD}&uuid={ROOT}") == ["host"]
    assert names(host, "resources=VCPU:8") == ["host"]
    assert names(host, "resources=VCPU:9") == []
    assert names(host, "resources=DISK_GB:91") == [], "10 are reserved"
    assert names(host, "resources=FPGA:1") == []
    assert names(host, "required=HW_CPU_X86_AVX2") == ["host"]
    assert names(host, "required=!HW_CPU_X86_AVX2") == ["gpu"]
    assert names(host, f"member_of={AGGREGATE}") == ["host"]
    assert names(host, f"member_of=!{AGGREGATE}") == ["gpu"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("uuid=x", "Invalid query string parameters: 'x' is not a 'uuid'"),
        ("color=blue", "Additional properties are not allowed ('color' was unexpected)"),
        ("resources=CUSTOM_NO:1", "Invalid resource class in resources parameter: No such resource class CUSTOM_NO."),
        ("required=CUSTOM_NO", 'Invalid trait(s) in "required" parameter: No such trait(s): CUSTOM_NO.'),
    ],
)
def test_invalid_filters_are_refused(wire, query, words):
    status, _, detail = wire.fails("GET", f"/resource_providers?{query}")
    assert status == 400
    assert words in detail


def test_a_provider_is_renamed_and_moved(host):
    other = host.does("POST", "/resource_providers", {"name": "other"})["uuid"]
    assert host.send("POST", "/resource_providers", {"name": "old"}, version="1.19")[0] == 201
    moved = host.does("PUT", f"/resource_providers/{CHILD}", {"name": "gpu2", "parent_provider_uuid": other})
    assert (moved["name"], moved["root_provider_uuid"]) == ("gpu2", other)
    body = {"name": "gpu2", "parent_provider_uuid": ROOT}
    status, _, detail = host.fails("PUT", f"/resource_providers/{CHILD}", body, version="1.36")
    assert status == 400
    assert "re-parenting a provider is not currently allowed." in detail
    body = {"name": "gpu2", "parent_provider_uuid": None}
    assert "un-parenting" in host.fails("PUT", f"/resource_providers/{CHILD}", body, version="1.36")[2]
    assert host.fails("PUT", f"/resource_providers/{CHILD}", {"name": "host"})[:2] == (409, "placement.duplicate_name")
    body = {"name": "x", "parent_provider_uuid": AGGREGATE}
    assert "parent provider UUID does not exist." in host.fails("PUT", f"/resource_providers/{CHILD}", body)[2]
    assert "parent provider UUID does not exist." in host.fails("POST", "/resource_providers", body)[2]
    body = {"name": "x", "uuid": AGGREGATE, "parent_provider_uuid": AGGREGATE}
    assert "cannot be same as UUID" in host.fails("POST", "/resource_providers", body)[2]
    assert host.send("DELETE", f"/resource_providers/{CHILD}")[0] == 204
    assert host.fails("DELETE", f"/resource_providers/{CHILD}")[0] == 404


# --- inventories ------------------------------------------------------------------------------------------------


def test_one_inventory_is_created_changed_and_deleted(host):
    status, headers, document = host.send("POST", f"{URL}/inventories", {"resource_class": "VGPU", "total": 4})
    assert status == 201
    assert headers["location"].endswith(f"{URL}/inventories/VGPU")
    assert document == {
        "total": 4,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 2147483647,
        "step_size": 1,
        "allocation_ratio": 1.0,
        "resource_provider_generation": 2,
    }
    assert host.fails("POST", f"{URL}/inventories", {"resource_class": "VGPU", "total": 4})[:2] == (
        409,
        "placement.concurrent_update",
    )
    body = {"total": 6, "allocation_ratio": 2, "resource_provider_generation": 2}
    assert host.does("PUT", f"{URL}/inventories/VGPU", body)["allocation_ratio"] == 2.0
    assert host.fails("PUT", f"{URL}/inventories/VGPU", body)[:2] == (409, "placement.concurrent_update")
    body["resource_provider_generation"] = 3
    assert "No inventory record" in host.fails("PUT", f"{URL}/inventories/FPGA", body)[2]
    assert host.does("GET", f"{URL}/inventories/VGPU")["total"] == 6
    assert host.send("DELETE", f"{URL}/inventories/VGPU")[0] == 204
    assert host.fails("GET", f"{URL}/inventories/VGPU")[0] == 404
    assert host.fails("DELETE", f"{URL}/inventories/VGPU")[0] == 404
    assert host.fails("DELETE", f"{URL}/inventories/NOTHING")[0] == 404


def test_before_1_26_reserved_must_be_less_than_the_total(host):
    body = {"resource_class": "VGPU", "total": 4, "reserved": 4}
    status, _, detail = host.fails("POST", f"{URL}/inventories", body, version="1.25")
    assert status == 400
    assert "The reserved value is greater than or equal to total." in detail
    assert host.send("POST", f"{URL}/inventories", body, version="1.26")[0] == 201
    body = offer(2, VGPU={"total": 4, "reserved": 5})
    assert "The reserved value is greater than total." in host.fails("PUT", f"{URL}/inventories", body)[2]


def test_a_refusal_names_the_inventories_in_use(host):
    hold(host, CONSUMERS[0], ROOT, VCPU=1, DISK_GB=1)
    status, code, detail = host.fails("DELETE", f"{URL}/inventories")
    assert (status, code) == (409, "placement.inventory.inuse")
    assert f"Inventory for 'VCPU, DISK_GB' on resource provider '{ROOT}' in use." in detail
    assert "Unable to delete inventory of class VCPU" in host.fails("DELETE", f"{URL}/inventories/VCPU")[2]
    body = offer(2, NOTHING={"total": 1})
    assert "Unknown resource class in inventory" in host.fails("PUT", f"{URL}/inventories", body)[2]
    assert host.send("DELETE", f"/allocations/{CONSUMERS[0]}")[0] == 204
    assert host.send("DELETE", f"{URL}/inventories")[0] == 204
    _, headers, document = host.send("GET", f"{URL}/inventories")
    assert document["inventories"] == {}
    assert "last-modified" not in headers


# --- names ------------------------------------------------------------------------------------------------------


def test_traits_are_listed_by_name_and_by_use(host):
    assert host.send("PUT", "/traits/CUSTOM_A")[0] == 201
    assert host.send("PUT", "/traits/CUSTOM_A")[0] == 204
    assert host.send("PUT", "/traits/CUSTOM_B")[0] == 201
    host.does("PUT", f"{URL}/traits", {"traits": ["CUSTOM_A"], "resource_provider_generation": 1})

    def listed(query):
        return host.does("GET", f"/traits?{query}")["traits"]

    assert listed("name=startswith:CUSTOM_") == ["CUSTOM_A", "CUSTOM_B"]
    assert listed("name=in:CUSTOM_B,HW_NUMA_ROOT,NOTHING") == ["HW_NUMA_ROOT", "CUSTOM_B"]
    assert listed("associated=true") == ["CUSTOM_A"]
    assert "CUSTOM_A" not in listed("associated=False")
    assert host.send("GET", "/traits/CUSTOM_A")[0] == 204
    assert host.fails("GET", "/traits/CUSTOM_C")[0] == 404
    assert "in use" in host.fails("DELETE", "/traits/CUSTOM_A")[2]
    assert host.send("DELETE", f"{URL}/traits")[0] == 204
    assert host.send("DELETE", "/traits/CUSTOM_A")[0] == 204
    assert host.fails("DELETE", "/traits/CUSTOM_A")[0] == 404
    assert "Badly formatted name parameter" in host.fails("GET", "/traits?name=x")[2]
    assert 'only accepts "true" or "false"' in host.fails("GET", "/traits?associated=x")[2]
    assert "The trait is invalid." in host.fails("PUT", "/traits/custom_a")[2]
    assert host.fails("GET", f"/resource_providers/{AGGREGATE}/traits")[0] == 404


def test_resource_classes_are_created_by_post_and_by_put(wire):
    status, headers, _ = wire.send("POST", "/resource_classes", {"name": "CUSTOM_A"})
    assert status == 201
    assert headers["location"].endswith("/resource_classes/CUSTOM_A")
    assert "already exists: CUSTOM_A" in wire.fails("POST", "/resource_classes", {"name": "CUSTOM_A"})[2]
    assert wire.does("GET", "/resource_classes/CUSTOM_A")["name"] == "CUSTOM_A"
    assert wire.send("PUT", "/resource_classes/CUSTOM_A")[0] == 204
    assert wire.send("PUT", "/resource_classes/CUSTOM_B")[0] == 201
    assert wire.fails("PUT", "/resource_classes/VCPU")[0] == 400
    renamed = wire.does("PUT", "/resource_classes/CUSTOM_B", {"name": "CUSTOM_C"}, version="1.6")
    assert renamed["name"] == "CUSTOM_C"
    assert wire.fails("PUT", "/resource_classes/CUSTOM_C", {"name": "CUSTOM_A"}, version="1.6")[0] == 409
    assert wire.fails("PUT", "/resource_classes/VCPU", {"name": "CUSTOM_Z"}, version="1.6")[0] == 400
    assert wire.fails("PUT", "/resource_classes/CUSTOM_Q", {"name": "CUSTOM_Z"}, version="1.6")[0] == 404
    listed = [one["name"] for one in wire.does("GET", "/resource_classes")["resource_classes"]]
    assert listed[0] == "VCPU"
    assert listed[-2:] == ["CUSTOM_A", "CUSTOM_C"]
    assert wire.send("DELETE", "/resource_classes/CUSTOM_A")[0] == 204
    assert wire.fails("DELETE", "/resource_classes/CUSTOM_A")[0] == 404


def test_aggregates_are_written_without_a_generation_before_1_19(host):
    assert host.does("PUT", f"{URL}/aggregates", [AGGREGATE], version="1.18") == {"aggregates": [AGGREGATE]}
    assert host.does("GET", f"{URL}/aggregates") == {"aggregates": [AGGREGATE], "resource_provider_generation": 1}
    body = {"aggregates": [], "resource_provider_generation": 0}
    assert host.fails("PUT", f"{URL}/aggregates", body)[:2] == (409, "placement.concurrent_update")


# --- allocations and usages -------------------------------------------------------------------------------------


def test_usages_are_grouped_by_type_from_1_38_on(host):
    hold(host, CONSUMERS[0], ROOT, VCPU=1, DISK_GB=5)
    hold(host, CONSUMERS[1], ROOT, VCPU=2)
    hold(host, CONSUMERS[2], ROOT, kind="MIGRATION", VCPU=3)
    old = {"allocations": {ROOT: {"resources": {"DISK_GB": 7}}}, "project_id": "red", "user_id": "bob"}
    assert host.send("PUT", f"/allocations/{CONSUMERS[3]}", old, version="1.27")[0] == 204

    def usages(query, version="1.39"):
        return host.does("GET", f"/usages?project_id=red{query}", version=version)["usages"]

    assert usages("", version="1.37") == {"VCPU": 6, "DISK_GB": 12}
    assert usages("&user_id=bob", version="1.9") == {"DISK_GB": 7}
    by_type = {
        "INSTANCE": {"VCPU": 3, "DISK_GB": 5, "consumer_count": 2},
        "MIGRATION": {"VCPU": 3, "consumer_count": 1},
        "unknown": {"DISK_GB": 7, "consumer_count": 1},
    }
    assert usages("") == by_type
    assert usages("&consumer_type=MIGRATION") == {"MIGRATION": by_type["MIGRATION"]}
    assert usages("&consumer_type=unknown") == {"unknown": by_type["unknown"]}
    assert usages("&consumer_type=all") == {"all": {"VCPU": 6, "DISK_GB": 12, "consumer_count": 4}}
    assert host.does("GET", f"{URL}/usages")["usages"] == {"VCPU": 6, "DISK_GB": 12}
    assert host.fails("GET", f"/resource_providers/{AGGREGATE}/usages")[0] == 404
    allocations = host.does("GET", f"{URL}/allocations")["allocations"]
    assert allocations[CONSUMERS[0]] == {"resources": {"VCPU": 1, "DISK_GB": 5}, "consumer_generation": 1}
    assert len(allocations) == 4


def test_several_consumers_change_at_once(host):
    hold(host, CONSUMERS[0], CHILD, VGPU=2)
    owner = {"project_id": "red", "user_id": "alice", "consumer_type": "INSTANCE"}
    body = {
        CONSUMERS[0]: {"allocations": {}, "consumer_generation": 1, **owner},
        CONSUMERS[1]: {"allocations": {CHILD: {"resources": {"VGPU": 2}}}, "consumer_generation": None, **owner},
    }
    assert host.send("POST", "/allocations", body)[0] == 204
    assert host.does("GET", f"/allocations/{CONSUMERS[0]}") == {"allocations": {}}
    assert host.does("GET", f"/resource_providers/{CHILD}/usages")["usages"] == {"VGPU": 2}
    body = {
        CONSUMERS[2]: {"allocations": {AGGREGATE: {"resources": {"VGPU": 1}}}, "consumer_generation": None, **owner}
    }
    assert (
        f"Allocation for resource provider '{AGGREGATE}' that does not exist."
        in host.fails("POST", "/allocations", body)[2]
    )
    assert "Malformed consumer_uuid: x" in host.fails("PUT", "/allocations/x", body[CONSUMERS[2]])[2]
    assert f"No allocations for consumer '{CONSUMERS[2]}'" in host.fails("DELETE", f"/allocations/{CONSUMERS[2]}")[2]


def test_a_reshape_moves_inventories_and_allocations(host):
    hold(host, CONSUMERS[0], ROOT, DISK_GB=5)
    generation = host.does("GET", URL)["generation"]
    body = {
        "inventories": {
            ROOT: offer(generation, VCPU={"total": 8}),
            CHILD: offer(1, VGPU={"total": 2}, DISK_GB={"total": 50}),
        },
        "allocations": {
            CONSUMERS[0]: {
                "allocations": {CHILD: {"resources": {"DISK_GB": 5}}},
                "consumer_generation": 1,
                "consumer_type": "INSTANCE",
                "project_id": "red",
                "user_id": "alice",
            }
        },
    }
    service = {"who": "nova", "roles": "service"}
    assert host.send("POST", "/reshaper", body, **service)[0] == 204
    assert host.does("GET", f"/resource_providers/{CHILD}/usages")["usages"] == {"VGPU": 0, "DISK_GB": 5}
    assert host.fails("POST", "/reshaper", body, **service)[:2] == (409, "placement.concurrent_update")
    body["inventories"] = {AGGREGATE: offer(0)}
    assert host.fails("POST", "/reshaper", body, **service)[:2] == (400, "placement.resource_provider.not_found")


# --- candidates -------------------------------------------------------------------------------------------------


def test_the_format_of_candidates_depends_on_the_version(host):
    query = "/allocation_candidates?resources=VCPU:1,VGPU:1"
    document = host.does("GET", query)
    assert document["allocation_requests"] == [
        {
            "allocations": {ROOT: {"resources": {"VCPU": 1}}, CHILD: {"resources": {"VGPU": 1}}},
            "mappings": {"": [ROOT, CHILD]},
        }
    ]
    summaries = document["provider_summaries"]
    assert summaries[CHILD]["parent_provider_uuid"] == summaries[CHILD]["root_provider_uuid"] == ROOT
    assert summaries[ROOT]["resources"]["DISK_GB"] == {"capacity": 90, "used": 0}
    assert host.does("GET", query, version="1.28")["allocation_requests"] == [], "trees came with 1.29"
    query = "/allocation_candidates?resources=VCPU:1"
    assert "mappings" not in host.does("GET", query, version="1.33")["allocation_requests"][0]
    oldest = host.does("GET", query, version="1.10")
    assert oldest["allocation_requests"] == [
        {"allocations": [{"resource_provider": {"uuid": ROOT}, "resources": {"VCPU": 1}}]}
    ]
    assert oldest["provider_summaries"] == {ROOT: {"resources": {"VCPU": {"capacity": 8, "used": 0}}}}


def test_names_that_do_not_exist_are_refused(wire):
    status, _, detail = wire.fails("GET", "/allocation_candidates?resources=CUSTOM_NO:1")
    assert status == 400
    assert "Invalid resource class in resources parameter: No such resource class CUSTOM_NO." in detail
    assert (
        "No such trait(s): CUSTOM_NO."
        in wire.fails("GET", "/allocation_candidates?resources=VCPU:1&root_required=CUSTOM_NO")[2]
    )
    assert wire.fails("GET", "/moorage/v1/explain?resources=CUSTOM_NO:1")[0] == 400


LINKS = [("aggregates", 1), ("traits", 6), ("allocations", 11)]


@pytest.mark.parametrize("minor", [0, 1, 5, 6, 10, 11, 13, 14, 39])
def test_the_fields_of_a_provider_depend_on_the_version(wire, minor):
    root = wire.does("POST", "/resource_providers", {"name": 'a "first" ä'})["uuid"]
    child = wire.does("POST", "/resource_providers", {"name": "child", "parent_provider_uuid": root})["uuid"]
    own = f"/placement/resource_providers/{child}"
    names = ["inventories", "usages", *(name for name, since in LINKS if minor >= since)]
    expected = {
        "uuid": child,
        "name": "child",
        "generation": 0,
        "links": [{"rel": "self", "href": own}, *({"rel": name, "href": f"{own}/{name}"} for name in names)],
    }
    if minor >= 14:
        expected |= {"parent_provider_uuid": root, "root_provider_uuid": root}
    version = f"1.{minor}"
    assert wire.does("GET", f"/resource_providers/{child}", version=version) == expected
    listed = wire.does("GET", "/resource_providers", version=version)["resource_providers"]
    assert listed[1] == expected
    assert listed[0]["name"] == 'a "first" ä'
    assert wire.does("GET", f"/resource_providers?uuid={child}", version=version)["resource_providers"] == [expected]


def test_a_list_of_providers_is_always_current(wire):
    root = wire.does("POST", "/resource_providers", {"name": "first"})["uuid"]
    wire.does("POST", "/resource_providers", {"name": "child", "parent_provider_uuid": root})
    for name in ("first", "second"):
        wire.does("PUT", f"/resource_providers/{root}", {"name": name})
        for version in ("1.39", "1.14", "1.10", "1.0", "1.39"):
            listed = wire.does("GET", "/resource_providers", version=version)["resource_providers"]
            assert {one["name"] for one in listed} == {name, "child"}
            assert all(("root_provider_uuid" in one) == (version in ("1.39", "1.14")) for one in listed)
            assert wire.does("GET", f"/resource_providers?name={name}")["resource_providers"][0]["uuid"] == root
    assert wire.does("GET", "/resource_providers?name=first")["resource_providers"] == []
