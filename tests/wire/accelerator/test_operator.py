"""An operator's requests for devices through the API, and their effects on the host.

Spec: docs/evidence/specs/accelerator-attach.md
"""

import json

import pytest

from moorage.accelerator.model.errors import NoCapacity
from moorage.agent.jobs.job_runner import AcceleratorRunner
from moorage.agent.jobs.job_task import HostQueue, JobsTask
from tests.unit.accelerator.rig import AES, GPU, HOST, R1, R2, SHA, TYPE_R1, TYPE_R2, Rig, fpga, gpu, new_instance


@pytest.fixture
def rig(tmp_path, wire, clock, hints) -> Rig:
    """A host that has reported, and does its jobs at each hint."""
    rig = Rig(tmp_path / "host", clock=clock)
    rig.agent._reports = wire.client()
    rig.agent.run_once()
    runner = AcceleratorRunner(rig.agent, keep_alive_period_s=10)
    jobs = JobsTask(HostQueue(HOST, wire.client(), poll_period_s=1), 1, runner, clock)
    rig.works = lambda: all(jobs.run_once() <= clock.now() for _ in range(9))
    hints.heard = rig.works
    return rig


def device(wire, address, version="2.3"):
    rows = wire("GET", "/v2/devices", version=version).body["devices"]
    return next(row for row in rows if f'"{address}"' in row["std_board_info"])


def deployable(wire, name):
    rows = wire("GET", "/v2/deployables").body["deployables"]
    return next(row for row in rows if row["name"] == f"{HOST}_{name}")


def program(wire, uuid, image):
    body = [{"path": "/program", "op": "replace", "value": [{"image_uuid": image}]}]
    return wire("PATCH", f"/v2/deployables/{uuid}/program", body=body)


def units(rig, name):
    (inventory,) = rig.node(name).inventories.values()
    return inventory


# ------------------------------------------------------------------------------------------- disabling


def test_a_disabled_devices_inventory_is_reserved_until_it_is_enabled(wire, rig):
    uuid = device(wire, GPU)["uuid"]
    assert units(rig, GPU).reserved == 0
    assert wire("POST", f"/v2/devices/{uuid}/disable").status == 204
    assert device(wire, GPU)["status"] == "maintaining"
    assert (units(rig, GPU).total, units(rig, GPU).reserved) == (1, 1)
    rig.agent.run_once()
    assert device(wire, GPU)["status"] == "maintaining", "a report of the host does not enable it"
    assert wire("POST", f"/v2/devices/{uuid}/enable").status == 204
    assert (device(wire, GPU)["status"], units(rig, GPU).reserved) == ("enabled", 0)


def test_a_disabled_device_gets_no_new_user_and_keeps_the_present_one(wire, rig):
    holder = new_instance()
    rig.plug(holder, gpu(), GPU)
    wire("POST", f"/v2/devices/{device(wire, GPU)['uuid']}/disable")
    with pytest.raises(NoCapacity, match="disabled by an operator"):
        rig.plug(new_instance(), gpu(), GPU)
    assert holder in rig.held.attachments
    assert rig.unplug(holder) == 1


def test_all_regions_of_a_disabled_card_stay_reserved_after_a_restart_of_the_agent(wire, rig):
    wire("POST", f"/v2/devices/{device(wire, '0000:3b:00.0')['uuid']}/disable")
    rig.agent.close()
    rig.restart()
    assert [units(rig, region).reserved for region in (R1, R2)] == [2, 1]


def test_a_host_that_was_down_applies_the_last_order_when_it_returns(wire, rig, hints):
    hints.heard = lambda: None
    uuid = device(wire, GPU)["uuid"]
    for verb in ("disable", "enable", "disable"):
        wire("POST", f"/v2/devices/{uuid}/{verb}")
    assert units(rig, GPU).reserved == 0
    rig.works()
    assert units(rig, GPU).reserved == 1


@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_an_unknown_device_is_404(wire, rig, verb):
    assert wire("POST", f"/v2/devices/{new_instance()}/{verb}").status == 404


