"""The calendar and the pages of leases, in a browser."""

from datetime import timedelta
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.conftest import START

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)


def at(days: float = 0, hour: int = 0):
    return START.replace(hour=0, minute=0) + timedelta(days=days, hours=hour)


def field(moment) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def lease_of(lab, lease_id):
    return lab.plane.lease(lease_id)


def make(lab, name, start, end, amount=1, *, user="admin", vcpus=1, **more):
    reservation = {"resource_type": "virtual:instance", "vcpus": vcpus, "memory_mb": 512, "disk_gb": 1,
                   "amount": amount, "affinity": None, "resource_properties": "", **more}  # fmt: skip
    body = {"name": name, "start_date": f"{start:%Y-%m-%d %H:%M}", "end_date": f"{end:%Y-%m-%d %H:%M}",
            "reservations": [reservation]}  # fmt: skip
    client = lab.client(user, "reservation")
    return client.request("POST", "/v1/leases", json=body, version="1.1")["lease"]["id"]


@pytest.fixture(scope="module")
def booked(lab):
    """Registers the host, and creates leases of two projects in this week."""
    hosts = lab.plane.compute.get("/os-hypervisors")["hypervisors"]
    lab.plane.reservation.request("POST", "/v1/os-hosts", json={"name": hosts[0]["hypervisor_hostname"]})
    make(lab, "synthesis run", at(1, 8), at(2, 20), 2)
    make(lab, "course: FPGAs for beginners", at(2, 6), at(4, 18), 3, vcpus=1)
    make(lab, "thesis", at(5), at(6, 12))
    make(lab, "benchmarks of others", at(0, 12), at(3), 2, user="demo", vcpus=2)
    lab.plane.settle()
    return lab


def test_the_calendar_shows_the_usage_and_the_projects_of_leases(booked, tab, look):
    tab.goto("/ui/calendar")
    expect(tab.get_by_role("heading", name="Usage")).to_be_visible()
    cell = tab.locator("tr", has=tab.get_by_role("rowheader", name="Processors")).locator("td.cell").nth(9)
    expect(cell).not_to_have_text("0")
    expect(tab.get_by_role("link", name="course: FPGAs for beginners", exact=True)).to_be_visible()
    assert "benchmarks of others" not in tab.content()
    look(tab, "calendar")


def test_a_member_sees_leases_of_other_projects_only_as_busy_time(booked, open_tab):
    tab = open_tab("demo")
    tab.goto("/ui/calendar?days=7")
    assert "synthesis run" not in tab.content()
    expect(tab.get_by_role("link", name="benchmarks of others", exact=True)).to_be_visible()
    assert tab.get_by_role("link", name="Hosts").count() == 0
    tab.goto("/ui/calendar?show=hosts")
    expect(tab.get_by_role("heading", name="Usage")).to_be_visible()


@pytest.mark.parametrize("what", ["hosts", "projects"])
def test_operators_see_hosts_and_projects_over_time(booked, tab, look, what):
    tab.goto(f"/ui/calendar?show={what}&days=7")
    expect(tab.locator(".bar-link").first).to_be_visible()
    look(tab, f"calendar-{what}")


@pytest.mark.parametrize("days", [1, 7, 30, 90])
def test_both_charts_have_one_time_axis_with_a_line_for_now(booked, open_tab, days):
    tab = open_tab("demo")
    tab.goto(f"/ui/calendar?days={days}")
    cells, tracks = tab.locator("table.heat tbody tr").nth(1).locator("td.cell"), tab.locator("svg.track").last
    first, last, track = (one.bounding_box() for one in (cells.first, cells.last, tracks))
    assert first["x"] == pytest.approx(track["x"], abs=1)
    assert last["x"] + last["width"] == pytest.approx(track["x"] + track["width"], abs=1)
    lines = tab.locator("line.today").evaluate_all("all => all.map((one) => one.getBoundingClientRect().x)")
    assert len(lines) > 3
    assert max(lines) - min(lines) < 2


