"""The events, steps and hosts of a lease, as its page shows them."""

from datetime import UTC, datetime, timedelta

from moorage.db.session import write
from moorage.reservation.leases.list_service import timeline_of
from moorage.reservation.model.leases import Event, EventStatus, EventType, Lease, LeaseStatus
from moorage.reservation.store.tables import steps as step_table
from tests.wire.reservation.plane import instance
from tests.wire.reservation.test_availability import MEMBER, OTHER, ask
from tests.wire.reservation.test_lifecycle import ENDS, LATER, STARTS, create


def timeline(plane, made, **who):
    return ask(plane, "GET", f"/v1/leases/{made['id']}/timeline", **who)["timeline"]


def steps(plane, made, kind, **who):
    found = next(each for each in timeline(plane, made, **who) if each["event_type"] == kind)
    return found["status"], {step["kind"]: (step["done"], step["total"]) for step in found["steps"]}


def test_events_are_listed_in_order_with_their_steps(reserved):
    made, _ = create(reserved, instance(), **LATER)
    assert [each["event_type"] for each in timeline(reserved, made)] == [
        "create_lease", "start_lease", "before_end_lease", "end_lease",
    ]  # fmt: skip
    assert steps(reserved, made, "start_lease") == ("UNDONE", {})
    reserved.run_until(STARTS)
    status, done = steps(reserved, made, "start_lease")
    assert (status, done["put_inventory"], done["grant_access"]) == ("DONE", (1, 1), (1, 1))
    reserved.run_until(ENDS)
    assert steps(reserved, made, "end_lease")[0] == "DONE"


def test_the_creation_comes_first_if_the_lease_starts_at_once():
    """The times are in whole minutes, and the events of one request have one time of creation."""
    moment = datetime(2026, 3, 1, 9, 30, 20, tzinfo=UTC)
    start, made = (
        Event(kind, "l", kind, moment, EventStatus.DONE, moment, None) for kind in (EventType.START, EventType.CREATE)
    )
    ends = moment + timedelta(hours=1)
    one = Lease("l", "", "", "", moment, ends, None, LeaseStatus.ACTIVE, False, moment, None, events=(start, made))
    assert timeline_of(one, {}, ()) == [(made, []), (start, [])]


def test_a_lease_shows_on_how_many_hosts_it_is_and_administrators_on_which(reserved):
    made, reservation = create(reserved, instance(3), **LATER)
    path = f"/v1/leases/{made['id']}/hosts"
    numbers = {"id": reservation["id"], "slots": 3, "hosts": 1}
    assert ask(reserved, "GET", path)["reservations"] == [numbers]
    (shown,) = ask(reserved, "GET", path, roles=("admin",))["reservations"]
    assert shown == numbers | {"on": {"compute-1": 3}}
    ask(reserved, "GET", path, status=403, **OTHER)
    assert reserved.answer("GET", path, **MEMBER)[0] == 404, "only from 1.1 on"
    reserved.run_until(ENDS)
    assert ask(reserved, "GET", path)["reservations"] == [{"id": reservation["id"], "slots": 0, "hosts": 0}]


def test_only_administrators_see_why_a_step_is_retried(reserved):
    made, _ = create(reserved, instance(), **LATER)
    with write(reserved.engine) as connection:
        connection.execute(step_table.update().values(state="UNDONE", attempt=2, last_error="compute-1 is away"))

    def errors(**who):
        found = [step for each in timeline(reserved, made, **who) for step in each["steps"]]
        assert {step["attempts"] for step in found} == {2}
        return {step["error"] for step in found}

    assert errors() == {None}
    assert errors(roles=("admin",)) == {"compute-1 is away"}


def test_other_projects_do_not_see_a_timeline(reserved):
    made, _ = create(reserved, instance(), **LATER)
    ask(reserved, "GET", f"/v1/leases/{made['id']}/timeline", status=403, **OTHER)
    assert reserved.answer("GET", f"/v1/leases/{made['id']}/timeline", **MEMBER)[0] == 404
