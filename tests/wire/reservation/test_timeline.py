"""The events and steps of a lease, as its page shows them."""

from moorage.db.session import write
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