def test_labels_of_the_calendar_are_whole_or_end_in_dots(booked, open_tab, look):
    """On a phone, too, the labels of the axis do not overlap, and the bars have the width of the page."""
    tab = open_tab("demo", width=390)
    for query in ("days=1", "days=7", "days=30", "days=90", "start=2026-03-01T18:00&end=2026-03-12T09:00"):
        tab.goto(f"/ui/calendar?{query}")
        boxes = tab.locator("svg.axis text:not(.minor)").evaluate_all(
            "all => all.filter((one) => one.textContent).map((one) => one.getBoundingClientRect())"
            ".map(({left, right}) => [left, right])"
        )
        assert len(boxes) >= 3
        assert all(before[1] < after[0] for before, after in pairwise(boxes)), query
        assert boxes[-1][1] <= 390
        assert tab.locator("svg.axis").bounding_box()["width"] > 300
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab = open_tab("admin", width=390)
    tab.goto("/ui/calendar?show=hosts")
    look(tab, "calendar-hosts-phone")
    cut = (
        "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => getComputedStyle(one).textOverflow)"
    )
    assert set(tab.locator(".label > span:visible").evaluate_all(cut)) <= {"ellipsis"}


def test_the_calendar_shows_any_period(booked, tab, look):
    tab.goto("/ui/calendar")
    tab.get_by_label("From, UTC").fill(field(at(1, 6)))
    tab.get_by_label("To, UTC").fill(field(at(1, 18)))
    tab.get_by_role("button", name="Go").click()
    expect(tab.locator("table.heat tbody tr").nth(1).locator("td.cell")).to_have_count(24)
    expect(tab.get_by_role("link", name="synthesis run", exact=True)).to_be_visible()
    expect(tab.get_by_role("link", name="thesis", exact=True)).to_have_count(0)
    look(tab, "calendar-hours")
    tab.get_by_role("link", name="Later").click()
    expect(tab.get_by_label("From, UTC")).to_have_value(field(at(1, 18)))
    tab.get_by_label("To, UTC").fill(field(at(1, 17)))
    tab.get_by_role("button", name="Go").click()
    expect(tab.get_by_role("alert")).to_contain_text("must be after From")
    expect(tab.get_by_label("To, UTC")).to_have_value(field(at(1, 17)))


def test_the_calendar_of_ninety_days_is_accessible(booked, tab, look):
    tab.goto("/ui/calendar?days=90")
    look(tab, "calendar-90")


def test_a_query_filters_the_hosts_and_an_invalid_query_is_reported(booked, tab):
    tab.goto("/ui/calendar")
    tab.get_by_label("Filter hosts").fill("vcpus=16")
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator("table.heat")).to_be_visible()
    tab.get_by_role("link", name="Hosts").click()
    expect(tab.locator(".bar-link").first).to_be_visible()
    tab.get_by_label("Filter hosts").fill('[">=", "$vcpus", "100000"]')
    tab.get_by_role("button", name="Show").click()
    expect(tab.get_by_text("No leases in this period.")).to_be_visible()
    tab.get_by_label("Filter hosts").fill("nonsense")
    tab.get_by_role("button", name="Show").click()
    expect(tab.get_by_role("alert")).to_be_visible()
    expect(tab.get_by_label("Filter hosts")).to_have_value("nonsense")