# ------------------------------------------------------------------------------------------- programming


def test_a_region_is_programmed_and_shows_its_bitstream(wire, rig):
    image = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    seen = program(wire, deployable(wire, R1)["uuid"], image)
    assert (seen.status, seen.body["bitstream_id"]) == (200, image), seen.body
    assert rig.carries(R1) == image
    assert deployable(wire, R1)["bitstream_id"] == image


def test_a_region_can_be_cleared(wire, rig):
    """Not in Cyborg: its API can only program another bitstream."""
    part = deployable(wire, R1)["uuid"]
    program(wire, part, rig.image(region_uuid=TYPE_R1, function_uuid=AES))
    for _ in range(2):
        seen = wire("PATCH", f"/v2/deployables/{part}/program", body=[{"path": "/program", "op": "remove"}])
        assert (seen.status, seen.body["bitstream_id"]) == (200, None), seen.body
    assert (rig.carries(R1), rig.programs()) == ("", [R1, R1])
    rig.image("again", region_uuid=TYPE_R1, function_uuid=SHA)
    rig.plug(new_instance(), fpga(function=SHA), R1)
    refused = wire("PATCH", f"/v2/deployables/{part}/program", body=[{"path": "/program", "op": "remove"}])
    assert (refused.status, "in use" in refused.fault) == (409, True)
    assert wire("PATCH", f"/v2/deployables/{part}/program", body=[{"path": "/program", "op": "replace"}]).status == 400


def patch(wire, name, op, **value):
    body = [{"path": "/program", "op": op, "value": [value]}]
    return wire("PATCH", f"/v2/deployables/{deployable(wire, name)['uuid']}/program", body=body)


def test_an_image_can_be_named_by_its_function(wire, rig):
    """Not in Cyborg: the bitstream is found as for a flavor or a profile."""
    image = rig.image(region_uuid=TYPE_R1, function_uuid=AES, function_name="aes")
    for named in ({"function_id": AES.upper()}, {"function_name": "aes"}):
        seen = patch(wire, R1, "replace", **named)
        assert (seen.status, seen.body["bitstream_id"], rig.carries(R1)) == (200, image, image)
    assert rig.programs() == [R1]
    assert "no image fits function" in patch(wire, R1, "replace", function_id=SHA).fault
    assert patch(wire, R1, "replace", function_id=AES, function_name="aes").status == 400


def test_a_region_is_cleared_only_if_it_has_the_named_bitstream(wire, rig):
    image = rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    program(wire, deployable(wire, R1)["uuid"], image)
    for other in ({"function_id": SHA}, {"image_uuid": new_instance()}, {"function_name": "aes"}):
        seen = patch(wire, R1, "remove", **other)
        assert (seen.status, seen.body["bitstream_id"]) == (200, image)
    for its in ({"function_id": AES}, {"image_uuid": image}):
        assert patch(wire, R1, "remove", **its).body["bitstream_id"] is None
    assert (rig.carries(R1), rig.programs()) == ("", [R1, R1])


def test_a_private_image_is_programmed_for_its_project(wire, rig):
    part = deployable(wire, R1)["uuid"]
    private = rig.image(region_uuid=TYPE_R1, function_uuid=AES, visibility="private", owner="other")
    assert program(wire, part, private).status == 409
    value = {"image_uuid": private, "project_id": "other"}
    body = [{"path": "/program", "op": "replace", "value": [value]}]
    assert wire("PATCH", f"/v2/deployables/{part}/program", body=body).body["bitstream_id"] == private


def test_a_region_in_use_is_not_programmed(wire, rig):
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    rig.plug(new_instance(), fpga(function=AES), R1)
    other = rig.image("sha", region_uuid=TYPE_R1, function_uuid=SHA)
    refused = program(wire, deployable(wire, R1)["uuid"], other)
    assert (refused.status, "in use" in refused.fault) == (409, True)


