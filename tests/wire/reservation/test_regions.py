"""The regions that servers of a reservation get, and slots that an update or healing adds after its start."""

import pytest

from moorage.core.names import RESERVED_REGION_TRAIT, reservation_trait
from tests.unit.accelerator.rig import AES, HOST, R2, R3, SHA, TYPE_R2, TYPE_R3
from tests.wire.reservation.accelerated import FPGA, Cloud
from tests.wire.reservation.processes import TRIES
from tests.wire.reservation.test_any_reservations import change, create, of_any
from tests.wire.reservation.test_functions import until
from tests.wire.reservation.test_healing import fail, flags, look, set_host
from tests.wire.reservation.test_host_reservations import START

OTHER = "compute-2"


@pytest.fixture
def small(tmp_path):
    """`HOST` has two regions of one unit each; images of two functions exist for each region."""
    with Cloud(tmp_path, regions=(R2, R3)) as cloud:
        for kind in (TYPE_R2, TYPE_R3):
            for function in (AES, SHA):
                cloud.bitstream(f"{kind} {function}", region_uuid=kind, function_uuid=function)
        yield cloud


def one(function, amount=1):
    return of_any(amount, {FPGA: 1, "VCPU": 1}, function_id=function)


def regions_of(cloud, server_id):
    return [name.removeprefix(f"{HOST}_") for name, what in cloud.allocated(server_id).items() if FPGA in what]


def carrying(cloud, function):
    """The regions that carry the image, according to the cards."""
    properties = [(region, cloud.images.image(cloud.host.carries(region)).properties) for region in (R2, R3)]
    return [region for region, has in properties if has["function_uuid"] == function]


def test_a_server_gets_the_region_that_was_programmed_for_it(small):
    """The host has another region of the same kind; the servers are created in any order."""
    made = {function: create(small, one(function), end="2026-03-01 11:00") for function in (AES, SHA)}
    small.run_for(10)
    loaded = small.host.programs()
    assert sorted(loaded) == sorted([R2, R3])
    for function in (SHA, AES):
        (reservation,) = made[function]["reservations"]
        server_id = small.boot("s", reservation["id"])
        assert small.server(server_id)["status"] == "ACTIVE"
        assert regions_of(small, server_id) == carrying(small, function)
    assert small.host.programs() == loaded
    until(small, 11)
    assert [small.host.carries(region) for region in loaded] == ["", ""]
    for lease in made.values():
        assert small.lease(lease["id"])["status"] == "TERMINATED"
        assert not small.placement.has_trait(reservation_trait(lease["reservations"][0]["id"]))


def test_servers_of_another_lease_do_not_get_a_programmed_region(small):
    """This includes servers of a lease that names no bitstream and could use any region of the host.

    The region belongs to the first lease, and its bitstream may be a private image.
    """
    (loaded,) = create(small, one(AES), end="2026-03-01 11:00")["reservations"]
    small.run_for(10)
    (region,) = small.host.programs()
    provider = small.placement.provider_by_name(f"{HOST}_{region}")
    assert RESERVED_REGION_TRAIT in small.placement.traits(provider.uuid)[1]
    (plain,) = create(small, of_any(1, {FPGA: 1, "VCPU": 1}), end="2026-03-01 11:00")["reservations"]
    small.run_for(10)
    other = small.boot("other", plain["id"])
    assert (small.server(other)["status"], regions_of(small, other) == [region]) == ("ACTIVE", False)
    own = small.boot("own", loaded["id"])
    assert (small.server(own)["status"], regions_of(small, own)) == ("ACTIVE", [region])
    until(small, 11)
    assert RESERVED_REGION_TRAIT not in small.placement.traits(provider.uuid)[1]


def test_all_regions_of_a_reservation_are_programmed_and_each_server_gets_one(small):
    made = create(small, one(AES, 2), end="2026-03-01 11:00")
    small.run_for(10)
    loaded = small.host.programs()
    servers = [small.boot(f"s{number}", made["reservations"][0]["id"]) for number in range(2)]
    assert sorted(region for each in servers for region in regions_of(small, each)) == sorted([R2, R3])
    assert (sorted(loaded), small.host.programs()) == (sorted([R2, R3]), loaded)


def test_the_region_of_an_added_slot_is_programmed_before_a_server_uses_it(small):
    """The region is cleared after the end, like the first one."""
    made = create(small, one(AES), end="2026-03-01 11:00")
    small.run_for(10)
    (reservation,) = made["reservations"]
    (first,) = small.host.programs()
    assert small.server(small.boot("first", reservation["id"]))["status"] == "ACTIVE"
    change(small, made, amount=2)
    assert small.lease(made["id"])["status"] == "ACTIVE"
    assert small.host.programs() == [first, *({R2, R3} - {first})]
    server_id = small.boot("second", reservation["id"])
    assert (small.server(server_id)["status"], regions_of(small, server_id)) == ("ACTIVE", [*({R2, R3} - {first})])
    assert len(small.host.programs()) == 2
    until(small, 11)
    assert small.lease(made["id"])["status"] == "TERMINATED"
    assert (small.host.carries(R2), small.host.carries(R3)) == ("", "")