def test_a_lease_is_created_by_the_form_without_an_affinity(booked, open_tab, look):
    """R37 (instance-reservation): affinity is optional in the form, too. Without scripts."""
    tab = open_tab("demo", scripts=False)
    tab.goto("/ui/leases/new")
    look(open_and(booked, open_tab, "/ui/leases/new"), "lease-new")
    tab.get_by_label("Name", exact=True).fill("by form")
    tab.get_by_label("Start, UTC").fill(field(at(8, 8)))
    tab.get_by_label("End, UTC").fill(field(at(8, 12)))
    tab.get_by_label("VCPUs each").fill("1")
    tab.get_by_label("Memory each, MB").fill("512")
    tab.get_by_label("Disk each, GB").fill("1")
    tab.get_by_label("Amount").fill("2")
    tab.get_by_role("button", name="Preview").click()
    expect(tab.get_by_role("status")).to_contain_text("Possible")
    expect(tab.get_by_role("status")).to_contain_text("2 slots on 1 host")
    expect(tab.get_by_label("Name", exact=True)).to_have_value("by form")
    tab.get_by_role("button", name="Reserve", exact=True).click()
    tab.wait_for_url("**/ui/leases/*-*")
    expect(tab.get_by_role("heading", name="by form")).to_be_visible()
    made = lease_of(booked, tab.url.rpartition("/")[2])
    assert (made["reservations"][0]["amount"], made["reservations"][0]["affinity"]) == (2, None)


def open_and(booked, open_tab, path, user="admin"):
    tab = open_tab(user)
    tab.goto(path)
    return tab


@pytest.mark.parametrize(
    ("choice", "sent"), [("None: any host", None), ("Affinity: all servers on one host", True),
                         ("Anti-affinity: each server on its own host", False)],
)  # fmt: skip
def test_the_form_sends_the_chosen_affinity(booked, tab, choice, sent):
    tab.goto(f"/ui/leases/new?name=a&start_date={field(at(9, 8))}&end_date={field(at(9, 9))}&memory_mb=64&disk_gb=1")
    tab.get_by_label(choice).check()
    tab.get_by_role("button", name="Reserve", exact=True).click()
    tab.wait_for_url("**/ui/leases/*-*")
    made = lease_of(booked, tab.url.rpartition("/")[2])
    assert made["reservations"][0]["affinity"] is sent


def test_a_refused_form_shows_what_would_fit_and_keeps_its_values(booked, tab, look):
    tab.goto(f"/ui/leases/new?name=much&start_date={field(at(2, 8))}&end_date={field(at(2, 9))}&memory_mb=64&disk_gb=1")
    tab.get_by_label("Amount").fill("9999")
    tab.get_by_role("button", name="Reserve", exact=True).click()
    expect(tab.get_by_role("alert")).to_contain_text("fit")
    expect(tab.get_by_label("Amount")).to_have_value("9999")
    expect(tab.get_by_label("Name", exact=True)).to_have_value("much")
    tab.troubles.clear()  # the browser reports the 409 as an error
    look(tab, "lease-refused")


def test_the_next_available_time_is_offered_and_can_be_reserved(booked, tab):
    vcpus = lease_free(booked)
    make(booked, "all of it", at(10), at(11), 1, vcpus=vcpus)
    tab.goto(
        f"/ui/leases/new?name=next&start_date={field(at(10))}&end_date={field(at(10, 4))}&vcpus={vcpus}&memory_mb=64&disk_gb=1"
    )
    tab.get_by_role("button", name="Find available times").click()
    offers = tab.get_by_role("status", name="Available times")
    expect(offers).to_contain_text(f"{at(11):%Y-%m-%d %H:%M}")
    offers.get_by_role("button").first.click()
    expect(tab.get_by_label("Start, UTC")).to_have_value(field(at(11)))
    expect(tab.get_by_label("End, UTC")).to_have_value(field(at(11, 4)))
    tab.get_by_role("button", name="Reserve", exact=True).click()
    tab.wait_for_url("**/ui/leases/*-*")


