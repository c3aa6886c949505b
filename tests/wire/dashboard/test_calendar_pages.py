"""The calendar and the pages of leases without scripts; and the number of requests per page."""

import re
from html import unescape

import pytest

PERIOD = {"start_date": "2026-03-03T08:00", "end_date": "2026-03-03T12:00"}
SIZE = {"vcpus": "1", "memory_mb": "64", "disk_gb": "1", "amount": "1"}


@pytest.fixture(scope="module", autouse=True)
def host(plane):
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})


def make(site, name, **typed):
    done = site.post(
        "/leases/new", action="make", name=name, **{"resource_type": "virtual:instance", **PERIOD, **SIZE, **typed}
    )
    assert done.status_code == 303, done.text
    return done.headers["location"].rpartition("/")[2]


def test_the_first_view_sends_one_request_for_any_number_of_leases(sign_in, sent):
    """The number is the same with 10,000 hosts and 100,000 reservations, because the service computes the sums.

    The service in turn asks Placement once what has changed, so that the calendar shows the capacity of now.
    """
    site = sign_in("demo")
    site.get("/calendar")  # the dashboard caches the token
    for number in range(3):
        make(site, f"lease {number}")
    sent.clear()
    page = site.get("/calendar?start=2026-03-02")
    assert sent == ["GET /reservation/v1/calendar", "GET /placement/moorage/v1/changes"]
    assert page.text.count('class="bar-link') == 3


def test_the_views_for_operators_send_few_requests(sign_in, sent):
    site = sign_in("admin")
    site.get("/calendar")
    sent.clear()
    site.get("/calendar?show=hosts")
    assert sorted(sent) == ["GET /identity/v3/projects", "GET /identity/v3/users", "GET /reservation/v1/os-hosts",
                            "GET /reservation/v1/os-hosts/allocations"]  # fmt: skip
    sent.clear()
    site.get("/calendar?show=projects")
    assert sent == ["GET /reservation/v1/leases"], "the dashboard caches the names"


def test_the_calendar_of_hosts_names_leases_with_their_project_and_state(sign_in):
    mine = sign_in("demo")
    lease = make(mine, "two servers", amount="2")
    page = sign_in("admin").get("/calendar?show=hosts&start=2026-03-02").text
    bar = page[page.index(f'href="/ui/leases/{lease}"') :].partition("</a>")[0]
    period = "2026-03-03 08:00 to 2026-03-03 12:00 UTC"
    assert f'aria-label="two servers, project demo, PENDING, 2 slots, {period}"' in bar
    assert f"<title>two servers, project demo, PENDING, 2 slots: {period}</title>" in bar
    assert "<span>two servers, 2 slots</span>" in bar
    assert '<a href="/ui/hosts/compute-1">compute-1</a>' in page
    assert "two servers" not in mine.get("/calendar?show=hosts&start=2026-03-09").text


def test_rows_that_have_no_room_for_all_leases_lead_to_all_of_them(sign_in):
    site = sign_in("demo")
    for number in range(7):
        make(site, f"at once {number}", start_date="2026-04-03T08:00", end_date="2026-04-03T12:00")
    for what in ("hosts", "projects"):
        page = sign_in("admin").get(f"/calendar?show={what}&start=2026-04-01").text
        address, count = re.search(r'<a href="/ui(/calendar[^"]+)">(\d+) more</a>', page).groups()
        assert (page.count('class="bar-link'), count) == (5, "2")
        page = sign_in("admin").get(address.replace("&amp;", "&")).text
        assert page.count('class="bar-link') == 7
        assert " more</a>" not in page


def test_a_period_has_any_hours_and_a_wrong_end_is_reported_at_its_field(sign_in):
    site = sign_in("demo")
    make(site, "of the morning", start_date="2026-05-03T08:00", end_date="2026-05-03T12:00")
    assert "of the morning" in site.get("/calendar?start=2026-05-03T11:00&end=2026-05-03T13:00").text
    assert "of the morning" not in site.get("/calendar?start=2026-05-03T12:00&end=2026-05-03T13:00").text
    answer = site.get("/calendar?start=2026-05-03T12:00&end=2026-05-03T11:00")
    assert answer.status_code == 400
    assert '<a href="#end">To: must be after From' in answer.text
    assert 'value="2026-05-03T11:00" aria-invalid="true"' in answer.text


