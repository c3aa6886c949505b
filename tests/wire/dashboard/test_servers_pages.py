"""Servers: the list, acting on one or several by forms, and the way between servers and their leases."""

import re
from datetime import timedelta
from html import unescape

import pytest

from moorage.core.errors import Unavailable
from moorage.dashboard.handlers import servers as handler
from moorage.wire.client import ServiceClient
from moorage.wire.transports import ClientResponse, InProcessTransport
from tests.system.planes import embedded_credentials
from tests.wire.dashboard.test_calendar_pages import make
from tests.wire.dashboard.test_pages import ESCAPED, HOSTILE, counted

NOBODY = "00000000-0000-4000-8000-00000000000f"
NOT_READ = "Does not exist any more, or belongs to another project."


@pytest.fixture(scope="module")
def flavors(plane):
    """{what happens to its servers: flavor}: a small one, and one for which there is no host."""
    small = plane.create_flavor("small")
    huge = plane.create_flavor("huge", **{"resources:CUSTOM_ACCELERATOR_FPGA": "7"})
    return {"small": small, "huge": huge}


@pytest.fixture(autouse=True)
def no_servers(plane):
    """Deletes the servers and leases of the test before."""
    for server in plane.compute.get("/servers?all_tenants=1")["servers"]:
        plane.compute.request("DELETE", f"/servers/{server['id']}")
    plane.settle()  # a lease waits for its servers
    for lease in plane.reservation.get("/v1/leases")["leases"]:
        plane.reservation.request("DELETE", f"/v1/leases/{lease['id']}")
    plane.settle()


@pytest.fixture
def site(sign_in):
    return sign_in("admin")


@pytest.fixture
def three(plane, flavors):
    """{name: id}: one that runs, one that is stopped and one without a host, of the project admin."""
    made = {name: plane.create_server(flavor=flavors["small"], name=name) for name in ("web 10", "web 9")}
    made["homeless"] = plane.create_server(flavor=flavors["huge"], name="homeless")
    plane.settle()
    plane.compute.request("POST", f"/servers/{made['web 9']}/action", json={"os-stop": None})
    plane.settle()
    return made


@pytest.fixture
def create_as_member(plane):
    """A function that creates a server of the project demo; returns its id."""
    identity = InProcessTransport(plane.plane.app, "http://127.0.0.1/identity")
    tokens = embedded_credentials(identity, plane.state, plane.clock, "demo")
    transport = InProcessTransport(plane.plane.app, "http://127.0.0.1/compute")
    compute = ServiceClient(transport, service_type="compute", version="2.96", credentials=tokens, clock=plane.clock)
    image = plane.create_image(visibility="public")

    def create(flavor, name, **hints):
        server = {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}
        body = {"server": server, "os:scheduler_hints": hints}
        made = compute.request("POST", "/v2.1/servers", json=body)["server"]["id"]
        plane.settle()
        return made

    return create


def names_in(page):
    """The names of the servers in the list, in its order."""
    return [unescape(name) for name in re.findall(r'<th scope="row"><a href="/ui/servers/[^>]+>([^<]+)</a>', page)]


def acts_in(page):
    """[(act, server)] of the form of a page that asks for confirmation."""
    return re.findall(r'<input type="hidden" name="(delete|stop|start|reboot|reboot_hard)" value="([^"]+)">', page)


def title_of(page):
    return re.search("<h1>(.+?)</h1>", page)[1]


def statuses(plane):
    found = plane.compute.get("/servers/detail?all_tenants=1")["servers"]
    return {server["name"]: server["status"] for server in found}


def confirm(site, do, *servers, **more):
    return site.get("/servers/selected", params={"do": do, "server": servers, **more})


# --- the list -----------------------------------------------------------------------------------------------------


def test_the_list_is_sorted_by_a_heading_and_filtered_by_words_of_any_column(site, three):
    assert names_in(site.get("/servers?sort=name").text) == ["homeless", "web 9", "web 10"]
    page = site.get("/servers?find=web&sort=-name").text
    assert names_in(page) == ["web 10", "web 9"]
    assert '<span class="quiet">(2 of 3)</span>' in page
    assert 'aria-sort="descending"><a class="sort" href="/ui/servers?find=web&amp;sort=name">Name' in page
    assert names_in(site.get("/servers?find=shutoff+small").text) == ["web 9"]
    assert names_in(site.get("/servers?find=no+valid+host").text) == ["homeless"]
    assert 'No server matches. <a href="/ui/servers">Show all.</a>' in site.get("/servers?find=nothing").text
    assert set(re.findall(r'value="([^"]+)" checked', site.get("/servers?select=all").text)) == set(three.values())
    assert "checked" not in page


