"""The Accelerator API v2 as clients see it: versions, formats, refusals; and an agent's reports."""

import json
from dataclasses import field, make_dataclass

import pytest

from moorage.accelerator import client
from moorage.core.errors import RemoteError
from tests.plane import URL
from tests.unit.accelerator.rig import AES, GPU, HOST, PROJECT, R1, TYPE_R1, Rig, fpga, new_instance, rp

FP1 = [{"name": "fp1", "groups": [{"resources:FPGA": "1", "trait:CUSTOM_FPGA_INTEL": "required"}]}]

ARQS, PAGES = "/v2/accelerator_requests", "/moorage/v1/accelerator_requests"


@pytest.fixture
def rig(tmp_path, wire) -> Rig:
    """A host whose agent has reported once: an FPGA region is programmed and in use."""
    rig = Rig(tmp_path / "host")
    rig.agent._reports = wire.client()
    rig.image_id = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    rig.instance = new_instance()
    rig.plug(rig.instance, fpga(function=AES), R1)
    rig.agent.run_once()
    return rig


# ------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_discovery_needs_no_credentials_and_its_links_resolve(wire, path):
    seen = wire("GET", path, role=None)
    assert seen.status == 200
    assert seen.body == {
        "id": "v2.0",
        "status": "CURRENT",
        "max_version": "2.3",
        "min_version": "2.0",
        "links": [{"href": f"{URL}/accelerator/v2/", "rel": "self"}],
    }


def test_the_root_lists_the_versions(wire):
    seen = wire("GET", "", role=None)
    assert seen.body["versions"] == [seen.body["default_version"]]
    assert seen.body["versions"][0]["id"] == "v2"
    assert seen.body["versions"][0]["links"][0]["href"] == f"{URL}/accelerator/v2/"


@pytest.mark.parametrize(
    ("asked", "answered"),
    [(None, "2.0"), ("accelerator 2.2", "2.2"), ("2.1", "2.1"), ("accelerator latest", "2.3")],
)
def test_microversions_are_negotiated_and_announced(wire, asked, answered):
    seen = wire("GET", "/v2/devices", version=asked)
    assert seen.status == 200
    assert seen.headers["openstack-api-version"] == f"accelerator {answered}"
    assert seen.headers["openstack-api-minimum-version"] == "2.0"
    assert seen.headers["openstack-api-maximum-version"] == "2.3"
    assert "openstack-api-version" in seen.headers["vary"]
    assert seen.headers["x-openstack-request-id"].startswith("req-")


def test_a_version_out_of_range_is_406(wire):
    assert wire("GET", "/v2/devices", version="accelerator 2.9").status == 406


# ------------------------------------------------------------------------- devices and their bitstreams


def test_devices_have_a_status_from_2_3_on(wire, rig):
    devices = wire("GET", "/v2/devices").body["devices"]
    assert len(devices) == 6
    assert "status" not in devices[0]
    newer = wire("GET", "/v2/devices", version="accelerator 2.3").body["devices"]
    assert {device["status"] for device in newer} == {"enabled"}
    one = wire("GET", f"/v2/devices/{devices[1]['uuid']}")
    assert one.body == devices[1]
    shown = json.loads(one.body["std_board_info"])
    assert dict(list(shown.items())[:3]) == {"device_id": "09c4", "class": "FPGA", "address": "0000:3b:00.0"}
    assert shown.keys() - {"device_id", "class", "address"} == {"health", "health_since"}
    assert wire("GET", one.body["links"][0]["href"].removeprefix(f"{URL}/accelerator")).body == one.body


def test_devices_are_filtered(wire, rig):
    assert len(wire("GET", f"/v2/devices?hostname={HOST}&type=GPU&vendor=10de").body["devices"]) == 4
    assert wire("GET", "/v2/devices?hostname=nobody").body["devices"] == []