def test_a_lease_names_its_hosts_to_administrators_and_to_others_their_number(sign_in):
    site = sign_in("demo")
    lease = make(site, "somewhere", amount="2", start_date="2026-06-03T08:00", end_date="2026-06-03T12:00")
    assert "<dt>Placed on</dt><dd>1 host</dd>" in site.get(f"/leases/{lease}").text
    page = sign_in("admin").get(f"/leases/{lease}").text
    assert '<dt>Placed on</dt><dd><a href="/ui/hosts/compute-1">compute-1</a> (2 slots)</dd>' in page


def test_members_of_other_projects_see_neither_name_nor_id_of_a_lease(sign_in):
    lease = make(sign_in("demo"), "secret plans")
    others = sign_in("admin")
    others.post("/project", project_id=project_of(others, "admin"))
    assert "secret plans" not in others.get("/calendar?start=2026-03-02").text
    mine = make(others, "mine")
    member = sign_in("demo")
    page = member.get("/calendar?start=2026-03-02").text
    assert mine not in page
    assert lease in page
    for path in ("", "/change"):
        assert member.get(f"/leases/{mine}{path}").status_code == 403
    for act in ("end", "cancel", "delete"):
        assert member.post("/leases/selected", **{act: mine}).status_code == 409
    assert others.get(f"/leases/{mine}").status_code == 200
    assert member.post(f"/leases/{mine}/change", name="stolen", action="change").status_code == 403
    assert "mine" not in member.get("/leases?all=1").text


def project_of(site, name):
    page = site.get("/", follow_redirects=True).text
    return next(
        value for value, words in re.findall(r'name="project_id" value="([^"]+)"[^>]*>([^<]+)<', page) if words == name
    )


def test_names_are_escaped_on_every_page(sign_in):
    site = sign_in("demo")
    lease = make(site, '"><img src=x onerror=alert(1)>')
    for path in ("/calendar?start=2026-03-02", "/leases", f"/leases/{lease}", f"/leases/{lease}/change"):
        page = site.get(path).text
        assert "<img src=x" not in page
        assert "&lt;img src=x" in page


def test_leases_are_created_changed_and_deleted_only_by_our_own_forms(sign_in):
    site = sign_in("demo")
    lease = make(site, "kept")
    for path in ("/leases/new", f"/leases/{lease}/change", "/leases/selected"):
        assert site.post(path, origin="https://evil.test", action="make", cancel=lease).status_code == 403
        assert site.post(path, token="0" * 64, action="make", cancel=lease).status_code == 403
    assert site.get(f"/leases/{lease}").status_code == 200
    assert "1 lease cancelled" in site.post("/leases/selected", cancel=lease).text
    assert site.get(f"/leases/{lease}").status_code == 404


def test_a_refused_form_has_the_status_of_the_refusal_and_keeps_its_values(sign_in):
    site = sign_in("demo")
    typed = {**PERIOD, **SIZE, "name": "much", "resource_type": "virtual:instance", "action": "make"}
    answer = site.post("/leases/new", **{**typed, "amount": "9999"})
    assert answer.status_code == 409
    assert "fit" in answer.text
    assert 'value="9999"' in answer.text
    answer = site.post("/leases/new", **{**typed, "resource_properties": "nonsense"})
    assert answer.status_code == 400
    assert 'value="nonsense"' in answer.text


def test_a_change_sends_only_the_changed_fields(sign_in):
    site = sign_in("demo")
    lease = make(site, "longer")
    answer = site.post(f"/leases/{lease}/change", name="longer", action="change", **PERIOD)
    assert (answer.status_code, "no field was changed" in answer.text) == (400, True)
    checked = site.post(f"/leases/{lease}/change", action="check", **{**PERIOD, "end_date": "2026-03-03T13:00"})
    assert "Possible:" in checked.text
    assert "12:00" in site.get(f"/leases/{lease}").text
    done = site.post(f"/leases/{lease}/change", action="change", **{**PERIOD, "end_date": "2026-03-03T13:00"})
    assert done.status_code == 303
    assert "13:00" in site.get(f"/leases/{lease}").text