def test_hostile_text_in_the_address_is_escaped(site, plane, flavors):
    plane.create_server(flavor=flavors["small"], name=HOSTILE)
    plane.settle()
    page = site.get("/servers", params={"find": "script", "sort": HOSTILE, "select": HOSTILE}).text
    assert (HOSTILE in page, f">{ESCAPED}</a>" in page) == (False, True)
    seen = site.get("/servers/selected", params={"find": HOSTILE, "do": HOSTILE, "server": HOSTILE}).text
    assert HOSTILE not in seen
    assert 'href="/ui/servers?find=%3Cscript' in seen


def test_a_page_shows_some_of_the_servers_read_and_leads_to_the_others(site, three, monkeypatch):
    monkeypatch.setattr(handler, "SHOWN", 1)
    assert "The first 1 of 3. Filter to see the others." in site.get("/servers").text
    monkeypatch.setattr(handler, "READ", 2)
    page = site.get("/servers?find=web&sort=name").text
    assert "These are the newest 2 servers." in page
    following = unescape(re.search('href="/ui([^"]+)" rel="next"', page)[1])
    page = site.get(following).text
    assert len(names_in(page)) == 1
    assert 'rel="next"' not in page
    gone = site.get(f"/servers?marker={NOBODY}&find=web")
    assert (gone.status_code, gone.headers["location"]) == (303, "/ui/servers?find=web")


def test_the_list_sends_one_request_and_one_more_for_the_names_of_leases(site, three, monkeypatch):
    asked = []
    monkeypatch.setattr("moorage.wire.client.ServiceClient.get", counted(asked))
    site.get("/servers?find=web")
    assert len(asked) == 1


# --- acting on several --------------------------------------------------------------------------------------------


def test_the_selected_servers_are_shown_with_what_happens_to_each(site, three):
    page = confirm(site, "stop", *three.values(), find="web").text
    assert (acts_in(page), title_of(page)) == ([("stop", three["web 10"])], "Stop 1 server?")
    assert "Its status is SHUTOFF; it would have to be ACTIVE." in page
    assert "Found no host, so there is nothing to stop. Delete it instead." in page
    assert '<a class="button" href="/ui/servers?find=web">Back</a>' in page
    assert acts_in(confirm(site, "start", *three.values()).text) == [("start", three["web 9"])]
    page = confirm(site, "delete", *three.values()).text
    assert {server for act, server in acts_in(page) if act == "delete"} == set(three.values())
    assert '<button class="danger">Delete 3 servers</button>' in page
    assert title_of(confirm(site, "reboot", three["web 9"]).text) == "No selected server can be rebooted"


def test_confirmed_servers_are_stopped_started_rebooted_and_deleted(site, three, plane):
    before = statuses(plane)
    confirm(site, "delete", *three.values())
    assert statuses(plane) == before, "looking changes nothing"
    page = site.post("/servers/selected", stop=three["web 10"], start=three["web 9"], find="web").text
    assert title_of(page) == "1 server being started, 1 being stopped"
    assert f'<a href="/ui/servers/{three["web 9"]}">web 9</a>: being started' in page
    assert 'href="/ui/servers?find=web">Back to the servers' in page
    plane.settle()
    assert statuses(plane) == {"web 10": "SHUTOFF", "web 9": "ACTIVE", "homeless": "ERROR"}
    assert title_of(site.post("/servers/selected", reboot=three["web 9"]).text) == "1 server being rebooted"
    plane.settle()
    page = site.post("/servers/selected", delete=list(three.values())).text
    assert title_of(page) == "3 servers being deleted"
    assert f'href="/ui/servers/{three["homeless"]}"' not in page, "it is gone in a moment"
    plane.settle()
    assert statuses(plane) == {}


