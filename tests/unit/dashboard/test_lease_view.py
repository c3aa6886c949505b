"""A lease in words."""

import pytest

from moorage.dashboard.views.lease_view import lease_details


def lease(name="a", status="PENDING", day=1, **reservation):
    kind = {"resource_type": "virtual:instance", "amount": 2, "vcpus": 1, "memory_mb": 1, "disk_gb": 1}
    return lease_details({
        "id": name, "name": name, "status": status, "start_date": f"2026-03-{day:02}T08:00:00.000000",
        "end_date": "2026-04-01T08:00:00.000000", "project_id": "red", "user_id": "ann", "degraded": False,
        "reservations": [{"id": "r", "status": "pending", **(reservation or kind)}], "events": [],
        "before_end_actions": [],
    })  # fmt: skip


@pytest.mark.parametrize(("least", "most", "number"), [(2, 2, "2"), (1, 3, "1 to 3")])
def test_whole_hosts_have_a_number(least, most, number):
    found = lease(resource_type="physical:host", min=least, max=most)
    assert found.what == f"Whole hosts \N{MULTIPLICATION SIGN} {number}"
    assert found.reservations[0].facts[0] == ("Hosts", number)
    assert found.reservations[0].amount is None, "the form of a change has no amount"
