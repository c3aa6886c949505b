"""The list of leases: sorted and filtered by its address, and several leases ended, cancelled or deleted by forms."""

import re
from html import unescape

import pytest

from moorage.core.errors import Unavailable
from moorage.dashboard.handlers import leases as handler
from moorage.wire.transports import ClientResponse, InProcessTransport
from tests.wire.dashboard.test_calendar_pages import make
from tests.wire.dashboard.test_pages import ESCAPED, HOSTILE

NOBODY = "00000000-0000-4000-8000-00000000000f"
NOT_READ = "Does not exist any more, or belongs to another project."


@pytest.fixture(scope="module", autouse=True)
def host(plane):
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})


@pytest.fixture(autouse=True)
def no_leases(plane):
    """Deletes the leases of the test before."""
    for lease in plane.reservation.get("/v1/leases")["leases"]:
        plane.reservation.request("DELETE", f"/v1/leases/{lease['id']}")
    plane.settle()


@pytest.fixture
def site(sign_in):
    return sign_in("demo")


def coming(site, name, day, **typed):
    """The id of a new lease that starts on this day of March."""
    return make(site, name, start_date=f"2026-03-{day}T08:00", end_date=f"2026-03-{day}T09:00", **typed)


@pytest.fixture
def three(site, plane):
    """{name: id} of a running lease and two that start later."""
    made = {"two": coming(site, "two", 20), "ten": coming(site, "ten", 19)}
    made["now"] = make(site, "now", start_date="", end_date="2026-03-15T12:00")
    plane.settle()
    plane.run_for(90)
    return made


def names_in(page, group="coming"):
    """The names of the leases in a table, in its order."""
    table = page.partition(f'id="group-{group}"')[2].partition("</section>")[0]
    return [unescape(name) for name in re.findall(r'<th scope="row"><a [^>]+>([^<]+)</a>', table)]


def heading_of(page, group="coming"):
    return re.sub(r"<[^>]+>", "", re.search(rf'<h2 id="group-{group}">(.+?)</h2>', page)[1])


def acts_in(page):
    """[(act, lease)] of the form of a page that asks for confirmation."""
    return re.findall(r'<input type="hidden" name="(end|cancel|delete|delete_ended)" value="([^"]+)">', page)


def title_of(page):
    return re.search("<h1>(.+?)</h1>", page)[1]


def statuses(plane):
    return {lease["name"]: lease["status"] for lease in plane.reservation.get("/v1/leases")["leases"]}


# --- the list -----------------------------------------------------------------------------------------------------


def test_a_heading_sorts_the_list_and_keeps_its_tab_and_filter(site, three):
    page = site.get("/leases").text
    assert names_in(page) == ["ten", "two"], "the lease that starts first"
    assert "aria-sort" not in page
    assert names_in(site.get("/leases?sort=-name").text) == ["two", "ten"]
    seen = site.get("/leases?show=all&find=pending&sort=name").text
    assert names_in(seen, "all") == ["ten", "two"]
    assert (
        'aria-sort="ascending"><a class="sort" href="/ui/leases?show=all&amp;find=pending&amp;sort=-name">Name' in seen
    )
    assert 'href="/ui/leases?show=all&amp;find=pending&amp;sort=start">Start' in seen


def test_the_filter_finds_words_of_any_column_and_the_headings_count(site, three):
    page = site.get("/leases").text
    assert (heading_of(page, "running"), heading_of(page)) == ("Running (1)", "Coming (2)")
    page = site.get("/leases?find=PENDING+2026-03-20").text
    assert names_in(page) == ["two"]
    assert (heading_of(page, "running"), heading_of(page)) == ("Running (0 of 1)", "Coming (1 of 2)")
    assert page.count('No lease matches. <a href="/ui/leases">Show all.</a>') == 1
    assert 'value="PENDING 2026-03-20"' in page
    assert names_in(site.get("/leases?show=all&find=by+size").text, "all") == ["two", "ten", "now"]


def test_hostile_text_in_the_address_is_escaped_and_no_parameter_leads_elsewhere(site, three):
    page = site.get("/leases", params={"find": HOSTILE, "sort": HOSTILE, "show": HOSTILE, "select": HOSTILE}).text
    assert HOSTILE not in page
    assert f'value="{ESCAPED}"' in page
    seen = site.get("/leases/selected", params={"find": HOSTILE, "do": HOSTILE, "lease": HOSTILE}).text
    assert HOSTILE not in seen
    assert 'href="/ui/leases?find=%3Cscript' in seen


