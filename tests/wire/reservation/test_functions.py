"""Bitstreams of ``resource:any``: programmed and verified before a project gets access, removed after the end.

The accelerator service, the host's agent and its (simulated) card are real.
"""

import pytest

from moorage.accelerator.client import ProgramRequest
from tests.unit.accelerator.rig import AES, HOST, R1, SHA, TYPE_R1, TYPE_R2, fpga, new_instance
from tests.wire.reservation.accelerated import FPGA, IS_R1
from tests.wire.reservation.processes import TRIES
from tests.wire.reservation.test_any_reservations import change, create, of_any
from tests.wire.reservation.test_host_reservations import START


def of(amount=1, *, units=2, **more):
    return of_any(amount, {FPGA: units, "VCPU": 1}, traits={IS_R1: "required"}, **more)


def with_function(image, amount=1, **more):
    return of(amount, bitstream_id=image, **more)


def until(cloud, hour):
    cloud.run_until(cloud.clock.now().replace(hour=hour, minute=0, second=5))
    cloud.run_for(20)


def test_a_region_has_the_function_from_the_start_to_the_end_of_the_lease(cloud):
    """It is loaded once and removed once. The card refuses data that does not match the digest of the image."""
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), start=START, end="2026-03-01 13:00")
    (reservation,) = made["reservations"]
    assert (reservation["bitstream_id"], cloud.host.programs()) == (image, [])
    assert cloud.extra_specs(reservation["id"])["accel:bitstream_id"] == image
    until(cloud, 12)
    assert cloud.lease(made["id"])["status"] == "ACTIVE"
    assert (cloud.host.carries(R1), cloud.host.programs()) == (image, [R1])
    assert {part.name: part.bitstream_id for part in cloud.accelerators.deployables()}[f"{HOST}_{R1}"] == image
    until(cloud, 13)
    assert cloud.lease(made["id"])["status"] == "TERMINATED"
    assert (cloud.host.carries(R1), cloud.host.programs()) == ("", [R1, R1])


def test_access_is_granted_only_after_the_bitstream_was_programmed(cloud):
    """The host is down for a while; the start waits for it, and programs the region once."""
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), start=START)
    (reservation,) = made["reservations"]
    cloud.hosts_hear = False
    until(cloud, 12)
    assert cloud.lease(made["id"])["status"] == "STARTING"
    assert cloud.access(reservation["id"]) == []
    cloud.hosts_hear = True
    cloud.run_for(120)
    assert cloud.lease(made["id"])["status"] == "ACTIVE"
    assert (cloud.access(reservation["id"]), cloud.host.programs()) == (["demo"], [R1])


def test_a_repeated_step_does_not_program_the_region_again(cloud):
    """A crash between the effect of a step and its journal entry causes a repetition, which changes nothing."""
    lost = cloud.lose_answers()
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), end="2026-03-01 11:00")
    cloud.run_for(20)
    assert (cloud.lease(made["id"])["status"], lost, cloud.host.programs()) == (
        "ACTIVE",
        {"replace": TRIES},
        [R1],
    )
    until(cloud, 11)
    assert (cloud.lease(made["id"])["status"], lost) == ("TERMINATED", {"replace": TRIES, "remove": TRIES})
    assert (cloud.host.carries(R1), cloud.host.programs()) == ("", [R1, R1])


def test_a_region_in_use_does_not_stop_the_end_of_the_lease(cloud):
    """A server that bypassed the reservation uses the region."""
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), end="2026-03-01 11:00")
    cloud.run_for(10)
    cloud.host.plug(new_instance(), fpga(function=AES), R1)
    until(cloud, 11)
    assert (cloud.lease(made["id"])["status"], cloud.host.carries(R1)) == ("TERMINATED", image)


def test_the_next_user_of_the_region_finds_it_cleared(cloud):
    """The region is cleared even if the next lease starts when the first one ends."""
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    create(cloud, with_function(image), end="2026-03-01 11:00")
    after = create(cloud, of(), start="2026-03-01 11:00", end="2026-03-01 12:00")
    until(cloud, 11)
    assert (cloud.lease(after["id"])["status"], cloud.host.carries(R1)) == ("ACTIVE", "")


