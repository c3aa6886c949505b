"""Reservations of floating IPs: registered addresses, their assignment, and the effects in Neutron."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import Unavailable
from tests.wire.reservation.neutron import INSIDE, NETWORK, SUBNET, SUBNET6, Neutron
from tests.wire.reservation.plane import Plane, instance, lease

ENDS = datetime(2026, 3, 2, 10, tzinfo=UTC)
MEMBER = {"user": "user", "project": "demo", "roles": ("member",)}
LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}


@pytest.fixture
def neutron():
    return Neutron()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One plane per module, for tests that change nothing because their requests are refused."""
    with Plane(tmp_path_factory.mktemp("shared"), neutron=Neutron()) as plane:
        yield plane


@pytest.fixture
def plane(new_plane, neutron):
    return new_plane(neutron=neutron)


def register(plane, *numbers):
    """Registers the addresses that end with these numbers; returns {address: id}."""
    made = {}
    for number in numbers:
        body = {"floating_network_id": NETWORK, "floating_ip_address": f"192.0.2.{number}"}
        made[f"192.0.2.{number}"] = plane.ask("POST", "/v1/floatingips", body, status=201)["floatingip"]["id"]
    return made


def addresses(amount=1, *required, network=NETWORK):
    """The body of a reservation of floating IPs, as stock clients send it."""
    return {
        "resource_type": "virtual:floatingip",
        "network_id": network,
        "amount": amount,
        "required_floatingips": list(required),
    }


def create(plane, *reservations, status=201, **period):
    document = plane.ask("POST", "/v1/leases", lease(*reservations, **period), status=status, **MEMBER)
    return document["lease"] if status == 201 else document["error_message"]


def update(plane, made, status=200, **values):
    """Updates the lease, or its first reservation."""
    change = {name: values.pop(name) for name in ("start_date", "end_date") if name in values}
    if values:
        change["reservations"] = [{"id": made["reservations"][0]["id"], **values}]
    document = plane.ask("PUT", f"/v1/leases/{made['id']}", change, status=status, **MEMBER)
    return document["lease"] if status == 200 else document["error_message"]


def ours(version):
    return {"version": version, **MEMBER}


# ------------------------------------------------------------------------------------------ registered addresses


def test_an_address_is_registered_shown_and_unregistered(plane):
    body = {"floating_network_id": NETWORK, "floating_ip_address": "192.0.2.7"}
    made = plane.ask("POST", "/v1/floatingips", body, status=201)["floatingip"]
    assert made == {
        **body, "id": made["id"], "subnet_id": SUBNET, "reservable": True, "created_at": made["created_at"], "updated_at": None
    }  # fmt: skip
    assert plane.ask("GET", "/v1/floatingips", **MEMBER) == {"floatingips": [made]}
    assert plane.ask("GET", f"/v1/floatingips/{made['id']}.json", **MEMBER) == {"floatingip": made}
    plane.ask("DELETE", f"/v1/floatingips/{made['id']}", status=204)
    for method in ("GET", "DELETE"):
        refused = plane.ask(method, f"/v1/floatingips/{made['id']}", status=404)
        assert refused["error_message"] == f"Floating IP {made['id']} not found."


def test_ipv4_and_ipv6_addresses_are_stored_in_neutrons_notation(plane):
    body = {"floating_network_id": NETWORK, "floating_ip_address": "2001:DB8:0::7"}
    made = plane.ask("POST", "/v1/floatingips", body, status=201)["floatingip"]
    assert (made["floating_ip_address"], made["subnet_id"]) == ("2001:db8::7", SUBNET6)
    assert plane.ask("POST", "/v1/floatingips", body, status=409)["error_message"].endswith("is already registered")


@pytest.mark.parametrize(
    ("network", "address", "word"),
    [
        (NETWORK, "192.0.2.150", "is in the allocation pool 192.0.2.100 to 192.0.2.200"),
        (NETWORK, "192.0.2.100", "is in the allocation pool"),
        (NETWORK, "192.0.2.1", "is the gateway"),
        (NETWORK, "192.0.2.0", "is the first or last address"),
        (NETWORK, "192.0.2.255", "is the first or last address"),
        (NETWORK, "198.51.100.7", "is in no subnet"),
        (NETWORK, "floating", "is not an IP address"),
        (INSIDE, "192.0.2.7", "is not external"),
        ("nowhere", "192.0.2.7", "network nowhere does not exist"),
        ("..", "192.0.2.7", "does not exist"),
    ],
)
def test_an_address_that_can_never_be_reserved_is_refused(shared, network, address, word):
    body = {"floating_network_id": network, "floating_ip_address": address}
    assert word in shared.ask("POST", "/v1/floatingips", body, status=400)["error_message"]
    assert shared.ask("GET", "/v1/floatingips") == {"floatingips": []}


