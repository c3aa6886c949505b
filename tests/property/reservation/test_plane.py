"""Random leases with real services: in every minute the inventories are those of the running leases."""

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.reservation.plane import NOW, Plane, class_of, instance, lease

HOSTS = {"compute-1": 4, "compute-2": 6}

asked = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 6), st.integers(1, 6), st.sampled_from([None, True, False])),
    min_size=2,
    max_size=7,
)


def minute(number):
    return f"{NOW.replace(second=0) + timedelta(minutes=number):%Y-%m-%d %H:%M}"


def offered(plane, made):
    """{host: units of all reservation classes}, and {lease id: units of its class on all hosts}."""
    totals = {}
    running = dict.fromkeys((each["id"] for each in made), 0)
    for host in HOSTS:
        for each in made:
            inventory = plane.inventory(host, class_of(each["reservations"][0]))
            totals[host] = totals.get(host, 0) + (inventory.total if inventory else 0)
            running[each["id"]] += inventory.total if inventory else 0
    return totals, running


@pytest.mark.slow
@given(asked)
@settings(max_examples=12, deadline=None)
def test_in_every_minute_the_inventories_are_those_of_the_running_leases(asked):
    with tempfile.TemporaryDirectory() as folder:
        plane = Plane(Path(folder))
        for name, vcpus in HOSTS.items():
            plane.add_host(name, vcpus=vcpus)
            plane.register(name)
        made = []
        for start, duration, amount, affinity in asked:
            body = lease(instance(amount, affinity=affinity), start=minute(start), end=minute(start + duration))
            status, document = plane.answer("POST", "/v1/leases", body)
            assert status in (201, 409), document
            made += [document["lease"]] if status == 201 else []
        for number in range(1, 16):
            plane.run_until(NOW.replace(second=0) + timedelta(minutes=number, seconds=5))
            totals, running = offered(plane, made)
            assert all(count <= HOSTS[host] for host, count in totals.items())
            now = minute(number)
            for each in made:
                start, end = (each[key][:16].replace("T", " ") for key in ("start_date", "end_date"))
                runs = start <= now < end
                assert plane.lease(each["id"])["status"] == (
                    "ACTIVE" if runs else "PENDING" if now < start else "TERMINATED"
                )
                assert running[each["id"]] == (each["reservations"][0]["amount"] if runs else 0)
        plane.close()