def test_a_server_in_error_on_a_host_is_rebooted_hard(site, three, plane):
    plane.compute.request("POST", f"/servers/{three['web 10']}/action", json={"os-resetState": {"state": "error"}})
    page = confirm(site, "reboot", three["web 10"]).text
    assert acts_in(page) == [("reboot_hard", three["web 10"])]
    site.post("/servers/selected", reboot_hard=three["web 10"])
    plane.settle()
    assert statuses(plane)["web 10"] == "ACTIVE"


def test_a_refused_server_does_not_stop_the_others_and_says_why(site, three, plane):
    plane.compute.request("POST", f"/servers/{three['web 10']}/action", json={"lock": None})
    answer = site.post("/servers/selected", stop=[NOBODY, three["web 9"]], delete=three["homeless"])
    assert (answer.status_code, title_of(answer.text)) == (200, "1 server being deleted, 2 refused")
    refused = answer.text.partition('id="refused"')[2].partition("</section>")[0]
    assert f"{NOBODY}</span>: {NOT_READ}" in refused
    assert f'<a href="/ui/servers/{three["web 9"]}">web 9</a>: Its status is SHUTOFF' in refused
    again = site.post("/servers/selected", stop=three["web 9"])
    assert (again.status_code, title_of(again.text)) == (409, "No server was changed")


def test_a_locked_server_is_left_alone_also_by_administrators(sign_in, plane, flavors, create_as_member):
    """Compute would let an administrator delete it."""
    server = create_as_member(flavors["small"], "kept")
    plane.settle()
    path, reason = f"/servers/{server}/action", {"locked_reason": "do not <touch>"}
    plane.compute.request("POST", path, json={"lock": reason}, version="2.73")
    for who in ("demo", "admin"):
        site = sign_in(who)
        page = site.get(f"/servers/selected?do=delete&server={server}").text
        said = f"Is locked: do not &lt;touch&gt;. Unlock it first: openstack server unlock {server}"
        assert (acts_in(page), said in page) == ([], True)
        answer = site.post("/servers/selected", delete=server)
        assert (answer.status_code, said in answer.text) == (409, True)
    plane.compute.request("POST", path, json={"unlock": None})


def test_a_server_that_can_be_restored_is_not_said_to_be_deleted_again(site, three, plane):
    plane.compute.request("POST", f"/servers/{three['web 10']}/action", json={"os-resetState": {"state": "active"}})
    page = confirm(site, "delete", three["web 10"]).text
    assert "Is deleted with its disk, at once or when the time to restore it is over." in page


def test_ids_that_name_other_routes_are_not_asked_for(site, three, monkeypatch):
    asked = []
    monkeypatch.setattr("moorage.wire.client.ServiceClient.get", counted(asked))
    for strange in ("detail", f"{three['web 10']}/metadata", f"{three['web 10']}%2Fmetadata", "series"):
        answer = confirm(site, "delete", strange)
        assert (answer.status_code, NOT_READ in answer.text) == (404, True)
        assert site.post("/servers/selected", delete=strange).status_code == 409
    assert [path for path in asked if path.startswith("/v2.1/servers/")] == []
    assert site.get("/servers/detail").status_code == 404


def test_a_server_that_is_in_error_since_the_form_was_shown_is_not_reset(site, three, plane):
    plane.compute.request("POST", f"/servers/{three['web 10']}/action", json={"os-resetState": {"state": "error"}})
    answer = site.post("/servers/selected", reboot=three["web 10"])
    assert (answer.status_code, "Its status is ERROR now. Select it again." in answer.text) == (409, True)


def test_a_server_of_another_project_is_neither_shown_nor_changed(sign_in, three, plane):
    member = sign_in("demo")
    page = confirm(member, "delete", three["web 10"])
    assert (page.status_code, NOT_READ in page.text, "web 10" in page.text) == (404, True, False)
    for act in ("delete", "stop", "start", "reboot", "reboot_hard"):
        answer = member.post("/servers/selected", **{act: three["web 10"]})
        assert (answer.status_code, NOT_READ in answer.text, "web 10" in answer.text) == (409, True, False)
    plane.settle()
    assert statuses(plane)["web 10"] == "ACTIVE"


