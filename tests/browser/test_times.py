"""Times are shown in the browser's time zone with UTC beside them; forms send UTC."""

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import new_tab
from tests.conftest import START

pytestmark = pytest.mark.slow


@pytest.fixture
def berlin(browser, lab):
    """A window in Berlin, where it is one hour later than UTC in March. Signed in as admin."""
    tab = new_tab(browser, lab.url, True, 1280, 900, timezone_id="Europe/Berlin")
    tab.context.add_cookies(lab.cookies_of("admin"))
    yield tab
    tab.context.close()


@pytest.fixture(scope="module")
def lease(lab):
    lab.plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    start = START.replace(hour=8, minute=0) + timedelta(days=3)
    return lab.plane.create_lease(start=start, end=start + timedelta(hours=15, minutes=30), amount=1)


def test_a_time_is_local_with_utc_beside_it(berlin, lease, look):
    berlin.goto(f"/ui/leases/{lease}")
    facts = berlin.get_by_role("region", name="Reserved resources").locator("time")
    expect(facts.first).to_have_text("2026-03-04 09:00 08:00 UTC")
    expect(facts.nth(1)).to_have_text("2026-03-05 00:30 2026-03-04 23:30 UTC")  # another day
    expect(berlin.get_by_text("Times are in Europe/Berlin, with UTC beside them.")).to_be_visible()
    look(berlin, "times")


def test_a_browser_in_utc_shows_the_time_once(tab, lease):
    tab.goto(f"/ui/leases/{lease}")
    expect(tab.get_by_role("region", name="Reserved resources").locator("time").first).to_have_text("2026-03-04 08:00")


def test_a_form_takes_local_times_and_sends_utc(berlin, lease, lab):
    berlin.goto(f"/ui/leases/{lease}/change")
    end = berlin.get_by_label("End, Europe/Berlin")
    expect(end).to_have_value("2026-03-05T00:30")
    end.fill("2026-03-05T02:00")
    expect(berlin.get_by_text("2026-03-05 01:00 UTC")).to_be_visible()
    berlin.get_by_role("button", name="Save changes").click()
    berlin.wait_for_url(f"**/ui/leases/{lease}")
    assert lab.plane.lease(lease)["end_date"][:16] == "2026-03-05T01:00"


def test_a_time_in_the_hour_that_comes_twice_stays_as_it_was(berlin, lab):
    """On 2026-10-25, 02:30 in Berlin is 00:30 and 01:30 UTC."""
    end = START.replace(month=10, day=25, hour=1, minute=30)
    lease = lab.plane.create_lease(start=end - timedelta(hours=3), end=end, amount=1)
    berlin.goto(f"/ui/leases/{lease}/change")
    expect(berlin.get_by_label("End, Europe/Berlin")).to_have_value("2026-10-25T02:30")
    expect(berlin.get_by_text("2026-10-25 01:30 UTC")).to_be_visible()
    berlin.get_by_label("Name", exact=True).fill("renamed")
    berlin.get_by_role("button", name="Save changes").click()
    berlin.wait_for_url(f"**/ui/leases/{lease}")
    assert lab.plane.lease(lease)["end_date"][:16] == "2026-10-25T01:30"


def test_the_period_of_the_calendar_is_chosen_in_local_time(berlin, lease):
    berlin.goto("/ui/calendar?start=2026-03-04T07:00&end=2026-03-04T19:00")
    expect(berlin.get_by_label("From, Europe/Berlin")).to_have_value("2026-03-04T08:00")
    berlin.get_by_label("To, Europe/Berlin").fill("2026-03-05T01:00")
    berlin.get_by_role("button", name="Go").click()
    berlin.wait_for_url("**end=2026-03-05T00%3A00**")
    expect(berlin.get_by_label("To, Europe/Berlin")).to_have_value("2026-03-05T01:00")


def test_a_part_that_refreshes_itself_stays_local(berlin, lease):
    berlin.goto(f"/ui/leases/{lease}")
    berlin.evaluate("document.querySelector('#lease h1').textContent = 'old'")  # so that the part is replaced
    expect(berlin.get_by_role("heading", level=1)).to_contain_text("team")
    expect(berlin.locator("#lease time").first).to_have_text("2026-03-04 09:00 08:00 UTC")
