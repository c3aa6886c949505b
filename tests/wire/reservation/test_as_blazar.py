"""Microversion 1.0 accepts what Blazar 18 accepts: unknown keys, numbers as text, reservations that were read, and
events. Microversion 1.1 refuses unknown keys.
"""

import pytest

from tests.wire.reservation.neutron import NETWORK, Neutron
from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.test_flavor_reservations import flavor, of_flavor
from tests.wire.reservation.test_floating_ips import register
from tests.wire.reservation.test_host_reservations import whole

LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}


def create(plane, *reservations, version="1.0", **values):
    made = plane.ask("POST", "/v1/leases", lease(*reservations, **LATER) | values, status=201, version=version)["lease"]
    return made, made["reservations"][0]


def put(plane, made, reservation, status=200, version="1.0"):
    path = f"/v1/leases/{made['id']}"
    return plane.ask("PUT", path, {"reservations": [reservation]}, status=status, version=version)


def message(plane, method, path, body):
    """The refusal in 1.1."""
    status, answer = plane.answer(method, path, body, version="1.1")
    assert status == 400, answer
    return answer["error_message"]


def test_unknown_keys_of_a_lease_are_ignored_in_1_0_and_refused_in_1_1(reserved):
    made, _ = create(reserved, colour="red", status="ACTIVE", project_id="other")
    assert (made["status"], made["project_id"]) == ("PENDING", "demo")
    path = f"/v1/leases/{made['id']}"
    changed = reserved.ask("PUT", path, {"name": "n", "colour": "red", "project_id": "other"})["lease"]
    assert (changed["name"], changed["project_id"], changed["status"]) == ("n", "demo", "PENDING")
    assert message(reserved, "POST", "/v1/leases", lease(**LATER) | {"colour": "red"}) == "Unknown parameter colour"
    assert message(reserved, "PUT", path, {"colour": "red"}) == "Unknown parameter colour"


@pytest.mark.parametrize("kind", [instance, whole, of_flavor])
def test_unknown_keys_of_a_reservation_are_ignored_in_1_0_and_refused_in_1_1(gold, kind):
    flavor(gold)
    made, reservation = create(gold, kind() | {"colour": "red", "min_units": 1})
    put(gold, made, {"id": reservation["id"], "colour": "red", "network_id": "x"})
    path = f"/v1/leases/{made['id']}"
    assert gold.ask("GET", path)["lease"]["reservations"][0].items() >= (reservation | {"updated_at": None}).items()
    assert "Unknown parameter colour" in message(gold, "POST", "/v1/leases", lease(kind() | {"colour": 1}, **LATER))
    for key in ("colour", "network_id"):
        refused = message(gold, "PUT", path, {"reservations": [{"id": reservation["id"], key: "x"}]})
        assert f"Unknown parameter {key}" in refused


def test_unknown_keys_of_properties_and_addresses_are_ignored_in_1_0_and_refused_in_1_1(new_plane):
    plane = new_plane(neutron=Neutron())
    plane.add_host()
    plane.register(rack="9")
    path = "/v1/os-hosts/properties/rack"
    assert plane.ask("PATCH", path, {"private": True, "colour": "red"})["resource_property"]["private"] is True
    assert message(plane, "PATCH", path, {"private": True, "colour": "red"}) == "Unknown parameter colour"
    address = {"floating_network_id": NETWORK, "floating_ip_address": "192.0.2.7", "colour": "red"}
    assert message(plane, "POST", "/v1/floatingips", address) == "Unknown parameter colour"
    plane.ask("POST", "/v1/floatingips", address, status=201)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_amount_may_be_sent_as_text(reserved, version):
    made, reservation = create(reserved, instance("3"), version=version)
    assert reservation["amount"] == 3
    changed = put(reserved, made, {"id": reservation["id"], "amount": "4"}, version=version)
    assert changed["lease"]["reservations"][0]["amount"] == 4


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    ("kind", "change"),
    [(instance, {"amount": 2}), (of_flavor, {"amount": 2}), (whole, {"max": 2}), ("any", {"amount": 2})],
)
def test_a_reservation_that_was_read_can_be_changed_in_one_place_and_sent_back(gold, version, kind, change):
    flavor(gold)
    if kind == "any":
        asked = {"resource_type": "resource:any", "resources": {"VCPU": 1, "MEMORY_MB": 64}, "amount": 1}
        made, reservation = create(gold, asked, version="1.1")
    else:
        made, reservation = create(gold, kind())
    after = put(gold, made, reservation | change, version=version)["lease"]["reservations"][0]
    own = {key: after[key] for key in after if key != "updated_at"}
    assert own == {key: value for key, value in (reservation | change).items() if key != "updated_at"}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_addresses_that_were_read_can_be_sent_back(new_plane, version):
    plane = new_plane(neutron=Neutron())
    register(plane, 7, 8)
    asked = {"resource_type": "virtual:floatingip", "network_id": NETWORK, "amount": 1,
             "required_floatingips": ["192.0.2.7"]}  # fmt: skip
    made, reservation = create(plane, asked)
    after = put(plane, made, reservation | {"amount": 2}, version=version)["lease"]["reservations"][0]
    assert (after["amount"], after["required_floatingips"]) == (2, ["192.0.2.7"])


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_active_reservation_that_was_read_can_be_sent_back_with_another_amount(reserved, version):
    made = reserved.ask("POST", "/v1/leases", lease(instance(2)), status=201)["lease"]
    reserved.settle()
    reservation = reserved.lease(made["id"])["reservations"][0]
    assert put(reserved, made, reservation | {"amount": 3}, version=version)["lease"]["status"] == "ACTIVE"


def test_a_value_that_cannot_change_is_refused_when_it_is_another_one(reserved):
    made, reservation = create(reserved, instance(2))
    refused = message(reserved, "PUT", f"/v1/leases/{made['id']}", {"reservations": [reservation | {"flavor_id": "x"}]})
    assert "Unknown parameter flavor_id" in refused


def test_events_are_accepted_in_1_0(reserved):
    """``lease create --event`` sends them. The peer keeps them without their times, so that none of them comes; here
    that of ``before_end_lease`` counts.
    """
    asked = [
        {"event_type": "notification", "event_date": "2026-03-05 12:00"},
        {"event_type": "before_end_lease", "event_date": "2026-03-05 13:00"},
    ]
    for events, time in ((asked, "2026-03-05T13:00:00.000000"), (asked[:1], "2026-03-06T09:00:00.000000")):
        made, _ = create(reserved, events=events)
        assert {each["event_type"]: each["time"] for each in made["events"]}["before_end_lease"] == time
    words = "events cannot be set; use before_end_date to set the time of the before_end event"
    assert message(reserved, "POST", "/v1/leases", lease(**LATER) | {"events": asked}) == words