def test_deployables_show_their_bitstream(wire, rig):
    rows = {row["name"]: row for row in wire("GET", "/v2/deployables").body["deployables"]}
    region = rows[f"{HOST}_{R1}"]
    assert (region["num_accelerators"], region["bitstream_id"], region["rp_uuid"]) == (2, rig.image_id, rp(R1))
    assert isinstance(region["device_id"], int)
    assert f'"function": "{AES}"' in region["attributes_list"]
    assert [link["rel"] for link in region["links"]] == ["self", "bookmark"]
    assert wire("GET", f"/v2/deployables/{region['uuid']}").body == region


def test_an_attached_handle_is_a_bound_request(wire, rig):
    (arq,) = wire("GET", f"/v2/accelerator_requests?instance={rig.instance}").body["arqs"]
    assert arq["state"] == "Bound"
    assert (arq["hostname"], arq["instance_uuid"], arq["device_rp_uuid"]) == (HOST, rig.instance, rp(R1))
    assert (arq["attach_handle_type"], arq["device_profile_group_id"]) == ("PCI", 0)
    assert arq["attach_handle_info"] == {"domain": "0000", "bus": "3b", "device": "00", "function": "1"}
    assert wire("GET", f"/v2/accelerator_requests/{arq['uuid']}").body == arq
    assert wire("GET", "/v2/accelerator_requests?bind_state=resolved").body["arqs"] == [arq]
    assert wire("GET", "/v2/accelerator_requests?bind_state=started").status == 400
    rig.unplug(rig.instance)
    rig.agent.run_once()
    assert wire("GET", "/v2/accelerator_requests").body["arqs"] == []


def test_other_projects_do_not_see_a_request(wire, rig):
    (arq,) = wire("GET", "/v2/accelerator_requests", role="reader").body["arqs"]
    assert wire("GET", "/v2/accelerator_requests", role="reader@other").body["arqs"] == []
    assert wire("GET", f"/v2/accelerator_requests/{arq['uuid']}", role="reader@other").status == 404


def test_requests_are_listed_in_pages_newest_first(wire, rig):
    body = [{"name": "many", "groups": [{"resources:CUSTOM_ACCELERATOR_GPU": "3"}]}]
    assert wire("POST", "/v2/device_profiles", body=body).status == 201
    for project in (PROJECT, "other"):
        assert wire("POST", ARQS, role=f"member@{project}", body={"device_profile_name": "many"}).status == 201
    everything = wire("GET", ARQS, role="reader").body["arqs"]
    assert len(everything) == 4  # including the one that the host reported
    first = wire("GET", f"{PAGES}?limit=3", role="reader").body
    assert first == {"arqs": everything[:0:-1], "next": everything[1]["uuid"]}
    last = wire("GET", f"{PAGES}?limit=3&after={first['next']}", role="reader").body
    assert last == {"arqs": everything[:1], "next": None}
    assert wire("GET", f"{PAGES}?limit=4", role="reader").body["next"] is None
    assert len(wire("GET", PAGES).body["arqs"]) == 7
    assert wire("GET", f"{PAGES}?after={first['next']}", role="reader@other").status == 400
    assert wire("DELETE", f"{ARQS}?arqs={first['next']}", role="member").status == 204
    gone = wire("GET", f"{PAGES}?after={first['next']}", role="reader")
    assert (gone.status, "start again at the first page" in gone.fault) == (400, True)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=1", "instance=x", "after=%27"])
def test_invalid_paging_parameters_are_refused(wire, query):
    assert wire("GET", f"{PAGES}?{query}", role="reader").status == 400


def test_the_client_decodes_what_the_service_encodes(wire, rig):
    client = wire.client("admin")
    assert {device.type for device in client.devices(HOST)} == {"FPGA", "GPU"}
    assert {part.name for part in client.deployables()} >= {f"{HOST}_{R1}", f"{HOST}_{GPU}"}
    (request,) = client.requests(rig.instance)
    assert (request.state, request.pci["bus"]) == ("Bound", "3b")


# -------------------------------------------------------------------------------------- device profiles


