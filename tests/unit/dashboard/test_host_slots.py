"""The leases of a host, computed from the slots of its allocations."""

from datetime import UTC, datetime

from moorage.dashboard.views.host_slots import active_slots, lent, next_lent

NOW = datetime(2026, 3, 1, 8, tzinfo=UTC)


def slot(lease, start="01T06", end="01T18"):
    return {
        "id": "4d17d41a-830d-47b2-91c7-4f9fc0ae611e", "lease_id": lease, "lease_name": f"name of {lease}",
        "lease_status": "ACTIVE", "project_id": "p1",
        "start_date": f"2026-03-{start}:00:00.000000", "end_date": f"2026-03-{end}:00:00.000000",
    }  # fmt: skip


SLOTS = [
    slot("over", "01T06", "01T08"), slot("now"), slot("now"), slot("ends first", "01T08", "01T09"),
    slot("later", "02T06", "02T18"), slot("next", "01T09", "03T10"),
]  # fmt: skip


def test_only_slots_of_the_present_are_active():
    assert [one["lease_id"] for one in active_slots(SLOTS, NOW)] == ["now", "now", "ends first"]


def test_leases_that_hold_a_host_are_by_their_end_and_counted():
    found = lent(active_slots(SLOTS, NOW))
    assert [(one.lease_id, one.words, one.project_id) for one in found] == [
        ("ends first", "1 slot", "p1"),
        ("now", "2 slots", "p1"),
    ]


def test_leases_that_come_are_by_their_start():
    assert [one.lease_id for one in next_lent(SLOTS, NOW)] == ["next", "later"]
