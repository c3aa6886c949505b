"""The list of leases in a browser: filtered, sorted, and several leases ended or cancelled at once."""

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tests.conftest import START

pytestmark = pytest.mark.slow

NAMES = ("thesis", "course 2", "benchmarks", "course 10")


def make(lab, name, start, hours, user="demo", **reservation):
    of_servers = {"resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 512, "disk_gb": 1, "amount": 1,
                  "affinity": None, "resource_properties": ""}  # fmt: skip
    body = {"name": name, "start_date": f"{start:%Y-%m-%d %H:%M}",
            "end_date": f"{start + timedelta(hours=hours):%Y-%m-%d %H:%M}",
            "reservations": [reservation or of_servers]}  # fmt: skip
    client = lab.client(user, "reservation")
    return client.request("POST", "/v1/leases", json=body, version="1.1")["lease"]["id"]


@pytest.fixture(scope="module")
def booked(lab):
    """A host with two running leases and four coming ones, one of them of the whole host."""
    lab.plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    begin = START.replace(minute=0) + timedelta(hours=1)
    for number, name in enumerate(NAMES[:2]):
        make(lab, name, begin, 24 + number)
    for number, name in enumerate(NAMES[2:]):
        make(lab, name, begin + timedelta(days=3 + number), 4)
    hosts = {
        "resource_type": "physical:host",
        "min": 1,
        "max": 1,
        "hypervisor_properties": "",
        "resource_properties": "",
    }
    make(lab, "new disks", begin + timedelta(days=9), 3, user="admin", **hosts)
    lab.plane.settle()
    lab.plane.run_until(begin + timedelta(minutes=5))
    lab.plane.settle()
    return lab


def names_in(tab, group):
    return tab.get_by_role("region", name=f"{group} leases").get_by_role("rowheader").all_inner_texts()


def test_the_list_is_sorted_by_a_heading_and_filtered(booked, open_tab, look):
    tab = open_tab("demo", scripts=False)
    tab.goto("/ui/leases")
    expect(tab.get_by_role("heading", name="Coming (2)")).to_be_visible()
    assert names_in(tab, "Coming") == ["benchmarks", "course 10"], "the one that starts first"
    by_name = tab.get_by_role("region", name="Coming").get_by_role("columnheader", name="Name")
    for order in ("ascending", "descending"):
        by_name.get_by_role("link").click()
        expect(by_name).to_have_attribute("aria-sort", order)
    assert names_in(tab, "Coming") == ["course 10", "benchmarks"]
    tab.get_by_label("Filter").fill("course pending")
    tab.get_by_role("button", name="Show").click()
    expect(tab.get_by_role("heading", name="Coming (1 of 2)")).to_be_visible()
    assert names_in(tab, "Coming") == ["course 10"]
    expect(tab.get_by_text("No lease matches.")).to_have_count(1)
    tab.get_by_role("link", name="Show all.").click()
    expect(tab.get_by_label("Filter")).to_have_value("")
    assert names_in(tab, "Running") == ["thesis", "course 2"]


def test_an_administrator_sees_the_leases_of_all_projects(booked, open_tab, look):
    tab = open_tab("admin")
    tab.goto("/ui/leases?all=1")
    expect(tab.get_by_role("row", name="new disks")).to_contain_text("Whole hosts \N{MULTIPLICATION SIGN} 1")
    tab.get_by_label("Select thesis").check()
    look(tab, "leases-all")
    phone = open_tab("admin", width=390, height=844)
    phone.goto("/ui/leases?all=1&find=pending")
    phone.get_by_role("link", name="Select all of Coming").click()
    expect(phone.get_by_label("Select new disks")).to_be_checked()
    look(phone, "leases-all-phone")


def test_selected_leases_are_ended_and_cancelled_after_a_confirmation(booked, open_tab, look):
    """Must be the last test of the module."""
    tab = open_tab("demo")
    tab.goto("/ui/leases?show=all")
    tab.get_by_role("button", name="End now").click()
    expect(tab.get_by_role("alert")).to_contain_text("No lease is selected")
    tab.troubles.clear()  # the browser reports the 400 as an error
    tab.get_by_role("link", name="Back").click()
    for name in ("thesis", "course 2", "course 10"):
        tab.get_by_label(f"Select {name}", exact=True).check()
    tab.get_by_role("button", name="End now").click()
    expect(tab.get_by_role("row", name="course 10")).to_contain_text("has not started")
    look(tab, "leases-selected")
    demo = booked.client("demo", "reservation")
    ended = next(lease["id"] for lease in demo.get("/v1/leases")["leases"] if lease["name"] == "course 2")
    demo.request("PUT", f"/v1/leases/{ended}", json={"end_date": "now"})
    booked.plane.settle()
    tab.get_by_role("button", name="End 2 leases").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("1 lease ended, 1 refused")
    expect(tab.get_by_role("alert")).to_contain_text("course 2: Has ended already.")
    look(tab, "leases-ended")
    booked.plane.settle()
    tab.get_by_role("link", name="Back to the leases").click()
    expect(tab.get_by_role("row", name="thesis")).to_contain_text("TERMINATED")
    phone = open_tab("demo", scripts=False, width=390, height=844)
    phone.goto("/ui/leases?show=all")
    for name in ("thesis", "course 10"):
        phone.get_by_label(f"Select {name}", exact=True).check()
    phone.get_by_role("button", name="Cancel or delete").click()
    expect(phone.get_by_role("button", name="Cancel 1 and delete 1 lease")).to_be_visible()
    phone.get_by_role("button", name="Cancel 1 and delete 1 lease").click()
    expect(phone.get_by_role("heading", level=1)).to_have_text("1 lease cancelled, 1 deleted")
    phone.get_by_role("link", name="Back to the leases").click()
    expect(phone.get_by_role("heading", name="All (2)")).to_be_visible()
    assert names_in(phone, "All") == ["benchmarks", "course 2"]