def test_a_form_with_no_server_too_many_or_an_unknown_act_says_what_to_do(site, three, plane):
    many = [f"{number:08}-0000-4000-8000-000000000000" for number in range(51)]
    for answer, said in [
        (confirm(site, "stop"), "No server is selected. Go back to the list and select the servers first."),
        (confirm(site, "delete", *many), "51 servers are selected. At most 50 can be changed at once;"),
        (confirm(site, "end", three["web 10"]), "Choose what to do with the servers"),
        (site.post("/servers/selected"), "No server is selected."),
        (site.post("/servers/selected", do="stop", server=three["web 10"]), "No server is selected."),
        (site.post("/servers/selected", delete=[*many, three["web 10"]]), "52 servers are selected."),
    ]:
        assert (answer.status_code, said in answer.text) == (400, True), said
    plane.settle()
    assert statuses(plane)["web 10"] == "ACTIVE"


def test_servers_are_changed_only_by_our_own_forms(site, three, plane):
    assert site.post("/servers/selected", delete=three["web 10"], origin="https://evil.test").status_code == 403
    assert site.post("/servers/selected", delete=three["web 10"], token="0" * 64).status_code == 403
    plane.settle()
    assert statuses(plane)["web 10"] == "ACTIVE"


@pytest.mark.parametrize("status", [None, 500])
def test_a_service_that_stops_answering_is_not_asked_for_each_server(site, three, monkeypatch, status):
    send, deletions = InProcessTransport.send, []

    def failing(self, method, path, headers, body=None):
        if method == "DELETE" and "/servers/" in path:
            deletions.append(path)
        if deletions and "/servers/" in path and "ui" not in path and path != deletions[0]:
            if status is None:
                raise Unavailable("nobody listens")
            return ClientResponse(status, {}, b"{}")
        return send(self, method, path, headers, body)

    monkeypatch.setattr(InProcessTransport, "send", failing)
    page = site.post("/servers/selected", delete=list(three.values())).text
    assert title_of(page) == "1 server being deleted, 2 refused"
    assert page.count("The compute service does not answer any more.") == 2
    assert len(deletions) == 1


@pytest.mark.parametrize("server", ["../../v2.1/flavors/small", "x?y=1", "..", "%2e%2e", "x" * 3000])
def test_an_id_in_a_form_cannot_reach_another_path(site, server):
    assert confirm(site, "delete", server).status_code == 404
    answer = site.post("/servers/selected", delete=server)
    assert (answer.status_code, NOT_READ in answer.text) == (409, True)


def test_the_page_of_a_server_leads_to_the_same_confirmation_and_back(site, three):
    for name, choices in (("web 10", ["stop", "reboot", "delete"]), ("web 9", ["start", "delete"]),
                          ("homeless", ["delete"])):  # fmt: skip
        page = site.get(f"/servers/{three[name]}").text
        links = [unescape(link) for link in re.findall(r'href="/ui(/servers/selected[^"]+)"', page)]
        assert [re.search("do=([a-z]+)", link)[1] for link in links] == choices
        page = site.get(links[-1]).text
        assert acts_in(page) == [("delete", three[name])]
        assert f'<a class="button" href="/ui/servers/{three[name]}">Back</a>' in page


# --- servers and leases -------------------------------------------------------------------------------------------


@pytest.fixture
def host(plane):
    if not plane.reservation.get("/v1/os-hosts")["hosts"]:
        plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})


def running_lease(site, plane, name, **typed):
    """(lease id, reservation id)"""
    end = f"{plane.clock.now() + timedelta(minutes=30):%Y-%m-%dT%H:%M}"
    lease = make(site, name, start_date="", end_date=end, **typed)
    plane.settle()
    return lease, plane.reservation_id(lease)


def servers_panel(page):
    return page.partition('<h2 id="servers">')[2].partition("</section>")[0]


def test_a_lease_and_its_servers_lead_to_each_other(sign_in, host, plane, create_as_member):
    site = sign_in("demo")
    lease, reservation = running_lease(site, plane, "course")
    assert "No server runs on this lease." in servers_panel(site.get(f"/leases/{lease}").text)
    server = create_as_member(reservation, "pupil 1")
    plane.settle()
    assert f'<a href="/ui/servers/{server}">pupil 1</a> <span class="badge good">ACTIVE</span>' in servers_panel(
        site.get(f"/leases/{lease}").text
    )
    page = site.get(f"/servers/{server}").text
    assert f'<dt>Lease</dt><dd><a href="/ui/leases/{lease}">course</a></dd>' in page
    assert "<dt>Size</dt><dd>1 VCPU, 64 MiB, 1 GiB disk" in page
    assert "reservation:" not in page
    row = site.get("/servers?find=of+lease+course").text
    assert f'data-label="Flavor">1 VCPU, 64 MiB, 1 GiB disk of lease <a href="/ui/leases/{lease}">course</a>' in row
    assert ">pupil 1</a>" in servers_panel(sign_in("admin").get(f"/leases/{lease}").text)