def test_a_profile_is_created_listed_shown_and_deleted(wire):
    made = wire("POST", "/v2/device_profiles", body=FP1)
    assert made.status == 201
    assert made.body["groups"] == FP1[0]["groups"]
    assert made.body["created_at"] == "2026-03-01T09:30:00+00:00"
    assert wire("GET", "/v2/device_profiles?name=fp1,other").body == {"device_profiles": [made.body]}
    shown = wire("GET", f"/v2/device_profiles/{made.body['uuid']}").body["device_profile"]
    assert (shown["created_at"], shown["updated_at"]) == ("2026-03-01 09:30:00+00:00", "None")
    assert wire("DELETE", "/v2/device_profiles/fp1").status == 204
    assert wire("GET", "/v2/device_profiles").body == {"device_profiles": []}


def test_a_group_may_require_one_of_several_traits(wire):
    group = {"resources:FPGA": "1", "trait:in:CUSTOM_FPGA_INTEL,CUSTOM_FPGA_XILINX": "required"}
    assert wire("POST", "/v2/device_profiles", body=[{"name": "either", "groups": [group]}]).body["groups"] == [group]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trait:in:CUSTOM_A,HW_B", "required"), ("trait:in:", "required"), ("trait:in:CUSTOM_A,", "required"),
        ("trait:in:CUSTOM_A,CUSTOM_B", "forbidden"), ("trait:in:CUSTOM_A,CUSTOM_B", "perhaps"),
    ],
)  # fmt: skip
def test_several_traits_are_custom_and_required(wire, key, value):
    body = [{"name": "either", "groups": [{"resources:FPGA": "1", key: value}]}]
    assert wire("POST", "/v2/device_profiles", body=body).status == 400


def test_a_profile_is_shown_by_name_from_2_2_on(wire):
    wire("POST", "/v2/device_profiles", body=FP1)
    assert wire("GET", "/v2/device_profiles/fp1").status == 406
    assert wire("GET", "/v2/device_profiles/fp1", version="accelerator 2.2").status == 200


def test_several_profiles_are_deleted_by_value(wire):
    wire("POST", "/v2/device_profiles", body=FP1)
    wire("POST", "/v2/device_profiles", body=[FP1[0] | {"name": "fp2"}])
    assert wire("DELETE", "/v2/device_profiles?value=fp1,fp2").status == 204
    assert wire("DELETE", "/v2/device_profiles?value=fp1").status == 404
    assert wire("DELETE", "/v2/device_profiles").status == 400


@pytest.mark.parametrize(
    "body",
    [
        FP1[0],
        [],
        FP1 + FP1,
        [{"groups": FP1[0]["groups"]}],
        [{"name": "x"}],
        [{"name": "x", "groups": []}],
        [{"name": "x", "groups": [{"resources:FPGA": ["1"]}]}],
        [{"name": "a/b", "groups": FP1[0]["groups"]}],
        [{"name": "x", "groups": [{"resources:FPGA": "0"}]}],
        [{"name": "x", "groups": [{"resources:FPGA": "1001"}]}],
        [{"name": "x", "groups": [{"resources:FPGA": "9" * 5000}]}],
        None,
    ],
)
def test_an_invalid_profile_is_400(wire, body):
    seen = wire("POST", "/v2/device_profiles", body=body)
    assert seen.status == 400
    assert seen.fault


def test_an_existing_name_is_409_in_cyborgs_format(wire):
    wire("POST", "/v2/device_profiles", body=FP1)
    seen = wire("POST", "/v2/device_profiles", body=FP1)
    assert seen.status == 409
    assert "fp1" in seen.fault
    assert seen.body["error_message"].startswith('{"faultcode": "Client"')


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("role", "method", "path", "status"),
    [
        (None, "GET", "/v2/devices", 401),
        ("reader", "GET", "/v2/devices", 403),
        ("manager", "GET", "/v2/devices", 200),
        ("reader", "GET", "/v2/device_profiles", 200),
        ("manager", "POST", "/v2/device_profiles", 403),
        ("reader", "GET", "/v2/accelerator_requests", 200),
        ("member", "PUT", f"/agent/v1/hosts/{HOST}/devices", 403),
        ("service", "PUT", f"/agent/v1/hosts/{HOST}/devices", 204),
        ("admin", "PUT", f"/agent/v1/hosts/{HOST}/attachments", 400),
        ("admin", "GET", "/v2/nothing", 404),
        ("admin", "PUT", "/v2/devices", 405),
    ],
)
def test_each_route_allows_only_its_roles(wire, role, method, path, status):
    body = {"devices": []} if method == "PUT" else FP1 if method == "POST" else None
    assert wire(method, path, role=role, body=body).status == status