def test_the_error_names_the_missing_parameter(shared):
    refused = shared.ask("POST", "/v1/floatingips", {"floating_network_id": NETWORK}, status=400)
    assert refused["error_message"] == "Missing parameter floating_ip_address"


def test_an_address_in_use_cannot_be_registered(plane, neutron):
    neutron.ports.append(
        {"id": "p", "network_id": NETWORK, "address": "192.0.2.7", "project_id": "x", "device_owner": "network:router"}
    )
    body = {"floating_network_id": NETWORK, "floating_ip_address": "192.0.2.7"}
    refused = plane.ask("POST", "/v1/floatingips", body, status=409)
    assert "in use by port p (network:router) of project x" in refused["error_message"]


def test_without_a_network_service_every_route_says_so(new_plane):
    """Nothing can be listed, shown, deleted or created."""
    plane = new_plane()
    assert plane.ask("GET", "/v1/floatingips") == {"floatingips": []}
    for method in ("GET", "DELETE"):
        plane.ask(method, "/v1/floatingips/1", status=404)
    body = {"floating_network_id": NETWORK, "floating_ip_address": "192.0.2.7"}
    for path, wanted in (("/v1/floatingips", body), ("/v1/leases", lease(addresses()))):
        assert "[endpoints] network" in plane.ask("POST", path, wanted, status=501)["error_message"]


def test_an_address_of_a_lease_cannot_be_unregistered(plane):
    ids = register(plane, 7)
    made = create(plane, addresses(1))
    refused = plane.ask("DELETE", f"/v1/floatingips/{ids['192.0.2.7']}", status=409)
    assert "192.0.2.7 is reserved" in refused["error_message"]
    plane.ask("DELETE", f"/v1/leases/{made['id']}", status=204, **MEMBER)
    plane.ask("DELETE", f"/v1/floatingips/{ids['192.0.2.7']}", status=204)


# ------------------------------------------------------------------------------------------------- assignment


def test_a_lease_has_its_addresses_from_its_start_to_its_end(plane, neutron):
    """An address that is bound to a port at the end is deleted too, as in the peer."""
    register(plane, 7, 8, 9)
    made = create(plane, addresses(2))
    (reservation,) = made["reservations"]
    wanted = {"network_id": NETWORK, "amount": 2, "required_floatingips": [], "status": "pending"}
    assert reservation | wanted == reservation
    assert neutron.floating_ips == {}
    plane.run_for(10)
    assert plane.lease(made["id"])["status"] == "ACTIVE"
    assert neutron.addresses() == ["192.0.2.7", "192.0.2.8"]
    tags = {frozenset(each["tags"]) for each in neutron.floating_ips.values()}
    assert tags == {frozenset({"blazar", f"reservation:{reservation['id']}"})}
    assert {each["subnet_id"] for each in neutron.floating_ips.values()} == {SUBNET}
    bound = next(iter(neutron.floating_ips))
    neutron.floating_ips[bound]["port_id"] = "port"
    neutron.asked.clear()
    plane.run_until(ENDS)
    plane.run_for(10)
    assert plane.lease(made["id"])["status"] == "TERMINATED"
    assert neutron.floating_ips == {}
    assert neutron.asked.index(("PUT", f"/floatingips/{bound}")) < neutron.asked.index(
        ("DELETE", f"/floatingips/{bound}")
    )
    register(plane, 10)  # an ended lease keeps no addresses
    assert create(plane, addresses(4), end="2026-03-03 10:00")["status"] == "PENDING"


def test_required_addresses_come_first(plane, neutron):
    """They are kept for the reservation that requires them, also if another one of the lease could use them."""
    register(plane, 7, 8, 9)
    create(plane, addresses(1), addresses(1, "192.0.2.7"), **LATER)
    create(plane, addresses(1, "192.0.2.9"))
    plane.run_for(10)
    assert neutron.addresses() == ["192.0.2.9"]