def test_a_server_on_a_leased_host_is_known_by_its_hint(sign_in, host, plane, flavors, create_as_member):
    site = sign_in("demo")
    lease, reservation = running_lease(site, plane, "whole", resource_type="physical:host", min="1", max="1")
    server = create_as_member(flavors["small"], "on metal", reservation=reservation)
    other = create_as_member(flavors["small"], "elsewhere")
    plane.settle()
    panel = servers_panel(site.get(f"/leases/{lease}").text)
    assert (server in panel, other in panel) == (True, False)
    page = site.get(f"/servers/{server}").text
    assert f'<dt>Lease</dt><dd><a href="/ui/leases/{lease}">whole</a></dd>' in page
    assert "<dt>Flavor</dt><dd>small: 1 VCPU" in page
    assert "<dt>Lease</dt>" not in site.get(f"/servers/{other}").text
    assert f'small of lease <a href="/ui/leases/{lease}">whole</a>' in site.get("/servers").text


def test_the_pages_of_leases_ask_compute_once_and_only_if_servers_may_run(sign_in, host, plane, monkeypatch):
    site = sign_in("demo")
    lease, _ = running_lease(site, plane, "course")
    coming = make(site, "coming", start_date="2026-04-05T08:00", end_date="2026-04-05T09:00")
    asked = []
    monkeypatch.setattr("moorage.wire.client.ServiceClient.get", counted(asked))
    site.get(f"/leases/{lease}")
    assert len([path for path in asked if "/servers/" in path]) == 1
    asked.clear()
    assert 'id="servers"' not in site.get(f"/leases/{coming}").text
    assert not [path for path in asked if "/servers" in path]


def test_pages_of_leases_and_servers_are_shown_if_the_other_service_is_away(
    sign_in, host, plane, monkeypatch, create_as_member
):
    site = sign_in("demo")
    lease, reservation = running_lease(site, plane, "course")
    server = create_as_member(reservation, "pupil 1")
    plane.settle()
    send = InProcessTransport.send

    def failing(away):
        def sent(self, method, path, headers, body=None):
            if path.startswith(away):
                raise Unavailable("nobody listens")
            return send(self, method, path, headers, body)

        return sent

    monkeypatch.setattr(InProcessTransport, "send", failing("/v2.1/servers"))
    page = site.get(f"/leases/{lease}")
    assert (page.status_code, 'id="servers"' in page.text) == (200, False)
    monkeypatch.setattr(InProcessTransport, "send", failing("/v1/leases"))
    page = site.get("/servers")
    assert (page.status_code, "64 MiB, 1 GiB disk of a lease" in page.text) == (200, True)
    page = site.get(f"/servers/{server}")
    assert (page.status_code, "<dt>Lease</dt>" in page.text) == (200, False)


def test_a_lease_whose_end_has_come_offers_neither_launch_nor_end_nor_change(sign_in, host, plane):
    site = sign_in("demo")
    lease, _ = running_lease(site, plane, "short")
    offers = ("/launch", "do=end", "/change")
    assert all(part in site.get(f"/leases/{lease}").text for part in offers)
    plane.clock.sleep(31 * 60)
    page = site.get(f"/leases/{lease}").text
    assert ("ACTIVE" in page, "The end of the lease has come." in page) == (True, True)
    assert not any(part in page for part in offers)
    plane.settle()


def test_a_hint_of_a_tenant_does_not_show_a_lease_of_another_project(sign_in, plane, flavors, create_as_member):
    lease, reservation = running_lease(sign_in("admin"), plane, "victim")
    create_as_member(flavors["small"], "liar", reservation=reservation)
    row = sign_in("admin").get("/servers?all=1").text.partition(">liar</a>")[2].partition("</tr>")[0]
    assert row
    assert "victim" not in row
    assert "liar" not in sign_in("admin").get(f"/leases/{lease}").text
