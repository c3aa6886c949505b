"""Servers in a resize or a move at the end of their lease: the lease still ends."""

from datetime import timedelta

import pytest

from moorage.core.errors import RemoteError
from tests.wire.reservation.plane import instance
from tests.wire.reservation.processes import CONFIRM_RESIZE
from tests.wire.reservation.test_lifecycle import ENDS, LATER, STARTS, create, traces


@pytest.fixture
def two(new_plane):
    """A plane with compute-1 for reservations, compute-2 for ordinary servers, and a public flavor."""
    return new_plane(_two)


def _two(plane):
    plane.add_host()
    plane.register()
    plane.add_host("compute-2")
    plane.compute.create_flavor("plain", "plain", 1, 512, 10, public=True)


def minutes(plane, number):
    """Lets this many minutes pass; hosts do their jobs after each minute."""
    for _ in range(number):
        plane.run_until(plane.clock.now() + timedelta(minutes=1))


def end(plane, made):
    plane.run_until(ENDS)
    minutes(plane, 2)
    assert plane.lease(made["id"])["status"] == "TERMINATED"


def why(plane, made):
    """The reason in the timeline of the lease why its end is not complete."""
    found = plane.ask("GET", f"/v1/leases/{made['id']}/timeline", version="1.1")["timeline"]
    return next(each["error"] for each in found if each["event_type"] == "end_lease")


def confirmed(plane, server):
    rows = plane.ask("GET", f"/v2.1/servers/{server}/os-instance-actions", service="compute")["instanceActions"]
    return [row["user_id"] for row in rows if row["action"] == "confirmResize"]


def test_a_server_resized_to_another_flavor_survives_the_end(two):
    """Until the resize is confirmed or reverted, it still holds the slot that the server had before."""
    made, reservation = create(two, instance(1), **LATER)
    two.run_until(STARTS)
    server = two.boot("s", reservation["id"])
    two.resize(server, "plain")
    assert two.server(server)["status"] == "VERIFY_RESIZE"
    end(two, made)
    shown = two.server(server)
    assert (shown["status"], shown["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "compute-2")
    assert confirmed(two, server) == ["moorage"]
    assert traces(two, reservation) == []


def test_a_server_resized_to_the_leases_flavor_is_deleted_at_the_end(two):
    made, reservation = create(two, instance(1), **LATER)
    two.run_until(STARTS)
    server = two.boot("s", "plain")
    two.compute.add_flavor_access(reservation["id"], "service")  # the project of the requests that `ask` sends
    two.resize(server, reservation["id"])
    assert two.server(server)["OS-EXT-SRV-ATTR:host"] == "compute-1"
    end(two, made)
    assert two.server(server) is None
    assert traces(two, reservation) == []


@pytest.mark.parametrize("outcome", ["there", "back"])
def test_the_end_waits_for_a_server_with_a_resize_in_progress(two, outcome):
    """In both directions, the server does not have the flavor of the lease when the other servers are deleted."""
    made, reservation = create(two, instance(1), **LATER)
    two.run_until(STARTS)
    server = two.boot("s", reservation["id"])
    two.resize(server, "plain")
    two.stop_hosts()
    if outcome == "back":
        two.act(server, "revertResize")
    else:
        two.act(server, "confirmResize")
    two.run_until(ENDS + timedelta(minutes=1))
    assert two.lease(made["id"])["status"] == "TERMINATING"
    assert "1 of CUSTOM_RESERVATION_" in why(two, made)
    two.start_hosts()
    minutes(two, 3)
    assert two.lease(made["id"])["status"] == "TERMINATED"
    assert (two.server(server) is None) == (outcome == "back")
    assert traces(two, reservation) == []


def test_the_timeline_shows_why_a_resize_cannot_be_confirmed(two):
    made, reservation = create(two, instance(1), **LATER)
    two.run_until(STARTS)
    server = two.boot("s", reservation["id"])
    two.resize(server, "plain")
    two.stop_runner()
    refusing = two.new_process(fails={CONFIRM_RESIZE: RemoteError("it is locked", status=409)}, times=1).runner
    two.clock.advance_to(ENDS)
    refusing.run_once()
    assert (
        f"server {server} has left by a resize that is not confirmed; the resize cannot be confirmed now: it is locked"
        in why(two, made)
    )
    for _ in range(2):
        two.clock.advance_to(refusing.run_once())
        two.settle()
    refusing.run_once()
    assert two.lease(made["id"])["status"] == "TERMINATED"
