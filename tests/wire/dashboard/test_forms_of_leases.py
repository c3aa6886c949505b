"""Series, holds, maintenance windows and before-end actions, by forms without scripts."""

import re
from datetime import timedelta

import pytest

from moorage.core.names import reservation_class
from tests.conftest import START
from tests.system.planes import VirtualPlane
from tests.wire.dashboard.site import Site
from tests.wire.dashboard.test_calendar_pages import SIZE

PERIOD = {"start_date": "2026-03-09T08:00", "end_date": "2026-03-09T12:00"}
TYPED = {**PERIOD, **SIZE, "resource_type": "virtual:instance"}


@pytest.fixture(scope="module", autouse=True)
def host(plane: VirtualPlane):
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})


@pytest.fixture
def leases(plane):
    """A function that returns {start: name} of the leases with this word in their names."""

    def found(word):
        every = plane.reservation.get("/v1/leases")["leases"]
        return {lease["start_date"][:16]: lease["name"] for lease in every if word in lease["name"]}

    return found


def the_id(answer, after: str) -> str:
    assert answer.status_code == 303, answer.text
    return re.fullmatch(rf"/ui{after}([0-9a-f-]{{36}})(\?.*)?", answer.headers["location"])[1]


def actions(plane, lease_id):
    lease = plane.reservation.get(f"/v1/leases/{lease_id}", version="1.1")["lease"]
    when = next(event["time"] for event in lease["events"] if event["event_type"] == "before_end_lease")
    return when[:16], [each["action"] for each in lease["before_end_actions"]]


def test_a_series_is_created_by_the_form(sign_in, leases):
    site = sign_in("demo")
    checked = site.post("/leases/new", **TYPED, action="check", name="weekly", times="3", every_days="7").text
    assert "All 3 leases are possible" in checked
    assert re.findall('Possible: <time datetime="(2026-03-..)', checked) == ["2026-03-09", "2026-03-16", "2026-03-23"]
    assert leases("weekly") == {}
    done = site.post("/leases/new", **TYPED, action="make", name="weekly", times="3", every_days="7")
    assert (done.status_code, done.headers["location"]) == (303, "/ui/leases?made=3")
    assert "3 leases created" in site.get("/leases?made=3").text
    assert leases("weekly") == {
        "2026-03-09T08:00": "weekly 1/3", "2026-03-16T08:00": "weekly 2/3", "2026-03-23T08:00": "weekly 3/3"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "said"), [({"times": "101"}, "count must be"), ({"times": "0"}, "Number of leases: enter at least 1"),
                        ({"times": "2", "every_days": "0"}, "every_days must be"), ({"every_days": "x"}, "Days between starts")],
)  # fmt: skip
def test_a_refused_series_keeps_the_values_of_the_form(sign_in, leases, typed, said):
    answer = sign_in("demo").post("/leases/new", **{**TYPED, "name": "never", "action": "make", **typed})
    assert answer.status_code == 400
    assert said in answer.text
    assert f'value="{typed.get("times", "1")}"' in answer.text
    assert leases("never") == {}


def test_a_preview_shows_the_before_end_action_and_the_lease_of_a_series_that_does_not_fit(sign_in):
    site = sign_in("demo")
    told = site.post("/leases/new", **TYPED, action="check", snapshot="1", before_end_date="2026-03-09T11:30").text
    assert "2026-03-09 11:30</time>: take snapshots of its servers." in told
    much = {**TYPED, "amount": "9999", "times": "2", "every_days": "7"}
    answer = site.post("/leases/new", **much, action="check")
    assert answer.status_code == 409
    assert "The lease that starts 2026-03-09 08:00 (one of 2)" in answer.text


def test_an_invalid_number_of_created_leases_is_not_shown(sign_in):
    assert "are made" not in sign_in("demo").get("/leases?made=%3Cb%3E").text


def hold(site, name="held"):
    found = site.post("/leases/new", **TYPED, action="find", name=name).text
    offer = re.search(r'name="hold" value="([^"]+)"', found)[1]
    return offer, site.post("/leases/new", **TYPED, hold=offer, name=name)


