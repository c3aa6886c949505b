"""The pages of hosts: the list, enrolling a machine, draining and retiring, and who may use them."""

import re
import zlib
from datetime import timedelta
from html import unescape

import pytest

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import Unauthorized
from moorage.dashboard.routes import ROUTES
from moorage.identity.host_credential import HostTokens, enrol_host
from moorage.placement.client.placement_client import PlacementClient
from moorage.wire.client import ServiceClient
from tests.wire.dashboard.site import Site
from tests.wire.dashboard.test_pages import ESCAPED, HOSTILE

HOSTS = [route for route in ROUTES if route.path.startswith("/hosts")]


@pytest.fixture
def admin(sign_in):
    return sign_in("admin")


def row_of(page, host):
    """The text of the host's row in the table, without marks."""
    row = next(part for part in page.split("<tr>") if f">{host}</a></th>" in part or f">{host}</a><br>" in part)
    return " ".join(re.sub(r"<[^>]+>", " ", row.partition("</tr>")[0]).split())


def service_of(plane, host):
    return next((one for one in plane.compute.get("/os-services")["services"] if one["host"] == host), None)


def command_in(page):
    return re.search(r'aria-label="Command">([^<]+)</pre>', page)[1]


@pytest.fixture
def machine(plane, admin, tmp_path, request):
    """(name, tokens) of a machine that used the command of the page, and whose agent has reported once."""
    name = f"rack-{zlib.crc32(request.node.name.encode())}"
    token = command_in(admin.post("/hosts", name=name).text).split("--token ")[1].split()[0].partition(":")[2]
    credential = tmp_path / "credential.json"
    enrol_host(credential, name, token, plane.transport("/identity"), plane.clock)
    tokens = HostTokens(credential, name, plane.transport("/identity"), plane.clock)
    report(plane, name, tokens)
    return name, tokens


def report(plane, name, tokens):
    """Makes the host's root provider, and registers the host, as its agent does when it starts."""
    placement = PlacementClient(
        ServiceClient(plane.transport("/placement"), service_type="placement", version="1.39", credentials=tokens)
    )
    root = placement.provider_by_name(name) or placement.create_provider(name)
    compute = ServiceClient(plane.transport("/compute"), service_type="compute", credentials=tokens)
    ComputeClient(compute).register_host(
        name, provider_uuid=root.uuid, hypervisor_type="QEMU", hypervisor_version=9000000, host_ip="192.0.2.7",
        vcpus=8, memory_mb=16384, local_gb=200, devices=0,
    )  # fmt: skip


def test_the_list_shows_state_services_use_heartbeat_and_enrolment(plane, admin):
    server = plane.create_server(flavor=plane.create_flavor("small"))
    plane.settle()
    plane.clock.sleep(5)
    row = row_of(admin.get("/hosts").text, "compute-1")
    assert row == "compute-1 up nova servers, accelerators 1 1 of 16 64 MiB of 32 GiB 1 of 500 GiB 5 s ago own"
    page = admin.get("/hosts/compute-1").text
    assert f'href="/ui/servers/{server}"' in page
    assert "Its agent runs in the process of the services" in page
    assert "No host matches" in admin.get("/hosts?find=nowhere").text
    assert 'aria-sort="descending"' in admin.get("/hosts?find=compute-1&sort=-heartbeat").text
    plane.compute.request("DELETE", f"/servers/{server}")
    plane.settle()


def test_amounts_are_sorted_by_number(plane, admin, machine):
    """A server has 64 MiB, and the other hosts nothing; hosts that compute does not know come last."""
    admin.post("/hosts", name="rack-0")
    server = plane.create_server(flavor=plane.create_flavor("sorted"))
    plane.settle()
    for key in ("servers", "processors", "memory", "disk"):
        ascending, descending = (hosts_in(admin.get(f"/hosts?sort={sign}{key}").text) for sign in ("", "-"))
        known = [host for host in ascending if service_of(plane, host)]
        assert known[-1] == "compute-1"
        assert ascending[: len(known)] == known, "unknown amounts are last"
        assert next(host for host in descending if host in known) == "compute-1"
    plane.compute.request("DELETE", f"/servers/{server}")
    plane.settle()


def hosts_in(page):
    """The names of the table, in its order."""
    return re.findall(r'<th scope="row"><a href="[^"]+">([^<]+)</a>', page)


