"""Servers with devices from a device profile, launched on a reservation of their flavor."""

from tests.unit.accelerator.rig import AES, GPU, HOST, R1, TYPE_R1
from tests.wire.reservation.accelerated import FPGA, GPUS, IS_R1
from tests.wire.reservation.plane import class_of
from tests.wire.reservation.test_flavor_reservations import flavor, of_flavor
from tests.wire.reservation.test_host_reservations import create, held


def profile(cloud, name, *groups):
    body = [{"name": name, "groups": list(groups)}]
    cloud.ask("POST", "/v2/device_profiles", body, status=201, service="accelerator")
    return name


def reserved(cloud, name, amount=1):
    """An active reservation, until 11:00, of a flavor with devices from the given profile."""
    flavor(cloud, specs={"accel:device_profile": name})
    made = create(cloud, of_flavor(amount=amount), start="now", end="2026-03-01 11:00")
    cloud.run_for(10)
    assert cloud.lease(made["id"])["status"] == "ACTIVE"
    return made["reservations"][0]


def bound(cloud, server_id):
    """The accelerator requests of a server: (host, state)."""
    cloud.host.plane.task("accelerator-agent").run_once()
    return [(one.hostname, one.state) for one in cloud.accelerators.requests(server_id)]


def test_a_server_gets_its_device_and_a_slot_of_the_reservation(cloud):
    reservation = reserved(cloud, profile(cloud, "one-gpu", {f"resources:{GPUS}": "1"}))
    own = class_of(reservation)
    assert cloud.extra_specs(reservation["id"]) == {"accel:device_profile": "one-gpu", f"resources:{own}": "1"}
    server_id = cloud.boot("s", reservation["id"])
    assert (cloud.server(server_id)["status"], len(cloud.held(server_id))) == ("ACTIVE", 1)
    assert bound(cloud, server_id) == [(HOST, "Bound")]
    allocated = cloud.allocated(server_id)
    assert (allocated[f"{HOST}_{GPU}"], allocated[f"blazar_{HOST}"]) == ({GPUS: 1}, {own: 1})


def test_a_deleted_server_frees_its_device_and_its_slot(cloud):
    reservation = reserved(cloud, profile(cloud, "one-gpu", {f"resources:{GPUS}": "1"}))
    first = cloud.boot("first", reservation["id"])
    second = cloud.boot("second", reservation["id"])
    assert (cloud.server(second)["status"], cloud.held(second)) == ("ERROR", [])
    cloud.compute.delete_server(first)
    cloud.settle()
    assert (cloud.held(first), bound(cloud, first), cloud.allocated(first)) == ([], [], {})
    third = cloud.boot("third", reservation["id"])
    assert (cloud.server(third)["status"], len(cloud.held(third))) == ("ACTIVE", 1)


def test_the_end_of_the_lease_leaves_nothing(cloud):
    """The server runs until the end of the lease."""
    reservation = reserved(cloud, profile(cloud, "one-gpu", {f"resources:{GPUS}": "1"}))
    server_id = cloud.boot("s", reservation["id"])
    cloud.run_until(cloud.clock.now().replace(hour=11, minute=0, second=5))
    cloud.run_for(20)
    assert cloud.lease(reservation["lease_id"])["status"] == "TERMINATED"
    assert (cloud.server(server_id), cloud.host.agent.attach_state.attachments, bound(cloud, server_id)) == (
        None,
        {},
        [],
    )
    assert cloud.allocated(server_id) == {}
    assert cloud.flavor(reservation["id"]) is None
    assert not cloud.has_class(class_of(reservation))
    assert held(cloud, reservation) == []


def test_the_function_named_by_a_profile_is_programmed(cloud):
    image = cloud.bitstream(region_uuid=TYPE_R1, function_uuid=AES)
    groups = {f"resources:{FPGA}": "1", f"trait:{IS_R1}": "required", "accel:function_id": AES}
    reservation = reserved(cloud, profile(cloud, "aes", groups), amount=2)
    servers = [cloud.boot(f"s{number}", reservation["id"]) for number in range(2)]
    assert [cloud.server(each)["status"] for each in servers] == ["ACTIVE", "ACTIVE"]
    assert (cloud.host.carries(R1), cloud.host.programs()) == (image, [R1])
    assert [cloud.allocated(each)[f"{HOST}_{R1}"] for each in servers] == [{FPGA: 1}] * 2