def test_a_refusal_names_cyborgs_policy_rule(wire):
    assert "cyborg:device:get_all" in wire("GET", "/v2/devices", role="reader").fault


def test_a_malformed_report_is_refused(wire):
    path = f"/agent/v1/hosts/{HOST}/devices"
    assert "address" in wire("PUT", path, body={"devices": [{"type": "FPGA"}]}).fault
    assert wire("PUT", path, body={"devices": {}}).status == 400
    assert wire("GET", "/v2/devices").body["devices"] == []


def offered(address, *handles, part_of="", state="free"):
    """A device in a host's report."""
    part = {"name": address, "handles": [{"pci_id": handle, "state": state} for handle in handles]}
    return {
        "address": address, "type": "GPU", "vendor": "10de", "product_id": "2236", "model": "A10", "driver": "nvidia",
        "health": "ok", "numa_node": 0, "deployables": [part], "part_of": part_of,
    }  # fmt: skip


CARD, FUNCTION = "0000:17:00.0", "0000:17:00.4"


@pytest.mark.parametrize(
    "devices",
    [
        [offered(CARD, CARD), offered(FUNCTION, FUNCTION, part_of=CARD)],
        [offered(FUNCTION, FUNCTION, part_of=CARD), offered(CARD, CARD, state="attached")],
        [offered(CARD, CARD, f"{CARD}_nvidia-63_0")],
        [offered(CARD, f"{FUNCTION}_nvidia-63_0"), offered(FUNCTION, FUNCTION)],
        [offered(CARD, FUNCTION), offered(FUNCTION, FUNCTION)],
    ],
)
def test_a_report_that_offers_a_card_and_a_part_of_it_is_refused_and_names_both(wire, devices):
    """Issue 18.4: a host can report only about itself, but then no tenant may get what another one has."""
    path = f"/agent/v1/hosts/{HOST}/devices"
    assert wire("PUT", path, body={"devices": [offered(CARD, CARD)]}).status == 204
    before = wire("GET", "/v2/deployables").body
    refused = wire("PUT", path, body={"devices": devices})
    assert refused.status == 400
    assert f"Host {HOST} offers" in refused.fault
    assert "let the host's device specs select one" in refused.fault
    assert wire("GET", "/v2/deployables").body == before


def test_a_report_with_a_card_and_its_part_that_are_both_in_use_is_stored(wire):
    """Both were given out by an earlier release: the report must show that."""
    both = [offered(CARD, CARD, state="attached"), offered(FUNCTION, FUNCTION, part_of=CARD, state="attached")]
    assert wire("PUT", f"/agent/v1/hosts/{HOST}/devices", body={"devices": both}).status == 204


def test_a_client_that_reads_a_field_that_the_service_lacks_takes_its_default(wire, rig, monkeypatch):
    """The other process may run the previous release."""
    expected = wire.client().devices()
    newer = make_dataclass(
        "RemoteDevice", [("colour", str, field(default="grey"))], bases=(client.RemoteDevice,), frozen=True
    )
    monkeypatch.setattr(client, "RemoteDevice", newer)
    seen = wire.client().devices()
    assert [(one.uuid, one.colour) for one in seen] == [(one.uuid, "grey") for one in expected]
    assert seen


def test_an_agent_without_the_role_gets_the_refusal(wire, rig):
    rig.agent._reports = wire.client("reader")
    with pytest.raises(RemoteError) as caught:
        rig.agent.run_once()
    assert caught.value.status == 403