def test_a_lease_whose_image_was_deleted_grants_no_access_and_says_why(cloud):
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), start=START)
    cloud.remove_bitstream(image)
    until(cloud, 12)
    assert cloud.lease(made["id"])["status"] == "STARTING"
    until(cloud, 14)
    assert (cloud.lease(made["id"])["status"], cloud.host.programs()) == ("ERROR", [])


def test_a_private_image_must_belong_to_the_leases_project(cloud):
    mine = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES, visibility="private", owner="demo")
    made = create(cloud, with_function(mine))
    cloud.run_for(10)
    assert (cloud.lease(made["id"])["status"], cloud.host.carries(R1)) == ("ACTIVE", mine)
    theirs = cloud.bitstream("b", region_uuid=TYPE_R1, function_uuid=SHA, visibility="private", owner="other")
    for named, seen in (
        ({"bitstream_id": theirs}, "no image matches the search"),
        ({"function_id": SHA}, f"rejected {mine} (aes): it does not have the function"),
    ):
        refused = create(cloud, of(**named), start=START, status=404)["error_message"]
        assert refused.partition("no image fits")[2].partition("; ")[2] == seen


@pytest.mark.parametrize("visibility", ["community", "shared"])
def test_an_image_published_by_another_project_cannot_be_a_leases_bitstream(cloud, visibility):
    theirs = cloud.bitstream("b", region_uuid=TYPE_R1, function_uuid=AES, visibility=visibility, owner="other")
    for named in ({"bitstream_id": theirs}, {"function_id": AES}):
        assert "no image fits" in create(cloud, of(**named), start=START, status=404)["error_message"]
    public = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, of(function_id=AES))
    cloud.run_for(10)
    assert (cloud.lease(made["id"])["status"], cloud.host.carries(R1)) == ("ACTIVE", public)


def test_a_lease_deleted_before_its_start_programs_no_region(cloud):
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    now = create(cloud, with_function(image), end="2026-03-01 11:00")
    cloud.run_for(10)
    made = create(cloud, with_function(image), start=START)
    cloud.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert (cloud.host.carries(R1), cloud.lease(now["id"])["status"]) == (image, "ACTIVE")


def test_an_invalid_bitstream_is_refused(cloud):
    image = cloud.ids.uuid()
    refused = create(cloud, of_any(1, {"VCPU": 1}, bitstream_id=image), start=START, status=400)
    assert f"needs an accelerator to program: add {FPGA} to resources" in refused["error_message"]
    refused = create(cloud, with_function("x"), start=START, status=400)
    assert "Malformed parameter bitstream_id" in refused["error_message"]
    refused = create(cloud, of(bitstream_id=image, function_id=AES), start=START, status=400)
    assert "bitstream_id and function_id cannot be combined: a region carries one bitstream" in refused["error_message"]
    refused = create(cloud, of(function_name="a\nb"), start=START, status=400)
    assert "Malformed parameter function_name" in refused["error_message"]


def test_a_bitstream_is_refused_without_an_accelerator_service(plane):
    refused = create(plane, with_function(plane.ids.uuid()), start=START, status=400)
    assert refused["error_message"] == "bitstream_id cannot be used: this cloud has no accelerator service"


def test_a_region_with_a_bitstream_is_reserved_as_a_whole(cloud):
    """It carries one bitstream, so it is reserved as a whole, and only if nobody has a part of it."""
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    refused = create(cloud, with_function(image, units=1), start=START, status=409)
    assert (
        f"1 instance of 1 VCPU, 1 {FPGA} (the whole inventory of a provider) cannot be reserved"
        in refused["error_message"]
    )
    create(cloud, of_any(1, {FPGA: 1}, traits={IS_R1: "required"}), start=START, end="2026-03-01 13:00")
    create(cloud, with_function(image), start=START, status=409)
    create(cloud, with_function(image), start="2026-03-01 13:00")
    small = of_any(1, {FPGA: 1, "VCPU": 1}, bitstream_id=image)
    create(cloud, small, start=START)
    create(cloud, small, start=START, status=409)


def test_the_bitstream_can_be_changed_before_the_start(cloud):
    made = create(cloud, with_function(cloud.bitstream(region_uuid=TYPE_R1, function_uuid=SHA)), start=START)
    image = cloud.bitstream("b", region_uuid=TYPE_R1, function_uuid=AES)
    (shown,) = change(cloud, made, bitstream_id=image)["lease"]["reservations"]
    assert shown["bitstream_id"] == image
    until(cloud, 12)
    assert cloud.host.carries(R1) == image