def test_an_offered_time_can_be_held_and_turned_into_a_lease(booked, tab, look):
    tab.goto(f"/ui/leases/new?name=held&start_date={field(at(60))}&end_date={field(at(60, 4))}&memory_mb=64&disk_gb=1")
    tab.get_by_role("button", name="Find available times").click()
    look(tab, "lease-offers")
    tab.get_by_role("button", name="Hold the time").first.click()
    tab.wait_for_url("**/ui/leases/holds/*")
    tab.get_by_text("Before the end").click()
    tab.get_by_label("Take snapshots of its servers").check()
    look(tab, "hold")
    tab.get_by_role("link", name="Holds").click()
    expect(tab.get_by_role("button", name="Release")).to_have_count(1)
    look(tab, "holds")
    tab.get_by_role("link", name=f"{at(60):%Y-%m-%d}").click()
    tab.get_by_label("Name").fill("from a hold")
    tab.get_by_text("Before the end").click()
    tab.get_by_label("Take snapshots of its servers").check()
    tab.get_by_role("button", name="Create lease").click()
    expect(tab.get_by_role("heading", name="from a hold")).to_be_visible()
    expect(tab.get_by_text("Take snapshots of its servers")).to_be_visible()
    look(tab, "lease-before-end")
    tab.get_by_role("link", name="Change or extend").click()
    expect(tab.get_by_label("Take snapshots of its servers")).to_be_checked()


def test_a_repeated_lease_creates_a_series(booked, tab, look):
    tab.goto(f"/ui/leases/new?name=lab&start_date={field(at(65))}&end_date={field(at(65, 4))}&memory_mb=64&disk_gb=1")
    tab.get_by_text("Repeat").click()
    tab.get_by_label("Number of leases", exact=True).fill("3")
    tab.get_by_role("button", name="Preview").click()
    expect(tab.get_by_role("status")).to_contain_text("All 3 leases are possible")
    look(tab, "lease-series")
    tab.get_by_role("button", name="Reserve", exact=True).click()
    expect(tab.get_by_role("status")).to_contain_text("3 leases created")
    expect(tab.get_by_role("link", name="lab 3/3", exact=True)).to_be_visible()
    look(tab, "leases-made")


def test_a_maintenance_lists_the_affected_leases(booked, tab, look):
    make(booked, "in the way of repairs", at(70), at(71), user="demo")
    tab.goto("/ui/leases")
    tab.get_by_role("link", name="Maintenance").click()
    tab.get_by_label("Name").fill("new disks")
    tab.get_by_label("Start, UTC").fill(field(at(70, 6)))
    tab.get_by_label("End, UTC").fill(field(at(70, 9)))
    tab.get_by_label("Hosts").fill("compute-1")
    tab.get_by_role("button", name="Show affected leases").click()
    expect(tab.get_by_role("link", name="in the way of repairs")).to_be_visible()
    look(tab, "maintenance")
    tab.get_by_role("button", name="Reserve the hosts").click()
    expect(tab.get_by_role("alert")).to_contain_text("The hosts were not reserved: other leases use them")
    expect(tab.get_by_role("link", name="in the way of repairs")).to_be_visible()
    tab.troubles.clear()  # the browser reports the 409 as an error
    tab.get_by_label("Start, UTC").fill(field(at(72, 6)))
    tab.get_by_label("End, UTC").fill(field(at(72, 9)))
    tab.get_by_role("button", name="Reserve the hosts").click()
    expect(tab.get_by_role("heading", name="new disks")).to_be_visible()
    tab.get_by_role("link", name="Cancel before it starts").click()
    tab.get_by_role("button", name="Cancel 1 lease").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("1 lease cancelled")
    tab.get_by_role("link", name="Back to the leases").click()
    tab.wait_for_url("**/ui/leases")
    expect(tab.get_by_role("link", name="new disks")).to_have_count(0)


def lease_free(booked) -> int:
    """The number of the host's CPUs."""
    return booked.plane.reservation.get("/v1/os-hosts")["hosts"][0]["vcpus"]


def test_each_resource_type_shows_its_own_fields(booked, tab):
    tab.goto("/ui/leases/new")
    tab.get_by_label("Whole hosts").check()
    expect(tab.get_by_label("Minimum hosts")).to_be_visible()
    expect(tab.get_by_label("VCPUs each")).to_be_hidden()
    tab.get_by_label("Custom resources").check()
    expect(tab.get_by_label("Resources each")).to_be_visible()
    tab.get_by_label("Servers by flavor").check()
    expect(tab.get_by_label("Flavor", exact=True)).to_be_visible()
    expect(tab.get_by_label("Amount")).to_be_visible()