def test_an_offered_time_is_held_and_becomes_a_lease(sign_in, plane):
    site = sign_in("demo")
    offer, answer = hold(site)
    held = the_id(answer, "/leases/holds/")
    assert offer == "2026-03-09T08:00|2026-03-09T12:00"
    page = site.get(answer.headers["location"].removeprefix("/ui")).text
    assert "held for you until" in page
    assert 'name="name" value="held"' in page
    assert f"/ui/leases/holds/{held}" in site.get("/leases/holds").text
    made = the_id(
        site.post(f"/leases/holds/{held}", name="from hold", before_end_date="2026-03-09T11:30", snapshot="1"),
        "/leases/",
    )
    lease = plane.lease(made)
    assert (lease["name"], lease["start_date"][:16], lease["end_date"][:16]) == (
        "from hold", "2026-03-09T08:00", "2026-03-09T12:00"
    )  # fmt: skip
    assert actions(plane, made) == ("2026-03-09T11:30", ["snapshot"])
    assert site.get(f"/leases/holds/{held}").status_code == 404
    assert site.post(f"/leases/holds/{held}", name="again").status_code == 404


def test_a_time_that_starts_now_can_be_held(sign_in):
    site = sign_in("demo")
    typed = {**TYPED, "start_date": "", "end_date": "2026-03-01T12:00"}
    found = site.post("/leases/new", **typed, action="find").text
    offer = re.search(r'name="hold" value="([^"]+)"', found)[1]
    held = the_id(site.post("/leases/new", **typed, hold=offer), "/leases/holds/")
    assert site.post(f"/leases/holds/{held}/release").status_code == 303


def test_a_hold_can_be_released(sign_in):
    site = sign_in("demo")
    held = the_id(hold(site)[1], "/leases/holds/")
    assert site.post(f"/leases/holds/{held}/release").headers["location"] == "/ui/leases/holds"
    assert "No holds." in site.get("/leases/holds").text


def test_a_series_cannot_be_held(sign_in):
    answer = sign_in("demo").post("/leases/new", **TYPED, hold="2026-03-09T08:00|2026-03-09T12:00", times="2")
    assert answer.status_code == 400
    assert "a series cannot be held" in answer.text


def test_a_hold_of_another_project_is_not_found(sign_in):
    admin = sign_in("admin")
    held = the_id(hold(admin, "<b>secret</b>")[1], "/leases/holds/")
    member = sign_in("demo")
    assert "No holds." in member.get("/leases/holds").text
    assert member.get(f"/leases/holds/{held}").status_code == 404
    for action in ("", "/release"):
        assert member.post(f"/leases/holds/{held}{action}", name="mine").status_code == 404
        assert member.post(f"/leases/holds/{held}{action}", origin="https://evil.test").status_code == 403
        assert member.post(f"/leases/holds/{held}{action}", token="0" * 64).status_code == 403
    assert "<b>secret" not in admin.get(f"/leases/holds/{held}?name=%3Cb%3Esecret").text
    admin.post(f"/leases/holds/{held}/release")


def test_an_expired_hold_is_reported(sign_in, plane):
    site = sign_in("demo")
    held = the_id(hold(site)[1], "/leases/holds/")
    plane.clock.advance_to(plane.clock.now() + timedelta(minutes=11))
    answer = site.post(f"/leases/holds/{held}", name="late")
    assert (answer.status_code, f"There is no hold {held}." in answer.text) == (404, True)


def test_a_before_end_action_is_set_shown_and_changed(sign_in, plane):
    site = sign_in("demo")
    made = the_id(
        site.post("/leases/new", **TYPED, action="make", snapshot="1", before_end_date="2026-03-09T11:00"), "/leases/"
    )
    assert actions(plane, made) == ("2026-03-09T11:00", ["snapshot"])
    page = site.get(f"/leases/{made}").text
    assert "Take snapshots of its servers" in page
    assert "planned" in page
    form = site.get(f"/leases/{made}/change").text
    assert 'name="snapshot" value="1" checked' in form
    assert 'name="before_end_date" type="datetime-local" value="2026-03-09T11:00"' in form
    longer = {**PERIOD, "end_date": "2026-03-09T13:00", "snapshot": "1", "before_end_date": "2026-03-09T11:00"}
    assert site.post(f"/leases/{made}/change", action="change", **longer).status_code == 303
    assert actions(plane, made) == ("2026-03-09T12:00", ["snapshot"]), "it goes with the end"
    off = {**PERIOD, "end_date": "2026-03-09T13:00", "snapshot": "", "before_end_date": "2026-03-09T12:30"}
    assert site.post(f"/leases/{made}/change", action="change", **off).status_code == 303
    assert actions(plane, made) == ("2026-03-09T12:30", [])