@pytest.mark.parametrize(
    "named",
    [
        {"function_id": AES},
        {"function_id": AES.replace("-", "")},
        {"function_id": f"CUSTOM_FPGA_INTEL_FUNCTION_{AES.replace('-', '_').upper()}"},
        {"function_name": "aes"},
    ],
)
def test_a_bitstream_can_be_named_by_its_function(cloud, named):
    """The name works as in device profiles: the bitstream is loaded, verified and removed like one named by image."""
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES, function_name="aes")
    cloud.bitstream("b", region_uuid=TYPE_R1, function_uuid=SHA)
    made = create(cloud, of(**named), end="2026-03-01 11:00")
    (reservation,) = made["reservations"]
    ((way, name),) = named.items()
    assert (reservation[way], reservation["bitstream_id"]) == (name, "")
    cloud.run_for(10)
    assert (cloud.lease(made["id"])["status"], cloud.host.carries(R1)) == ("ACTIVE", image)
    assert cloud.extra_specs(reservation["id"])[f"accel:{way}"] == name
    server_id = cloud.boot("s", reservation["id"])
    assert (cloud.server(server_id)["status"], len(cloud.held(server_id))) == ("ACTIVE", 2)
    until(cloud, 11)
    assert (cloud.lease(made["id"])["status"], cloud.host.carries(R1)) == ("TERMINATED", "")
    assert cloud.host.programs() == [R1, R1]


def test_an_unknown_function_is_not_found(cloud):
    cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES, function_name="aes")
    for named in ({"function_id": SHA}, {"function_name": "sha"}, {"bitstream_id": cloud.ids.uuid()}):
        refused = create(cloud, of(**named), start=START, status=404)["error_message"]
        assert refused.startswith(f"{next(iter(named))}: no image fits ")
    small = f"CUSTOM_FPGA_INTEL_REGION_{TYPE_R2.replace('-', '_').upper()}"
    only_there = {"resources": {FPGA: 1}, "traits": {small: "required"}, "function_id": AES}
    refused = create(cloud, of_any(1, **only_there), start=START, status=404)["error_message"]
    assert f"of type {TYPE_R2}" in refused


def test_a_function_with_two_images_is_refused_and_delays_a_start(cloud):
    """Creating the second image before the request causes a refusal; creating it afterwards delays the start."""
    first = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, of(function_id=AES), start=START)
    second = cloud.bitstream("b", region_uuid=TYPE_R1, function_uuid=AES)
    refused = create(cloud, of(function_id=AES), start="2026-03-01 13:00", status=400)["error_message"]
    assert f"{min(first, second)} (" in refused
    assert f"{max(first, second)} (" in refused
    until(cloud, 12)
    assert (cloud.lease(made["id"])["status"], cloud.host.programs()) == ("STARTING", [])
    cloud.remove_bitstream(second)
    cloud.run_for(120)
    assert (cloud.lease(made["id"])["status"], cloud.host.carries(R1)) == ("ACTIVE", first)


def test_the_way_of_naming_a_bitstream_can_be_changed_before_the_start(cloud):
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    made = create(cloud, with_function(image), start=START)
    (shown,) = change(cloud, made, function_id=AES)["lease"]["reservations"]
    assert (shown["bitstream_id"], shown["function_id"]) == ("", AES)
    change(cloud, made, function_id=SHA, status=404)
    until(cloud, 12)
    assert cloud.host.carries(R1) == image


def test_a_bitstream_that_somebody_else_programmed_is_not_removed(cloud):
    """An operator programmed the region during the lease."""
    cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    create(cloud, of(function_id=AES), end="2026-03-01 11:00")
    cloud.run_for(10)
    other = cloud.bitstream("b", region_uuid=TYPE_R1, function_uuid=SHA)
    (part,) = [part for part in cloud.accelerators.deployables() if part.name == f"{HOST}_{R1}"]
    cloud.accelerators.program(part.uuid, ProgramRequest(other), "demo")
    until(cloud, 11)
    assert cloud.host.carries(R1) == other
