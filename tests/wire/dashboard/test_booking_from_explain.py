"""The page Explain offers a lease where no host fits a flavor now."""

import re
from datetime import timedelta

import pytest

from tests.conftest import START
from tests.wire.dashboard.site import Site
from tests.wire.dashboard.test_calendar_pages import make

FLAVOR = "/explain?flavor=fpga"
#: The end of the lease that holds both FPGAs which the flavor can use.
UNTIL = START.replace(minute=0) + timedelta(hours=3)
BOOKING = re.compile(r'<section class="panel" aria-labelledby="booking">.*?</section>', re.DOTALL)


@pytest.fixture(scope="module")
def lease(plane):
    """The address of a lease of the project demo that runs until `UNTIL`; all other servers find no FPGA."""
    plane.create_fpga_flavor()
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    site = Site(plane.plane.app)
    site.sign_in("demo", plane.password("demo"))
    typed = {"resource_type": "flavor:instance", "flavor_id": "fpga", "amount": "2", "name": "course", "start_date": ""}
    made = site.post("/leases/new", **typed, end_date=f"{UNTIL:%Y-%m-%dT%H:%M}", action="make")
    assert made.status_code == 303, made.text
    plane.settle()
    return made.headers["location"]


def booking(site, path=FLAVOR):
    found = BOOKING.search(site.get(path).text)
    return None if found is None else found[0]


def test_the_page_says_what_holds_the_device_until_when_and_offers_the_next_times(sign_in, lease):
    seen = booking(sign_in("demo"))
    assert "No lease of four hours can start now: 1 instance of" in seen
    assert f'<a href="{lease}">course</a>, until <time datetime="{UNTIL:%Y-%m-%dT%H:%M:%SZ}">' in seen
    starts = re.findall(r'name="start_date" value="([^"]+)"', seen)
    assert starts == [f"{UNTIL + timedelta(hours=4 * number):%Y-%m-%dT%H:%M}" for number in range(3)]


def test_only_an_administrator_sees_leases_of_other_projects(plane, sign_in, lease):
    assert ">course</a> of demo, until" in booking(sign_in("admin"))
    plane.identity.request("POST", "/v3/projects", json={"project": {"name": "other", "domain_id": "default"}})
    projects = plane.identity.get("/v3/projects")["projects"]
    other = next(one["id"] for one in projects if one["name"] == "other")
    made = plane.identity.request(
        "POST", "/v3/users", json={"user": {"name": "guest", "password": "a long password", "domain_id": "default"}}
    )["user"]
    role = next(one["id"] for one in plane.identity.get("/v3/roles")["roles"] if one["name"] == "member")
    plane.identity.request("PUT", f"/v3/projects/{other}/users/{made['id']}/roles/{role}")
    site = Site(plane.plane.app)
    site.sign_in("guest", "a long password")
    seen = booking(site)
    assert "course" not in seen
    assert "run now" not in seen
    assert seen.count('value="make"') == 3


def test_the_page_says_that_more_leases_run(sign_in, plane, lease, monkeypatch):
    monkeypatch.setattr("moorage.dashboard.handlers.explain._RUNNING", 1)
    mine = sign_in("demo")
    assert "More leases run" not in booking(mine)
    second = make(mine, "second", start_date="", end_date=f"{UNTIL + timedelta(hours=1):%Y-%m-%dT%H:%M}")
    plane.settle()
    for site, address in ((sign_in("admin"), "/ui/leases?all=1"), (mine, "/ui/leases")):
        seen = booking(site)
        assert "course" in seen
        assert "second" not in seen
        assert f'More leases run: see <a href="{address}">the list of leases</a>.' in seen
    plane.reservation.request("DELETE", f"/v1/leases/{second}")
    plane.settle()


def test_a_flavor_or_server_without_a_host_because_of_leases_leads_to_reserving(plane, sign_in, lease):
    site = sign_in("admin")
    said = "The only host is kept for leases, or disabled: reserve first."
    page = site.get(FLAVOR).text
    assert f'{said} <a href="#booking">Reserve it instead</a>' in page
    assert "Closest hosts" not in page, "to remove a trait is no advice"
    server = plane.create_server(flavor="fpga", name="walk-in")
    plane.settle()
    page = site.get(f"/servers/{server}").text
    assert f'{said} <a href="/ui/explain?flavor=fpga#booking">Reserve it instead</a>' in page
    assert "<dt>Fault</dt>" not in page, "the explanation says it"
    plane.compute.request("DELETE", f"/servers/{server}")
    plane.settle()


def test_one_click_reserves_an_offered_time(plane, sign_in, lease):
    site = sign_in("demo")
    (form, *_) = re.findall(r"<form.*?</form>", booking(site), re.DOTALL)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    made = site.post("/leases/new", **{name: value for name, value in fields.items() if name != "form_token"})
    assert made.status_code == 303, made.text
    lease_id = made.headers["location"].rpartition("/")[2]
    document = plane.reservation.get(f"/v1/leases/{lease_id}")["lease"]
    assert document["start_date"].startswith(f"{UNTIL:%Y-%m-%dT%H:%M}")
    plane.reservation.request("DELETE", f"/v1/leases/{lease_id}")
    plane.settle()


def test_a_flavor_that_can_never_be_reserved_says_why_and_offers_nothing(plane, sign_in, lease):
    plane.create_flavor("giant", **{"resources:CUSTOM_ACCELERATOR_FPGA": "99"})
    seen = booking(sign_in("demo"), "/explain?flavor=giant")
    assert "99 CUSTOM_ACCELERATOR_FPGA cannot be reserved" in seen
    assert "<form" not in seen


def test_a_flavor_that_fits_and_a_pasted_query_offer_no_lease(plane, sign_in, lease):
    assert booking(sign_in("admin"), "/explain?query=resources%3DVCPU:1000") is None