def test_a_drag_over_accelerators_or_hosts_asks_for_them(booked, tab):
    for name, kind, field_text in (
        ("FPGA regions", "Custom resources", "CUSTOM_ACCELERATOR_FPGA=1"), ("Whole hosts", "Whole hosts", None)
    ):  # fmt: skip
        tab.goto(f"/ui/calendar?start={at(0):%Y-%m-%d}&days=7")
        row = tab.locator("tr", has=tab.get_by_role("rowheader", name=name))
        drag(tab, row.locator("td.cell").nth(24), row.locator("td.cell").nth(26))
        tab.wait_for_url("**/ui/leases/new?*")
        expect(tab.get_by_label(kind)).to_be_checked()
        expect(tab.get_by_label("End, UTC")).to_have_value(field(at(6, 18)))
        if field_text:
            expect(tab.get_by_label("Resources each")).to_have_value(field_text)
            expect(tab.get_by_text("One CLASS=AMOUNT per line.")).to_contain_text("GPUs (CUSTOM_ACCELERATOR_GPU)")


def test_a_preview_has_the_button_that_reserves(booked, tab):
    tab.goto(f"/ui/leases/new?name=sure&start_date={field(at(80))}&end_date={field(at(80, 1))}&memory_mb=64&disk_gb=1")
    tab.get_by_role("button", name="Preview").click()
    tab.get_by_role("status").get_by_role("button", name="Reserve now").click()
    expect(tab.get_by_role("heading", name="sure")).to_be_visible()


def test_a_drag_over_the_cells_fills_in_the_form(booked, tab):
    tab.goto(f"/ui/calendar?start={at(0):%Y-%m-%d}&days=7")
    row = tab.locator("tr", has=tab.get_by_role("rowheader", name="Memory"))
    drag(tab, row.locator("td.cell").nth(24), row.locator("td.cell").nth(26))
    tab.wait_for_url("**/ui/leases/new?*")
    expect(tab.get_by_label("Start, UTC")).to_have_value(field(at(6)))
    expect(tab.get_by_label("End, UTC")).to_have_value(field(at(6, 18)))


def drag(tab, source, target):
    """Drags from the middle of one element to the middle of the other."""
    for at_, step in ((source, tab.mouse.down), (target, tab.mouse.up)):
        box = at_.bounding_box()
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
        step()


@pytest.mark.parametrize("days", [1, -1], ids=["longer", "shorter"])
def test_dragging_the_end_of_a_bar_changes_the_lease_after_a_preview(booked, tab, days):
    lease = make(booked, "dragged", at(20, 0), at(22, 0))
    booked.plane.settle()
    tab.goto(f"/ui/calendar?start={at(19):%Y-%m-%d}&days=7")
    pull(tab, lease, days=days, edge=True)
    tab.wait_for_url("**/change?*")
    expect(tab.get_by_role("status")).to_contain_text("Possible")
    expect(tab.get_by_label("Start, UTC")).to_have_value(field(at(20)))
    expect(tab.get_by_label("End, UTC")).to_have_value(field(at(22 + days)))
    assert lease_of(booked, lease)["end_date"].startswith(f"{at(22):%Y-%m-%d}"), "a drag alone changes nothing"
    tab.get_by_role("button", name="Save changes").click()
    tab.wait_for_url(f"**/ui/leases/{lease}")
    changed = lease_of(booked, lease)
    assert (changed["start_date"][:10], changed["end_date"][:10]) == (f"{at(20):%Y-%m-%d}", f"{at(22 + days):%Y-%m-%d}")
    booked.client("admin", "reservation").request("DELETE", f"/v1/leases/{lease}")