def test_an_added_slot_gets_no_server_before_its_region_was_programmed_once(small):
    """The host is down when the reservation grows; then the answer to the programming request is lost."""
    made = create(small, one(AES), end="2026-03-01 12:00")
    small.run_for(10)
    (reservation,) = made["reservations"]
    small.boot("first", reservation["id"])
    small.program_nothing()
    change(small, made, amount=2)
    assert small.lease(made["id"])["status"] == "UPDATING"
    assert small.server(small.boot("early", reservation["id"]))["status"] == "ERROR"
    assert len(small.host.programs()) == 1
    lost = small.lose_answers()
    small.run_for(20)
    assert (small.lease(made["id"])["status"], lost) == ("ACTIVE", {"replace": TRIES})
    assert small.server(small.boot("second", reservation["id"]))["status"] == "ACTIVE"
    assert sorted(small.host.programs()) == sorted([R2, R3])


@pytest.fixture
def two(tmp_path):
    """`HOST` and `OTHER` have one region each, of the same kind; the host monitor does not run."""
    with Cloud(tmp_path, regions=(R2,), reservation={"healing_interval_s": 4 * 3600}) as cloud:
        cloud.bitstream(region_uuid=TYPE_R2, function_uuid=AES)
        cloud.other = cloud.add_accelerated(OTHER, (R2,))
        yield cloud


def traits(cloud, host):
    return cloud.placement.traits(cloud.placement.provider_by_name(f"{host}_{R2}").uuid)[1]


def test_the_region_of_a_moved_slot_is_programmed_on_the_new_host(two):
    """No server uses the old region, which is also cleared after the end."""
    made = create(two, one(AES), end="2026-03-01 11:00")
    two.run_for(10)
    (reservation,) = made["reservations"]
    trait = reservation_trait(reservation["id"])
    assert (two.host.programs(), two.other.cards.programmed, trait in traits(two, HOST)) == ([R2], [], True)
    fail(two, HOST)
    assert (two.lease(made["id"])["status"], flags(two, made)) == ("ACTIVE", (True, False, True))
    assert (two.other.programs(), trait in traits(two, HOST), trait in traits(two, OTHER)) == ([R2], False, True)
    server_id = two.boot("s", reservation["id"])
    assert two.server(server_id)["status"] == "ACTIVE"
    assert two.allocated(server_id)[f"{OTHER}_{R2}"] == {FPGA: 1}
    until(two, 11)
    assert two.lease(made["id"])["status"] == "TERMINATED"
    assert (two.host.carries(R2), two.other.carries(R2)) == ("", "")
    assert (two.other.programs(), two.placement.has_trait(trait)) == ([R2, R2], False)


def test_a_region_that_another_lease_uses_now_is_not_cleared(two):
    made = create(two, one(AES), end="2026-03-01 11:00")
    two.run_for(10)
    fail(two, HOST)
    set_host(two, HOST, up=True)
    look(two)
    after = create(two, one(AES), end="2026-03-01 12:00")
    two.run_for(10)
    assert two.lease(after["id"])["status"] == "ACTIVE"
    until(two, 11)
    assert two.lease(made["id"])["status"] == "TERMINATED"
    assert (two.host.carries(R2) != "", two.other.carries(R2)) == (True, "")
    assert two.server(two.boot("s", after["reservations"][0]["id"]))["status"] == "ACTIVE"


def test_a_host_that_was_down_at_the_start_programs_its_region_when_it_is_back(two):
    """The lease starts without this host."""
    create(two, one(AES))
    made = create(two, one(AES), start=START)
    two.run_for(10)
    fail(two, OTHER)
    until(two, 12)
    (reservation,) = made["reservations"]
    assert (two.lease(made["id"])["status"], two.other.programs()) == ("ACTIVE", [])
    assert flags(two, made) == (True, True, False)
    set_host(two, OTHER, up=True)
    look(two)
    assert (two.lease(made["id"])["status"], two.other.programs()) == ("ACTIVE", [R2])
    assert flags(two, made) == (False, False, False)
    assert two.server(two.boot("s", reservation["id"]))["status"] == "ACTIVE"


def test_a_lease_ends_without_a_host_that_is_down_and_its_region_is_cleared_later(two):
    """The region is cleared before it is programmed again."""
    made = create(two, one(AES), end="2026-03-01 11:00")
    two.run_for(10)
    two.hosts_hear = False
    until(two, 11)
    assert (two.lease(made["id"])["status"], two.host.carries(R2) != "") == ("TERMINATED", True)
    two.hosts_work()
    assert (two.host.carries(R2), two.host.programs()) == ("", [R2, R2])
