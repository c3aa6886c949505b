from datetime import UTC, datetime

from moorage.reservation.instance import Step, StepKind, plan_create, plan_end, plan_resize, plan_start
from moorage.reservation.model import InstanceRequest, Reservation, ReservationStatus, Size

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOTS = {"a": {"compute-2": 1, "compute-1": 3}, "b": {"compute-1": 2}}


def reservation(name, status=ReservationStatus.PENDING):
    request = InstanceRequest(Size(1, 512, 0), 4)
    return Reservation(name, "l", "x", "virtual:instance", status, False, False, request, name, None, None, NOW, None)


A, B = reservation("a"), reservation("b")


def kinds(steps):
    return [(step.kind.value, step.reservation_id) for step in steps]


def test_a_class_is_made_before_the_flavor_that_names_it():
    """R8, R9 (instance-reservation)."""
    assert kinds(plan_create([A, B])) == [
        ("ensure_class", "a"),
        ("ensure_flavor", "a"),
        ("ensure_class", "b"),
        ("ensure_flavor", "b"),
    ]


def test_a_start_has_one_inventory_per_distinct_host_and_access_last():
    """R20, R24 (instance-reservation)."""
    steps = plan_start([A, B], SLOTS, "p")
    assert [(step.kind.value, step.host, step.total) for step in steps] == [
        ("put_inventory", "compute-1", 3),
        ("put_inventory", "compute-2", 1),
        ("put_inventory", "compute-1", 2),
        ("grant_access", "", 0),
        ("grant_access", "", 0),
    ]
    assert {step.project_id for step in steps[3:]} == {"p"}


def test_an_end_takes_down_in_the_order_of_the_spec():
    """R29, R30, R31, R32 (instance-reservation): inventory once per distinct host."""
    steps = plan_end([A], SLOTS, "p")
    assert [step.kind.value for step in steps] == [
        "revoke_access",
        "delete_servers",
        "delete_flavor",
        "drop_inventory",
        "drop_inventory",
        "delete_class",
    ]


def test_a_reservation_that_has_ended_needs_no_end():
    assert plan_end([reservation("a", ReservationStatus.DELETED)], SLOTS, "p") == []


def test_steps_survive_the_journal():
    steps = [
        *plan_create([A]),
        *plan_start([A], SLOTS, "p"),
        *plan_end([A], SLOTS, "p"),
        *plan_resize("a", A.request.size),
    ]
    assert [Step.from_journal(step.kind.value, step.args()) for step in steps] == steps


def test_the_class_of_a_step_is_the_reservations():
    """R8 (instance-reservation): upper case and underscores only."""
    step = Step(StepKind.ENSURE_CLASS, "4d17d41a-830d-47b2-91c7-4f9fc0ae611e")
    assert step.resource_class == "CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E"