def test_a_page_without_leases_says_how_to_register_the_host(admin, machine):
    name, _ = machine
    section = in_leases(admin.get(f"/hosts/{name}").text)
    assert f">openstack reservation host create {name}</pre>" in section
    assert "migrate or delete its servers" not in section
    admin.post("/hosts", name="rack-0")
    assert "In leases" not in admin.get("/hosts/rack-0").text


def in_leases(page):
    """The section of the page."""
    return page.partition(">In leases</h2>")[2].partition("</section>")[0]


def test_a_host_shows_its_properties_as_filters_name_them_with_its_own_first(plane, admin, machine):
    name, _ = machine
    body = {"name": name, "rack": "9", HOSTILE: HOSTILE, "x" * 64: "y" * 255}
    made = plane.reservation.request("POST", "/v1/os-hosts", json=body)["host"]
    page = admin.get(f"/hosts/{name}").text
    section = in_leases(page)
    found = re.findall(r"<dt><code>([^<]+)</code></dt><dd>([^<]+)</dd>", section)
    assert found[:3] == [(f"${ESCAPED}", ESCAPED), ("$rack", "9"), (f"${'x' * 64}", "y" * 255)]
    assert dict(found[3:]) == {
        "$hypervisor_hostname": name, "$availability_zone": "\N{EN DASH}", "$vcpus": "8", "$memory_mb": "16384",
        "$local_gb": "200", "$hypervisor_type": "QEMU", "$hypervisor_version": "9000000", "$cpu_info": made["cpu_info"],
        "$service_name": name, "$id": made["id"],
    }  # fmt: skip
    assert "Can be reserved</dt><dd>yes" in section
    assert HOSTILE not in page
    calendar = unescape(re.search(r'href="/ui(/calendar\?[^"]+)"', section)[1])
    shown = admin.get(calendar).text
    assert (name in shown, "compute-1" in shown) == (True, False)
    plane.reservation.request("DELETE", f"/v1/os-hosts/{made['id']}")


def test_a_host_names_the_leases_that_have_it_now_and_next(plane, admin):
    name = "compute-1"
    host = plane.reservation.request("POST", "/v1/os-hosts", json={"name": name})["host"]["id"]
    assert "No lease has this host." in in_leases(admin.get(f"/hosts/{name}").text)
    now = plane.clock.now().replace(second=0, microsecond=0)
    only = f'["=", "$hypervisor_hostname", "{name}"]'
    whole = {
        "resource_type": "physical:host",
        "min": 1,
        "max": 1,
        "hypervisor_properties": only,
        "resource_properties": "",
    }
    leases = [
        plane.reservation.request("POST", "/v1/leases", json={
            "name": words, "start_date": start, "end_date": f"{now + timedelta(days=days):%Y-%m-%d %H:%M}",
            "reservations": [whole],
        })["lease"]["id"]
        for words, start, days in (("<b>now</b>", "now", 1), ("later", f"{now + timedelta(days=2):%Y-%m-%d %H:%M}", 3))
    ]  # fmt: skip
    section = in_leases(admin.get(f"/hosts/{name}").text)
    held, _, coming = section.partition("<h3>Next</h3>")
    assert f'<a href="/ui/leases/{leases[0]}">&lt;b&gt;now&lt;/b&gt;</a>' in held
    assert f'<a href="/ui/leases/{leases[1]}">later</a>' in coming
    words = " ".join(re.sub(r"<[^>]+>", " ", held).split())
    assert f"project admin , 1 slot, until {now + timedelta(days=1):%Y-%m-%d %H:%M}" in words
    assert f'href="/ui/leases/maintenance?hosts={name}"' in section
    for lease in leases:
        plane.reservation.request("DELETE", f"/v1/leases/{lease}")
    plane.settle()
    plane.reservation.request("DELETE", f"/v1/os-hosts/{host}")


def test_a_host_that_cannot_be_reserved_says_why(plane, admin, machine):
    name, tokens = machine
    made = plane.reservation.request("POST", "/v1/os-hosts", json={"name": name})["host"]
    admin.post(f"/hosts/{name}/state", reason="new fans")
    assert reservable(admin, name) == "yes, until the reservation service notices that it is drained"
    plane.run_for(25 * 3600.0)  # the reservation service looks at the hosts once a day
    assert plane.reservation.get(f"/v1/os-hosts/{made['id']}")["host"]["reservable"] is False
    assert reservable(admin, name) == "no, because it is down"
    report(plane, name, tokens)
    assert reservable(admin, name) == "no, because it is drained"
    admin.post(f"/hosts/{name}/state", undrain="1")
    assert reservable(admin, name) == "no, until the reservation service notices that it is up again"
    plane.reservation.request("DELETE", f"/v1/os-hosts/{made['id']}")