def test_a_page_shows_some_of_the_leases_read_and_leads_to_the_others(site, three, monkeypatch):
    coming(site, "six", 21)
    monkeypatch.setattr(handler, "SHOWN", 2)
    page = site.get("/leases").text
    assert (names_in(page), heading_of(page)) == (["ten", "two"], "Coming (3)")
    assert "The first 2 of 3. Filter to see the others." in page
    assert names_in(site.get("/leases?find=six").text) == ["six"]
    monkeypatch.setattr(handler, "READ", 2)
    page = site.get("/leases?find=ten&sort=name").text
    assert (names_in(page), heading_of(page)) == (["ten"], "Coming (1 of 2+)")
    assert "These are the 2 leases that start first." in page
    following = unescape(re.search('href="/ui([^"]+)" rel="next"', page)[1])
    assert following == f"/leases?find=ten&sort=name&show=coming&marker={three['two']}"
    page = site.get(following.replace("find=ten&", "")).text
    assert names_in(page) == ["six"]
    assert 'rel="next"' not in page
    assert f'<input type="hidden" name="marker" value="{three["two"]}">' in page, "the filter stays on this page"
    assert "marker" not in re.search(r'<a href="([^"]+)">Ended</a>', page)[1]


def test_each_table_is_one_request_however_many_leases_and_people_there_are(sign_in, three, sent):
    site = sign_in("admin")
    site.get("/leases?all=1")
    sent.clear()
    site.get("/leases?all=1&sort=project&find=demo")
    assert sent == ["GET /reservation/v1/leases"] * 2


def test_a_lease_that_can_be_changed_has_a_link_to_its_form(site, three, plane):
    page = site.get("/leases?show=all").text
    assert f'<a href="/ui/leases/{three["now"]}/change">Change<span class="unseen"> now</span></a>' in page
    site.post("/leases/selected", end=three["now"])
    plane.settle()
    page = site.get("/leases?show=all").text
    assert three["now"] in page
    assert f"{three['now']}/change" not in page


def test_all_leases_of_a_table_can_be_selected_by_a_link(site, three):
    assert "checked" not in site.get("/leases").text
    page = site.get("/leases?select=coming").text
    assert set(re.findall(r'value="([^"]+)" checked', page)) == {three["two"], three["ten"]}


# --- acting on several --------------------------------------------------------------------------------------------


def confirm(site, do, *leases, **more):
    return site.get("/leases/selected", params={"do": do, "lease": leases, **more})


def test_the_selected_leases_are_shown_with_what_happens_to_each(site, three):
    page = confirm(site, "end", *three.values(), show="all").text
    assert acts_in(page) == [("end", three["now"])]
    assert title_of(page) == "End 1 lease?"
    assert "Ends now. Its servers are deleted" in page
    assert page.count("Cannot be ended: it has not started. Cancel it instead.") == 2
    assert '<a class="button" href="/ui/leases?show=all">Back</a>' in page
    page = confirm(site, "delete", *three.values()).text
    assert sorted(acts_in(page)) == sorted(
        [("delete", three["now"]), ("cancel", three["two"]), ("cancel", three["ten"])]
    )
    assert '<button class="danger">Cancel 2 and delete 1 lease</button>' in page
    page = confirm(site, "end", three["two"]).text
    assert (title_of(page), acts_in(page)) == ("No selected lease can be ended", [])
    assert "danger" not in page


def test_looking_at_the_confirmation_changes_nothing(site, three, plane):
    before = statuses(plane)
    for do in ("end", "delete"):
        confirm(site, do, *three.values())
    assert statuses(plane) == before


def test_confirmed_leases_are_ended_cancelled_and_deleted(site, three, plane):
    page = site.post("/leases/selected", end=three["now"], show="all").text
    assert title_of(page) == "1 lease ended"
    assert f'<a href="/ui/leases/{three["now"]}">now</a>: ended' in page
    assert 'href="/ui/leases?show=all">Back to the leases' in page
    plane.settle()
    assert statuses(plane) == {"now": "TERMINATED", "two": "PENDING", "ten": "PENDING"}
    page = site.post("/leases/selected", cancel=[three["two"], three["ten"]], delete_ended=three["now"]).text
    assert title_of(page) == "2 leases cancelled, 1 deleted"
    plane.settle()
    assert statuses(plane) == {}


def test_a_refused_lease_does_not_stop_the_others_and_says_why(site, three, plane):
    answer = site.post("/leases/selected", end=[three["two"], NOBODY, three["now"]])
    assert (answer.status_code, title_of(answer.text)) == (200, "1 lease ended, 2 refused")
    refused = answer.text.partition('id="refused"')[2].partition("</section>")[0]
    assert f'<a href="/ui/leases/{three["two"]}">two</a>: Cannot be ended: it has not started.' in refused
    assert f"{NOBODY}</span>: {NOT_READ}" in refused
    assert statuses(plane)["two"] == "PENDING"
    again = site.post("/leases/selected", end=three["two"])
    assert (again.status_code, title_of(again.text)) == (409, "No lease was changed")