def test_a_missing_or_unsuitable_image_is_refused_with_the_reason(wire, rig):
    part = deployable(wire, R1)["uuid"]
    for_another = rig.image(region_uuid=TYPE_R2, function_uuid=AES)
    assert (program(wire, part, for_another).status, program(wire, part, new_instance()).status) == (409, 409)
    card = program(wire, deployable(wire, GPU)["uuid"], for_another)
    assert (card.status, "cannot be programmed" in card.fault) == (409, True)
    assert program(wire, new_instance(), for_another).status == 404
    assert wire("PATCH", f"/v2/deployables/{part}/program", body=[]).status == 400


def test_programming_on_a_host_that_does_not_answer_is_503(wire, rig, hints):
    hints.heard = lambda: None
    seen = program(wire, deployable(wire, R1)["uuid"], rig.image(region_uuid=TYPE_R1, function_uuid=AES))
    assert (seen.status, "check the deployable again" in seen.fault) == (503, True)


# -------------------------------------------------------------------------------------------- attributes


def add(wire, part, key, value):
    return wire("POST", "/v2/attributes", body={"deployable_id": part["root_id"], "key": key, "value": value})


def test_attributes_survive_discoveries_and_their_traits_are_set_on_the_provider(wire, rig):
    part = deployable(wire, R1)
    rack, trait = add(wire, part, "rack", "7"), add(wire, part, "trait1", "CUSTOM_NEAR_THE_DOOR")
    assert (rack.status, trait.status) == (201, 201)
    rig.agent.run_once()
    listed = wire("GET", f"/v2/attributes?deployable_id={part['root_id']}").body["attributes"]
    listed = [row for row in listed if row["key"] in ("rack", "trait1")]
    assert [(row["key"], row["value"]) for row in listed] == [("rack", "7"), ("trait1", "CUSTOM_NEAR_THE_DOOR")]
    assert wire("GET", "/v2/attributes?key=rack").body["attributes"] == listed[:1]
    assert wire("GET", f"/v2/attributes/{listed[0]['uuid']}").body == listed[0]
    assert "CUSTOM_NEAR_THE_DOOR" in rig.node(R1).traits
    assert "CUSTOM_NEAR_THE_DOOR" not in rig.node(R2).traits
    assert wire("DELETE", f"/v2/attributes/{listed[1]['uuid']}").status == 204
    assert "CUSTOM_NEAR_THE_DOOR" not in rig.node(R1).traits
    assert wire("GET", f"/v2/attributes/{listed[1]['uuid']}").status == 404


def test_the_attributes_that_a_host_reports_are_listed_as_in_cyborg(wire, rig):
    """Cyborg has a row with key ``rc`` for each deployable."""
    parts = {part["root_id"]: part for part in wire("GET", "/v2/deployables").body["deployables"]}
    classes = wire("GET", "/v2/attributes?key=rc").body["attributes"]
    assert {row["deployable_id"]: row["value"] for row in classes} == {
        number: dict(pair for one in json.loads(part["attributes_list"]) for pair in one.items())["rc"]
        for number, part in parts.items()
    }
    assert {row["value"] for row in classes} == {"CUSTOM_ACCELERATOR_FPGA", "CUSTOM_ACCELERATOR_GPU"}
    first = classes[0]
    rig.agent.run_once()
    assert wire("GET", f"/v2/attributes/{first['uuid']}").body == first
    refused = wire("DELETE", f"/v2/attributes/{first['uuid']}")
    assert (refused.status, "reported by the host" in refused.fault) == (409, True)
    listed = wire("GET", f"/v2/attributes?deployable_id={first['deployable_id']}").body["attributes"]
    assert first in listed
    assert len({row["uuid"] for row in listed}) == len(listed)


def test_invalid_attributes_are_refused(wire, rig):
    part = deployable(wire, R1)
    assert add(wire, part, "trait1", "HW_CPU_X86_AVX").status == 400
    assert add(wire, part, "", "x").status == 400
    assert add(wire, {"root_id": 99999}, "rack", "7").status == 404
    assert wire("GET", "/v2/attributes?deployable_id=x").status == 400