def reservable(admin, name):
    return re.search(r"Can be reserved</dt><dd>([^<]+)<", admin.get(f"/hosts/{name}").text)[1]


def test_the_map_shows_a_drained_host_as_drained(plane, admin, machine):
    name, _ = machine
    admin.post(f"/hosts/{name}/state", reason="fans")
    plane.settle()
    assert re.search(rf'class="tile state-disabled"[^>]*>{name}<span class="unseen">: drained<', admin.get("/map").text)


def test_enrolling_shows_the_command_once(plane, admin):
    answer = admin.post("/hosts", name="rack-1")
    command = command_in(answer.text)
    assert re.fullmatch(r"moorage agent join http://127\.0\.0\.1:8778 --token rack-1:[\w-]{43} --plain-http", command)
    assert answer.headers["cache-control"] == "no-store"
    for path in ("/hosts", "/hosts/rack-1"):
        page = admin.get(path).text
        assert "invited" in page
        assert command.split(":")[-1].split()[0] not in page
    again = command_in(admin.post("/hosts", name="rack-1").text)
    assert again != command


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [("", 400, "Name: enter"), ("-x", 400, "cannot be the name of a host"), ("a/../b", 400, "cannot be the name"),
     ("compute-events", 400, "is the name of a job queue"), ("compute-1_NUMA_0", 409, "resource providers of the same name")],
)  # fmt: skip
def test_a_name_that_no_host_can_have_is_refused_at_its_field(admin, name, status, words):
    answer = admin.post("/hosts", name=name)
    assert answer.status_code == status
    assert words in answer.text
    assert 'id="name-problem"' in answer.text
    assert 'aria-label="Command"' not in answer.text


def test_a_host_is_drained_with_a_reason_and_undrained(plane, admin, machine):
    name, _ = machine
    for reason in ("", " ", "x" * 256):
        answer = admin.post(f"/hosts/{name}/state", reason=reason)
        assert (answer.status_code, 'id="reason-problem"' in answer.text) == (400, True)
    answer = admin.post(f"/hosts/{name}/state", reason="<b>new fans</b>")
    assert answer.status_code == 303
    assert 'role="status">Drained: no new servers come here.' in admin.http.get(answer.headers["location"]).text
    service = service_of(plane, name)
    assert (service["status"], service["disabled_reason"]) == ("disabled", "<b>new fans</b>")
    assert "up drained &lt;b&gt;new fans&lt;/b&gt;" in row_of(admin.get("/hosts?find=fans").text, name)
    assert "Reason: &lt;b&gt;new fans" in admin.get(f"/hosts/{name}").text
    assert admin.post(f"/hosts/{name}/state", undrain="1").status_code == 303
    assert service_of(plane, name)["status"] == "enabled"
    assert "drained" not in row_of(admin.get("/hosts").text, name)


def test_a_retired_host_is_gone_and_its_agent_may_not_call_any_more(plane, admin, machine):
    name, tokens = machine
    early = admin.post(f"/hosts/{name}/retire")
    assert (early.status_code, "Drain it first" in early.text) == (409, True)
    admin.post(f"/hosts/{name}/state", reason="old")
    assert f"Retire {name}" in admin.get(f"/hosts/{name}").text
    answer = admin.post(f"/hosts/{name}/retire")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/hosts?retired={name}")
    assert f"{name} is retired." in admin.http.get(answer.headers["location"]).text
    assert service_of(plane, name) is None
    assert row_of(admin.get("/hosts").text, name).startswith(f"{name} retired")
    with pytest.raises(Unauthorized):
        report(plane, name, tokens)
    plane.settle()
    assert PlacementClient(plane.placement).provider_by_name(name) is None
    again = admin.post(f"/hosts/{name}/retire")
    assert (again.status_code, "It is retired." in again.text) == (409, True)


def test_a_host_that_reports_while_it_is_retired_is_removed_all_the_same(plane, admin, machine, monkeypatch):
    name, tokens = machine
    admin.post(f"/hosts/{name}/state", reason="old")
    request, deleted = ServiceClient.request, []

    def report_after_the_deletion(client, method, path, **options):
        answer = request(client, method, path, **options)
        if method == "DELETE" and "/os-services/" in path and not deleted:
            deleted.append(path)
            report(plane, name, tokens)
        return answer

    monkeypatch.setattr(ServiceClient, "request", report_after_the_deletion)
    assert admin.post(f"/hosts/{name}/retire").status_code == 303
    assert deleted
    assert service_of(plane, name) is None