def test_a_forbidden_address_for_notifications_is_reported_and_kept_in_the_form(sign_in):
    answer = sign_in("demo").post(
        "/leases/new", **TYPED, action="make", webhooks="https://evil.test/<x>\nhttps://b.test"
    )
    assert answer.status_code == 400
    assert "Webhooks to https://evil.test are not allowed" in answer.text
    assert "https://evil.test/&lt;x&gt;\nhttps://b.test</textarea>" in answer.text.replace("\r", "")
    answer = sign_in("demo").post("/leases/new", **TYPED, action="check", webhooks="https://hooks.test/")
    assert "Webhooks to https://hooks.test are not allowed" in answer.text
    answer = sign_in("demo").post("/leases/new", **TYPED, action="check", emails="a@b.test")
    assert "cannot send mail" in answer.text


ALLOWED = {
    "webhook_origins": "https://hooks.test",
    "mail_domains": "b.test",
    "smtp_server": "mail.test:25",
    "mail_sender": "m@b.test",
}


def test_mails_and_webhooks_are_set_shown_and_changed(tmp_path):
    with VirtualPlane(tmp_path / "state", START, before_end=ALLOWED) as plane:
        plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
        site = Site(plane.plane.app)
        site.sign_in("demo", plane.password("demo"))
        asked = {"emails": "a@b.test\nc@b.test", "webhooks": "https://hooks.test/<i>"}
        made = the_id(site.post("/leases/new", **TYPED, action="make", **asked), "/leases/")
        page = site.get(f"/leases/{made}").text
        assert re.findall(r'(Send email to|Call webhook) <span class="mono">([^<]+)<', page) == [
            ("Send email to", "a@b.test"), ("Send email to", "c@b.test"), ("Call webhook", "https://hooks.test/&lt;i&gt;")
        ]  # fmt: skip
        form = site.get(f"/leases/{made}/change").text
        assert ">a@b.test\nc@b.test</textarea>" in form
        same = {**PERIOD, **asked, "snapshot": "", "emails": "c@b.test"}
        assert site.post(f"/leases/{made}/change", action="change", **same).status_code == 303
        lease = plane.reservation.get(f"/v1/leases/{made}", version="1.1")["lease"]
        assert [each.get("to") or each["url"] for each in lease["before_end_actions"]] == [
            "c@b.test",
            "https://hooks.test/<i>",
        ]
        again = site.post(f"/leases/{made}/change", action="change", **same)
        assert (again.status_code, "no field was changed" in again.text) == (400, True)


def test_a_maintenance_is_previewed_refused_and_created(sign_in, plane):
    site = sign_in("admin")
    assert ">compute-1</textarea>" in site.get("/leases/maintenance?hosts=compute-1").text
    in_the_way = the_id(sign_in("demo").post("/leases/new", **TYPED, action="make", name="<i>way</i>"), "/leases/")
    typed = {"name": "disks", "start_date": "2026-03-09T06:00", "end_date": "2026-03-09T10:00", "hosts": "compute-1"}
    seen = site.post("/leases/maintenance", **typed, action="check").text
    assert f'<a href="/ui/leases/{in_the_way}">&lt;i&gt;way&lt;/i&gt;</a>' in seen
    refused = site.post("/leases/maintenance", **typed, action="make")
    assert (refused.status_code, in_the_way in refused.text) == (409, True)
    free = {**typed, "start_date": "2026-04-09T06:00", "end_date": "2026-04-09T10:00"}
    assert "None: the hosts are free" in site.post("/leases/maintenance", **free, action="check").text
    made = the_id(site.post("/leases/maintenance", **free, action="make"), "/leases/")
    assert plane.lease(made)["reservations"][0]["resource_type"] == "physical:host"
    unknown = site.post("/leases/maintenance", **{**free, "hosts": "no-such\n<b>"}, action="check")
    assert (unknown.status_code, "no-such" in unknown.text, "<b>" in unknown.text) == (404, True, False)
    assert "Hosts: enter at least one" in site.post("/leases/maintenance", **{**free, "hosts": " "}, action="make").text


def test_only_administrators_may_reserve_hosts_for_maintenance(sign_in):
    member = sign_in("demo")
    typed = {**PERIOD, "hosts": "compute-1", "action": "make"}
    assert member.get("/leases/maintenance").status_code == 403
    assert member.post("/leases/maintenance", **typed).status_code == 403
    assert "Maintenance" not in member.get("/leases").text
    assert sign_in("admin").post("/leases/maintenance", **typed, origin="https://evil.test").status_code == 403