def test_a_refusal_of_the_service_is_shown_in_its_words(site, three, monkeypatch):
    send = InProcessTransport.send

    def refusing(self, method, path, headers, body=None):
        path = path.replace(three["two"], NOBODY) if method == "DELETE" else path
        return send(self, method, path, headers, body)

    monkeypatch.setattr(InProcessTransport, "send", refusing)
    page = site.post("/leases/selected", cancel=[three["two"], three["ten"]]).text
    assert title_of(page) == "1 lease cancelled, 1 refused"
    assert re.search(rf">two</a>: [^<]*{NOBODY}", page)


def test_a_lease_that_has_started_since_is_not_deleted_with_its_servers(site, three, plane):
    """The form said that it is cancelled before it starts."""
    answer = site.post("/leases/selected", cancel=three["now"])
    assert answer.status_code == 409
    assert "Its status is ACTIVE now. Select it again." in answer.text
    assert statuses(plane)["now"] == "ACTIVE"


def test_a_lease_of_another_project_is_neither_shown_nor_changed(sign_in, plane):
    theirs = coming(sign_in("admin"), "secret plans", 22)
    member = sign_in("demo")
    page = confirm(member, "delete", theirs)
    assert (page.status_code, NOT_READ in page.text, "secret" in page.text) == (404, True, False)
    for act in ("end", "cancel", "delete", "delete_ended"):
        answer = member.post("/leases/selected", **{act: theirs})
        assert (answer.status_code, NOT_READ in answer.text, "secret" in answer.text) == (409, True, False)
    assert statuses(plane) == {"secret plans": "PENDING"}
    admin = sign_in("admin")
    mine = coming(member, "of a member", 23)
    assert "Project" not in re.findall('<th scope="col">([^<]+)', confirm(admin, "delete", theirs).text)
    page = confirm(admin, "delete", theirs, mine, all="1").text
    assert re.findall('data-label="Project"[^>]*>([^<]+)<', page) == ["admin", "demo"]


def test_a_form_with_no_lease_too_many_or_an_unknown_act_says_what_to_do(site, plane, three):
    many = [f"{number:08}-0000-4000-8000-000000000000" for number in range(51)]
    for answer, said in [
        (confirm(site, "end"), "No lease is selected. Go back to the list and select the leases first."),
        (confirm(site, "end", ""), "No lease is selected."),
        (confirm(site, "delete", *many), "51 leases are selected. At most 50 can be changed at once;"),
        (confirm(site, "stop", three["now"]), "Choose what to do with the leases"),
        (site.post("/leases/selected"), "No lease is selected."),
        (site.post("/leases/selected", do="end", lease=three["now"]), "No lease is selected."),
        (site.post("/leases/selected", end=[*many, three["now"]]), "52 leases are selected. At most 50"),
    ]:
        assert (answer.status_code, said in answer.text) == (400, True), said
        assert '<p class="error" role="alert">' in answer.text
    assert len(acts_in(confirm(site, "end", *[three["now"]] * 60).text)) == 1, "repetitions count once"
    assert statuses(plane)["now"] == "ACTIVE"


def test_names_are_escaped_in_the_list_the_confirmation_and_the_result(site):
    lease = coming(site, HOSTILE, 24)
    for page in (
        site.get("/leases?select=coming"),
        confirm(site, "delete", lease),
        site.post("/leases/selected", end=lease),
        site.post("/leases/selected", cancel=lease),
    ):
        assert HOSTILE not in page.text
        assert ESCAPED in page.text


def test_several_leases_are_changed_only_by_our_own_forms(site, three, plane):
    assert site.post("/leases/selected", end=three["now"], origin="https://evil.test").status_code == 403
    assert site.post("/leases/selected", end=three["now"], token="0" * 64).status_code == 403
    assert statuses(plane)["now"] == "ACTIVE"


@pytest.mark.parametrize("status", [None, 500])
def test_a_service_that_stops_answering_is_not_asked_for_each_lease(site, three, monkeypatch, status):
    send, deletions = InProcessTransport.send, []

    def failing(self, method, path, headers, body=None):
        if method == "DELETE" and path.startswith("/v1/leases/"):
            deletions.append(path)
        if deletions and path.startswith("/v1/leases/") and path != deletions[0]:
            if status is None:
                raise Unavailable("nobody listens")
            return ClientResponse(status, {}, b"{}")
        return send(self, method, path, headers, body)

    monkeypatch.setattr(InProcessTransport, "send", failing)
    page = site.post("/leases/selected", cancel=[three["two"], three["ten"]], delete=three["now"]).text
    assert title_of(page) == "1 lease cancelled, 2 refused"
    assert page.count("The reservation service does not answer any more.") == 2
    assert len(deletions) == 1


@pytest.mark.parametrize("lease", ["../../v1/os-hosts/1", "x?y=1", "..", "%2e%2e", "x" * 3000])
def test_an_id_in_a_form_cannot_reach_another_path(site, lease):
    assert confirm(site, "delete", lease).status_code == 404
    answer = site.post("/leases/selected", delete=lease)
    assert (answer.status_code, NOT_READ in answer.text) == (409, True)