def test_an_invitation_is_withdrawn_by_retiring_the_host(plane, admin, tmp_path):
    token = command_in(admin.post("/hosts", name="rack-2").text).split(":")[-1].split()[0]
    assert row_of(admin.get("/hosts").text, "rack-2").startswith("rack-2 not joined")
    assert admin.post("/hosts/rack-2/state", reason="x").status_code == 409
    assert admin.post("/hosts/rack-2/retire").status_code == 303
    with pytest.raises(Unauthorized):
        enrol_host(tmp_path / "credential.json", "rack-2", token, plane.transport("/identity"), plane.clock)


def test_a_host_with_servers_leases_or_in_the_services_process_is_not_retired(plane, admin, machine):
    name, _ = machine
    for spoofed in ("compute-1", "Your session was attacked. Call 123"):
        page = admin.http.get("/ui/hosts", params={"retired": spoofed}).text
        assert "is retired" not in page, "an address alone says nothing"
    own = admin.post("/hosts/compute-1/retire")
    assert (own.status_code, "Its agent runs in the process of the services" in own.text) == (409, True)
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": name})
    admin.post(f"/hosts/{name}/state", reason="old")
    leased = admin.post(f"/hosts/{name}/retire")
    assert (leased.status_code, "It is registered for leases" in leased.text) == (409, True)
    assert service_of(plane, name) is not None
    assert "servers, leases" in row_of(admin.get("/hosts").text, name)


def test_a_host_whose_move_is_not_over_keeps_its_credential(plane, admin, machine, monkeypatch):
    """Compute refuses, and it is asked first."""
    name, tokens = machine
    admin.post(f"/hosts/{name}/state", reason="old")
    request = ServiceClient.request

    def refuse(client, method, path, **options):
        if method == "DELETE" and "/os-services/" in path:
            return request(client, method, "/v2.1/os-services/0e2a6bcd-1f7c-4b0f-9d7e-6a1d6c5b4a30", **options)
        return request(client, method, path, **options)

    monkeypatch.setattr(ServiceClient, "request", refuse)
    assert admin.post(f"/hosts/{name}/retire").status_code == 404
    monkeypatch.undo()
    report(plane, name, tokens)
    assert "enrolled" in row_of(admin.get("/hosts").text, name)


@pytest.mark.parametrize("route", HOSTS, ids=lambda route: f"{route.method} {route.path}")
def test_a_member_and_a_stranger_get_no_page_and_change_nothing(plane, sign_in, machine, route):
    name, tokens = machine
    path = route.path.replace("{host}", name)
    member, stranger = sign_in("demo"), Site(plane.plane.app)
    for site, status in ((member, 403), (stranger, 303)):
        answer = site.get(path) if route.method == "GET" else site.post(path, name="mine", reason="mine")
        assert answer.status_code == status
        assert 'aria-label="Command"' not in answer.text
    assert answer.headers["location"].startswith("/ui/sign-in?")
    assert "requires the role admin" in member.get("/hosts").text
    assert 'href="/ui/hosts"' not in member.get("/servers").text
    assert service_of(plane, name)["status"] == "enabled"
    report(plane, name, tokens)


def test_hostile_names_are_escaped(admin):
    answer = admin.post("/hosts", name=HOSTILE)
    assert (answer.status_code, ESCAPED in answer.text) == (400, True)
    for path in ("/hosts?retired=%3Cscript%3E", "/hosts?find=%3Cscript%3E&sort=%3Cscript%3E"):
        assert "<script>" not in admin.get(path).text.partition("<body>")[2]
    assert admin.get("/hosts/%3Cscript%3E").status_code == 404


def test_where_hosts_are_not_enrolled_they_can_still_be_drained(open_site):
    site = open_site("placement,image,compute,dashboard", identity={"mode": "none"})
    page = site.get("/hosts").text
    assert "Enrol a host" not in page
    assert site.post("/hosts", name="rack-1").status_code == 404


def test_with_tls_the_command_has_the_public_address_and_no_exception(open_site):
    site = open_site("identity,placement,dashboard", server={"public_url": "https://cloud.example.org"})
    site.http.base_url = site.url = "https://cloud.example.org"
    assert site.sign_in("admin", site.password("admin")).status_code == 303
    page = site.post("/hosts", name="rack-1").text
    assert re.fullmatch(r"moorage agent join https://cloud\.example\.org --token rack-1:[\w-]+", command_in(page))
    assert "has no TLS" not in page