def test_a_page_without_a_session_redirects_to_the_sign_in_page(site: Site):
    for path in ("/leases/holds", "/leases/maintenance"):
        assert site.get(path).headers["location"].startswith("/ui/sign-in")


def test_the_map_links_to_the_leases_with_slots_on_a_host(sign_in, plane):
    site = sign_in("admin")
    now = plane.clock.now().replace(second=0, microsecond=0)
    lease = plane.create_lease(start=now, end=now + timedelta(hours=1), amount=2)
    later = plane.create_lease(start=now + timedelta(hours=1), end=now + timedelta(hours=2), amount=1)
    plane.settle()
    tree = "/map/" + plane.placement.get("/moorage/v1/trees")["trees"][0]["uuid"]
    seen = site.get(tree).text
    assert (
        f'<a href="/ui/leases/{lease}" title="{reservation_class(plane.reservation_id(lease))}">Slots of team</a>'
        in seen
    )
    assert f'<a href="/ui/leases/{lease}">team</a>' in seen
    assert "2 slots, until" in seen
    assert later not in seen
    for one in (lease, later):
        plane.reservation.request("DELETE", f"/v1/leases/{one}")
    plane.settle()
    assert lease not in site.get(tree).text


def test_an_error_is_shown_at_its_field(sign_in):
    site = sign_in("demo")
    for typed, field, said in (
        ({"end_date": "2026-03-09T07:00"}, "end_date", "End: must be after the start"),
        ({"vcpus": "two"}, "vcpus", "VCPUs: two is not a whole number"),
        ({"memory_mb": "0"}, "memory_mb", "memory_mb must be &gt;= 1"),
        ({"amount": "0"}, "amount", "amount must be &gt;= 1"),
    ):
        seen = site.post("/leases/new", **{**TYPED, **typed}, action="make").text
        assert re.search(rf'id="{field}"[^>]*aria-invalid="true" aria-errormessage="{field}-problem" autofocus', seen)
        assert seen.count(" autofocus") == 1
        assert said in re.search(rf'<p class="problem"[^>]* id="{field}-problem">([^<]+)</p>', seen)[1]
        assert seen.count("aria-invalid") == 1
        assert f'role="alert" id="error"><a href="#{field}">' in seen


@pytest.mark.parametrize(
    ("given", "end"),
    [({}, "2026-03-01T14:00"), ({"start_date": ""}, "2026-03-01T14:00"),
     ({"start_date": "2026-03-09T08:30"}, "2026-03-09T12:30"), ({"start_date": "2026-03-09 22:00"}, "2026-03-10T02:00"),
     ({"start_date": "2026-03-01T09:45"}, "2026-03-01T13:45"), ({"start_date": "2025-12-01T08:00"}, "2026-03-01T14:00"), ({"start_date": "soon"}, "2026-03-01T14:00"),
     ({"start_date": "9999-12-31T23:59"}, "2026-03-01T14:00"),
     ({"start_date": "2026-03-09T08:00", "end_date": "2026-03-09T09:00"}, "2026-03-09T09:00")],
)  # fmt: skip
def test_the_form_proposes_an_end_four_hours_after_the_start(sign_in, given, end):
    """If the lease starts now or earlier, four hours after the next full hour."""
    page = sign_in("demo").get("/leases/new", params=given).text
    assert re.search(r'id="end_date"[^>]* value="([^"]*)"', page)[1] == end


def test_pages_of_forms_can_be_left_without_a_change(sign_in, plane):
    site = sign_in("admin")
    lease = plane.create_lease(start=START + timedelta(days=3), end=START + timedelta(days=4), amount=1)
    for path, back in (
        ("/leases/new", "/leases"), ("/leases/maintenance", "/leases"), (f"/leases/{lease}/change", f"/leases/{lease}"),
        (f"/leases/{lease}/launch", f"/leases/{lease}"), ("/password", "/"),
        ("/accelerators/release?host=compute-1&handle=a%26b", "/accelerators?host=compute-1"),
    ):  # fmt: skip
        page = site.get(path).text
        assert re.findall(r'<a class="button" href="/ui([^"]*)">Cancel</a>', page) == [back]
        assert page.count(" autofocus") == 1
    plane.reservation.request("DELETE", f"/v1/leases/{lease}")