@pytest.mark.parametrize(
    ("reservation", "word"),
    [
        (addresses(2), "2 requested on network .* only 1 of its 2 registered addresses is free in that period; .* from 2026-03-06 10:00"),
        (addresses(1, "192.0.2.7"), "192.0.2.7 is allocated to another reservation in that period; all addresses are available from 2026-03-06 10:00 on"),
        (addresses(1, "192.0.2.99"), "192.0.2.99 is not registered .*; all addresses are available at no time within 90 days"),
        (addresses(1, network=INSIDE), "only 0 of its 0 registered addresses are free in that period; .* at no time"),
    ],
)  # fmt: skip
def test_a_shortage_of_addresses_is_refused_with_the_reason_and_the_next_time(plane, reservation, word):
    """The status is 400, as in the peer."""
    register(plane, 7, 8)
    create(plane, addresses(1, "192.0.2.7"), **LATER)
    refused = create(plane, reservation, status=400, **LATER)
    assert refused.startswith("Not enough floating IPs available: ")
    assert re.search(word, refused), refused
    assert len(plane.ask("GET", "/v1/leases")["leases"]) == 1


def test_back_to_back_leases_can_use_one_address(plane, neutron):
    register(plane, 7)
    first = create(plane, addresses(1))
    second = create(plane, addresses(1), start="2026-03-02 10:00", end="2026-03-03 10:00")
    create(plane, addresses(1), start="2026-03-02 09:59", end="2026-03-03 10:00", status=400)
    plane.run_until(ENDS)
    plane.run_for(20)
    states = [plane.lease(made["id"])["status"] for made in (first, second)]
    assert states == ["TERMINATED", "ACTIVE"]
    ((floating_ip),) = neutron.floating_ips.values()
    assert f"reservation:{second['reservations'][0]['id']}" in floating_ip["tags"]


@pytest.mark.parametrize(
    ("reservation", "word"),
    [
        ({**addresses(), "network_id": None}, "Malformed parameter network_id"),
        ({**addresses(), "amount": 0}, "amount must be >= 1"),
        ({**addresses(), "amount": "0"}, "amount must be >= 1"),
        ({**addresses(), "amount": "many"}, "Malformed parameter amount"),
        ({**addresses(), "required_floatingips": ["x"]}, "Malformed parameter required_floatingips"),
        (addresses(1, "192.0.2.7", "192.0.2.8"), "names 2 addresses, which is more than the amount of 1"),
    ],
)
def test_malformed_reservations_are_refused(shared, reservation, word):
    assert word in create(shared, reservation, status=400)


def test_an_amount_may_be_text(plane):
    """The peer accepts it."""
    register(plane, 7)
    assert create(plane, {**addresses(), "amount": "1"})["reservations"][0]["amount"] == 1


def test_a_refusal_leaves_nothing_of_the_other_reservations(plane):
    plane.add_host()
    plane.register()
    create(plane, instance(1), addresses(1), status=400)
    assert plane.ask("GET", "/v1/leases") == {"leases": []}
    create(plane, instance(8, disk_gb=0))  # uses the whole host


# -------------------------------------------------------------------------------------- crashes, losses, outages