def test_an_invalid_date_shows_the_calendar_of_today(sign_in):
    site = sign_in("demo")
    for query in ("start=x&days=y&show=z", "start=9999-12-31&days=90", "start=0001-01-01"):
        assert site.get(f"/calendar?{query}").status_code == 200


def test_a_lease_that_has_not_started_can_be_cancelled_but_not_ended(sign_in):
    site = sign_in("demo")
    lease = make(site, "to come")
    page = site.get(f"/leases/{lease}").text
    assert "Cancel before it starts" in page
    assert "End now" not in page
    assert "what runs on it" not in page
    link = unescape(re.search(r'href="/ui(/leases/selected[^"]+)">Cancel before it starts</a>', page)[1])
    confirmation = site.get(link).text
    assert f'<input type="hidden" name="cancel" value="{lease}">' in confirmation
    assert f'<a class="button" href="/ui/leases/{lease}">Back</a>' in confirmation, "to where the link was"
    assert site.get(f"/leases/{lease}").status_code == 200, "only the confirmed form cancels it"
    assert "1 lease cancelled" in site.post("/leases/selected", cancel=lease).text
    assert site.get(f"/leases/{lease}").status_code == 404


@pytest.mark.parametrize("tail", ["%3Fx=1", "%23x", "%252Ftimeline", "%2F%2E%2E"])
def test_an_id_in_an_address_cannot_reach_another_path(sign_in, tail):
    site = sign_in("demo")
    lease = make(site, "one")
    assert site.get(f"/leases/{lease}{tail}").status_code == 404
    assert site.get(f"/leases/{lease}").status_code == 200


def test_running_leases_come_first_with_their_project_and_person(sign_in, plane):
    mine = sign_in("demo")
    ended = make(mine, "over soon", start_date="", end_date="2026-03-03T12:00")
    make(mine, "planned", start_date="2026-03-05T08:00", end_date="2026-03-05T09:00")
    make(mine, "running", start_date="", end_date="2026-03-03T13:00")
    plane.settle()
    mine.post("/leases/selected", end=ended)
    plane.run_for(90)
    page = sign_in("admin").get("/leases?all=1").text
    assert page.index(">running</a>") < page.index('<h2 id="group-coming">') < page.index(">planned</a>")
    assert "over soon" not in page
    row = page[page.index(">running</a>") :].partition("</tr>")[0]
    assert re.findall(r'data-label="(Project|Person)" title="[^"]+">([^<]+)<', row) == [
        ("Project", "demo"), ("Person", "demo")
    ]  # fmt: skip
    assert "over soon" in mine.get("/leases?show=ended").text
    assert "over soon" in mine.get("/leases?show=all").text


def test_the_free_count_of_whole_hosts_leaves_out_hosts_with_other_leases(sign_in):
    """The page said that the host is free, but nobody could reserve it."""
    site = sign_in("demo")
    make(site, "one server", start_date="2026-03-20T08:00", end_date="2026-03-20T09:00")
    row = site.get("/calendar?start=2026-03-20&days=1").text.partition(">Whole hosts</span>")[2].partition("</tr>")[0]
    assert "2026-03-20 08:00 to 2026-03-20 09:00 UTC: at most 1 used, at least 0 free" in row
    assert "2026-03-20 09:00 to 2026-03-20 10:00 UTC: at most 0 used, at least 1 free" in row


def test_the_address_of_the_plane_leads_to_the_dashboard(sign_in):
    site = sign_in("demo")
    answer = site.http.get("/")
    assert (answer.status_code, answer.headers["location"]) == (302, "ui/")
    assert site.http.get("/", follow_redirects=True).url.path == "/ui/calendar"
    assert site.http.post("/").status_code == 404