def test_dragging_a_bar_moves_a_lease_that_has_not_started(booked, tab):
    lease = make(booked, "moved", at(27), at(28))
    booked.plane.settle()
    tab.goto(f"/ui/calendar?start={at(26):%Y-%m-%d}&days=7")
    pull(tab, lease, days=-1, edge=False)
    tab.wait_for_url("**/change?*")
    expect(tab.get_by_label("Start, UTC")).to_have_value(field(at(26)))
    expect(tab.get_by_label("End, UTC")).to_have_value(field(at(27)))


def pull(tab, lease, *, days, edge):
    """Drags a bar in the week's view by this many days, at its right end or in its middle."""
    bar = tab.locator(f'a[data-lease="{lease}"] rect').bounding_box()
    day = tab.locator("svg.track:not(.axis)").first.bounding_box()["width"] / 7
    x, y = bar["x"] + (bar["width"] - 3 if edge else bar["width"] / 2), bar["y"] + bar["height"] / 2
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + days * day, y, steps=6)
    tab.mouse.up()


def test_the_change_form_shows_the_latest_possible_end_and_what_limits_it(booked, tab, look):
    vcpus = lease_free(booked)
    lease = make(booked, "long", at(40), at(41), 1, vcpus=vcpus)
    make(booked, "in the way", at(43), at(44), 1, user="demo", vcpus=vcpus)
    booked.plane.settle()
    tab.goto(f"/ui/leases/{lease}/change")
    expect(tab.get_by_text(f"It can be extended until {at(43):%Y-%m-%d} 00:00")).to_be_visible()
    look(tab, "lease-change")
    tab.get_by_label("End, UTC").fill(field(at(43, 1)))
    tab.get_by_role("button", name="Save changes").click()
    expect(tab.get_by_role("alert")).to_contain_text("0 fit")
    expect(tab.get_by_label("End, UTC")).to_have_value(field(at(43, 1)))
    assert "in the way" not in tab.content()


def test_the_page_of_a_lease_updates_itself_and_can_end_the_lease(lab, booked, open_tab, look):
    """Must be the last test of the module, because it moves the clock."""
    tab = open_tab("demo")
    lease = make(booked, "short", at(0, 10), at(1, 10), user="demo")
    booked.plane.settle()
    tab.goto(f"/ui/leases/{lease}")
    expect(tab.locator("h1")).to_contain_text("PENDING")
    expect(tab.get_by_role("link", name="Cancel before it starts")).to_be_visible()
    expect(tab.get_by_role("link", name="End now")).to_have_count(0)
    booked.plane.run_until(at(0, 10))
    expect(tab.locator("h1")).to_contain_text("ACTIVE", timeout=60_000)
    expect(tab.get_by_role("listitem").filter(has_text="Start").first).to_contain_text("done")
    expect(tab.get_by_role("contentinfo")).to_contain_text(f"Now: {at(0, 10):%Y-%m-%d %H:%M}")
    tab.get_by_text("steps").nth(1).click()
    look(tab, "lease")
    booked.plane.run_until(at(0, 11))
    tab.get_by_role("link", name="End now").click()
    assert lease_of(booked, lease)["status"] == "ACTIVE", "a click alone ends nothing"
    tab.get_by_role("button", name="End 1 lease").click()
    booked.plane.settle()
    tab.get_by_role("link", name="short").click()
    expect(tab.locator("h1")).to_contain_text("TERMINATED", timeout=60_000)
    tab.get_by_role("link", name="Delete from the list").click()
    tab.get_by_role("button", name="Delete 1 lease").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("1 lease deleted")
    tab.get_by_role("link", name="Back to the leases").click()
    tab.wait_for_url("**/ui/leases")
    look(tab, "leases")


def test_the_page_of_another_projects_lease_is_refused(booked, open_tab):
    theirs = make(booked, "private", at(50), at(51))
    tab = open_tab("demo")
    answer = tab.goto(f"/ui/leases/{theirs}")
    assert answer.status == 403
    assert "private" not in tab.locator("main").inner_text()