class Lost(Unavailable):
    """A request or its answer was lost."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_start_is_repeated_without_a_second_floating_ip(new_plane, moment):
    """Each request fails in turn, before or after it is carried out; the next attempt finds the result."""
    for number in range(8):
        neutron = Neutron()
        plane = new_plane(neutron=neutron)
        register(plane, 7, 8)
        made = create(plane, addresses(2))
        neutron.asked.clear()
        met = []

        def lose(method, path, number=number, neutron=neutron, met=met):
            # The client sends a repeatable request up to three times.
            if not met and len(neutron.asked) == number + (moment == "after"):
                met.append((method, path))
            if met and met[-1] == (method, path) and len(met) < 5:
                met.append((method, path))
                raise Lost("nobody answers")

        setattr(neutron, moment, lose)
        plane.run_for(60)
        assert plane.lease(made["id"])["status"] == "ACTIVE"
        assert neutron.addresses() == ["192.0.2.7", "192.0.2.8"]
        assert all(len(each["tags"]) == 2 for each in neutron.floating_ips.values())
        if not met:
            assert number >= 5  # one list request, and for each of two addresses its creation and its tags
            return
    raise AssertionError("it makes more requests than this test counts on")


def test_an_end_waits_for_neutron(plane, neutron):
    register(plane, 7, 8)
    made = create(plane, addresses(2))
    plane.run_for(10)
    gone = next(iter(neutron.floating_ips))
    del neutron.floating_ips[gone]  # its project deleted it
    neutron.is_down = True
    plane.run_until(ENDS)
    plane.run_for(30)
    assert plane.lease(made["id"])["status"] == "TERMINATING"
    neutron.is_down = False
    plane.run_for(120)
    assert plane.lease(made["id"])["status"] == "TERMINATED"
    assert neutron.floating_ips == {}


def test_an_end_deletes_floating_ips_whose_tags_were_removed(plane, neutron):
    """The project may remove tags and change the description; the address still belongs to the reservation."""
    register(plane, 7, 8)
    create(plane, addresses(1, "192.0.2.7"))
    plane.run_for(10)
    (mine,) = neutron.floating_ips.values()
    mine |= {"tags": [], "description": "web"}
    neutron.floating_ips["other"] = {**mine, "id": "other", "floating_ip_address": "192.0.2.8"}
    plane.run_until(ENDS)
    plane.run_for(10)
    assert neutron.addresses() == ["192.0.2.8"]


def test_a_lease_that_never_started_sends_nothing_to_neutron(plane, neutron):
    """Another reservation of the project may already use the address."""
    register(plane, 7)
    create(plane, addresses(1))
    plane.run_for(10)
    second = create(plane, addresses(1), **LATER)
    neutron.asked.clear()
    plane.ask("DELETE", f"/v1/leases/{second['id']}", status=204, **MEMBER)
    assert neutron.asked == []
    assert neutron.addresses() == ["192.0.2.7"]


def test_a_start_waits_for_an_address_that_somebody_uses(plane, neutron):
    register(plane, 7)
    made = create(plane, addresses(1))
    taken = {"floating_network_id": NETWORK, "floating_ip_address": "192.0.2.7", "project_id": "x", "description": "",
             "port_id": None, "tags": []}  # fmt: skip
    neutron.floating_ips["taken"] = {"id": "taken", **taken}
    plane.run_for(20)
    assert plane.lease(made["id"])["status"] == "STARTING"
    timeline = plane.ask("GET", f"/v1/leases/{made['id']}/timeline", version="1.1")
    assert "192.0.2.7 is still in use: floating IP taken of project x" in str(timeline)
    del neutron.floating_ips["taken"]
    plane.run_for(60)
    assert plane.lease(made["id"])["status"] == "ACTIVE"
    assert neutron.addresses("x") == []


def test_many_floating_ips_are_created_in_several_turns(plane, neutron):
    """The claim on the event is renewed after each `AT_ONCE`."""
    register(plane, *range(2, 47))
    made = create(plane, addresses(45))
    plane.run_for(20)
    assert plane.lease(made["id"])["status"] == "ACTIVE"
    assert len(neutron.floating_ips) == 45
    plane.ask("DELETE", f"/v1/leases/{made['id']}", status=204, **MEMBER)
    plane.run_for(10)
    assert neutron.floating_ips == {}


# ------------------------------------------------------------------------------------------------------- updates


def test_an_active_reservation_grows(plane, neutron):
    register(plane, 7, 8, 9)
    made = create(plane, addresses(1))
    plane.run_for(10)
    changed = update(plane, made, amount=2)
    assert changed["reservations"][0]["amount"] == 2
    assert neutron.addresses() == ["192.0.2.7", "192.0.2.8"]
    assert "keeps its floating IPs" in update(plane, made, 400, amount=1)
    assert "Not enough floating IPs available: 4 requested" in update(plane, made, 400, amount=4)
    assert plane.lease(made["id"])["status"] == "ACTIVE"
    assert len(neutron.floating_ips) == 2


def test_before_the_start_an_amount_may_shrink(plane):
    register(plane, 7, 8)
    made = create(plane, addresses(2), **LATER)
    create(plane, addresses(1), status=400, **LATER)
    update(plane, made, amount=1)
    create(plane, addresses(1), **LATER)


def test_an_update_cannot_change_the_network_and_can_only_clear_required_addresses(plane):
    register(plane, 7, 8)
    made = create(plane, addresses(1, "192.0.2.8"), **LATER)
    update(plane, made, network_id=NETWORK, required_floatingips=["192.0.2.8"])
    assert "network_id cannot be changed" in update(plane, made, 400, network_id=INSIDE)
    assert "can only be emptied" in update(plane, made, 400, required_floatingips=["192.0.2.7"])
    changed = update(plane, made, required_floatingips=[])
    assert changed["reservations"][0]["required_floatingips"] == []


def test_a_prolonged_lease_keeps_its_addresses(plane, neutron):
    """It keeps them if they are free; before its start it may get other addresses."""
    register(plane, 7, 8)
    made = create(plane, addresses(1))
    create(plane, addresses(1, "192.0.2.7"), start="2026-03-02 12:00", end="2026-03-02 13:00")
    waiting = create(plane, addresses(1), start="2026-03-02 11:00", end="2026-03-02 12:00")
    plane.run_for(10)
    assert neutron.addresses() == ["192.0.2.7"]
    prolongation = plane.ask("GET", f"/v1/leases/{made['id']}/prolongation", **ours("1.1"))["prolongation"]
    assert (prolongation["latest_end_date"], prolongation["limited"]) == ("2026-03-02T11:00:00.000000", True)
    assert "192.0.2.7, which the reservation has now, cannot be kept" in update(
        plane, made, 400, end_date="2026-03-02 11:01"
    )
    update(plane, waiting, end_date="2026-03-02 12:30")  # moves to the other address
    update(plane, made, end_date="2026-03-02 12:00")
    plane.run_until(datetime(2026, 3, 2, 11, 30, tzinfo=UTC))
    assert neutron.addresses() == ["192.0.2.7", "192.0.2.8"]


# ------------------------------------------------------------------------------- rehearsals, offers, limits, series


def test_a_dry_run_names_the_addresses(plane, neutron):
    register(plane, 7, 8)
    (shown,) = plane.ask("POST", "/v1/leases/dry-run", lease(addresses(2)), **ours("1.1"))["lease"]["reservations"]
    assert shown["floating_ips"] == ["192.0.2.7", "192.0.2.8"]
    made = create(plane, addresses(1))
    path = f"/v1/leases/{made['id']}/dry-run"
    change = {"reservations": [{"id": made["reservations"][0]["id"], "amount": 2}]}
    (shown,) = plane.ask("POST", path, change, **ours("1.1"))["lease"]["reservations"]
    assert shown["floating_ips"] == ["192.0.2.7", "192.0.2.8"]
    refused = plane.ask("POST", "/v1/leases/dry-run", lease(addresses(2)), status=400, **ours("1.1"))
    assert "all addresses are available from 2026-03-02 10:00 on" in refused["error_message"]
    assert plane.lease(made["id"])["reservations"][0]["amount"] == 1


def test_offers_consider_hosts_and_addresses_together(plane):
    plane.add_host()
    plane.register()
    register(plane, 7)
    create(plane, addresses(1), start="2026-03-01 10:00", end="2026-03-01 12:00")
    create(plane, instance(8), start="2026-03-01 12:00", end="2026-03-01 13:00")
    search = {"duration_minutes": 60, "reservations": [instance(1), addresses(1)]}
    found = plane.ask("POST", "/v1/offers", {**search, "limit": 2}, **ours("1.1"))
    assert [each["start_date"] for each in found["offers"]] == [
        "2026-03-01T13:00:00.000000", "2026-03-01T14:00:00.000000"
    ]  # fmt: skip
    assert "only 0 of its 1 registered addresses are free" in str(found["earliest_start"])
    refused = plane.ask("POST", "/v1/holds", search, status=400, **ours("1.1"))
    assert "a hold only covers hosts" in refused["error_message"]


def test_floating_ips_count_against_the_limits_of_the_project(new_plane, neutron):
    plane = new_plane(neutron=neutron, enforcement={"limits": "FLOATING_IPS=2"})
    register(plane, 7, 8, 9)
    made = create(plane, addresses(1), **LATER)
    refused = create(plane, addresses(2), status=403, **LATER)
    assert "at most 2 FLOATING_IPS may be reserved at any one time" in refused
    assert "1 are in use, and this request adds 2" in refused
    update(plane, made, amount=2)
    assert "2 are in use, and this request adds 1" in update(plane, made, 403, amount=3)
    plane.ask("DELETE", f"/v1/leases/{made['id']}", status=204, **MEMBER)
    create(plane, addresses(2), **LATER)


def test_a_series_gets_addresses_for_all_its_leases_or_none(plane):
    register(plane, 7)
    create(plane, addresses(1), start="2026-03-12 10:00", end="2026-03-12 11:00")
    series = {**lease(addresses(1), start="2026-03-05 10:00", end="2026-03-05 11:00"), "every_days": 7}
    del series["before_end_date"], series["events"]
    refused = plane.ask("POST", "/v1/leases/series", {**series, "count": 2}, status=400, **ours("1.1"))
    assert "only 0 of its 1 registered addresses are free" in refused["error_message"]
    made = plane.ask("POST", "/v1/leases/series", {**series, "every_days": 14, "count": 2}, status=201, **ours("1.1"))
    assert len(made["leases"]) == 2


def test_a_snapshot_before_the_end_ignores_address_reservations(plane, neutron):
    register(plane, 7)
    body = {**lease(addresses(1)), "before_end_actions": [{"action": "snapshot"}]}
    made = plane.ask("POST", "/v1/leases", body, status=201, **ours("1.1"))["lease"]
    plane.run_for(10)
    plane.run_until(ENDS - timedelta(minutes=30))
    assert {each["event_type"]: each["status"] for each in plane.lease(made["id"])["events"]} == {
        "start_lease": "DONE", "before_end_lease": "DONE", "end_lease": "UNDONE"
    }  # fmt: skip
