"""Map, servers, accelerators and explanations: visibility, number of requests, and hostile names."""

import re

import pytest

from moorage.core.errors import NotFound
from moorage.dashboard.cookies import SESSION
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from tests.system.planes import VirtualPlane, embedded_credentials
from tests.wire.dashboard.site import Site

HOSTILE = "<script>alert('x')</script>&\"'"
ESCAPED = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&#34;&#39;"

NO_UUID = "00000000-0000-4000-8000-000000000000"


class World:
    """The administrator's server with an FPGA, and one without a host; every name is hostile."""

    def __init__(self, plane: VirtualPlane) -> None:
        self.plane = plane
        self.server = plane.create_server(flavor=plane.create_fpga_flavor(), name=HOSTILE)
        plane.settle()
        more = {"resources:CUSTOM_ACCELERATOR_FPGA": "7"}
        self.homeless = plane.create_server(flavor=plane.create_flavor("huge", **more), name="homeless")
        plane.settle()
        self.root = plane.placement.get("/moorage/v1/trees")["trees"][0]["uuid"]
        devices = plane.accelerator.get("/devices")["devices"]
        self.card = next(one["uuid"] for one in devices if one["type"] == "FPGA")


@pytest.fixture(scope="module")
def world(plane):
    return World(plane)


@pytest.fixture(scope="module")
def people(plane):
    """{user: their browser}, signed in."""

    def signed_in(name):
        site = Site(plane.plane.app)
        site.sign_in(name, plane.password(name))
        return site

    return {name: signed_in(name) for name in ("admin", "demo")}


def page(people, path, who="admin", status=200):
    answer = people[who].get(path)
    assert answer.status_code == status, answer.text
    return answer.text


def test_the_map_shows_totals_and_hosts(people, world):
    seen = page(people, "/map")
    assert f'href="/ui/map/{world.root}">compute-1</a>' in seen
    assert "CUSTOM_ACCELERATOR_FPGA" in seen
    assert "1 of 4" in seen
    assert "1 host matches" in page(people, "/map?search=3B:00")
    assert "0 hosts match" in page(people, "/map?resource_class=CUSTOM_NONE")


def test_a_tree_shows_regions_functions_handles_and_their_servers(people, world):
    seen = page(people, f"/map/{world.root}")
    for word in (
        "NUMA_0",
        "0000:3b:00.0",
        ">R1<",
        "6b7e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21",
        "attached",
        f"/ui/devices/{world.card}",
    ):
        assert word in seen
    assert f'<a href="/ui/servers/{world.server}">{ESCAPED}</a>' in seen


def test_a_tree_is_shown_at_a_past_time(people, world):
    seen = page(people, f"/map/{world.root}?at=2026-03-01T09:30")
    assert "State at" in seen
    assert world.server not in seen
    assert "There was no provider" in page(people, f"/map/{world.root}?at=2020-01-01", status=404)
    assert "is not a time" in page(people, f"/map/{world.root}?at=noon", status=400)
    page(people, "/map/00000000-0000-4000-8000-000000000000", status=404)


@pytest.mark.parametrize("path", ["/map", "/map/{root}", "/devices/{card}", "/explain?query=resources%3DVCPU:1"])
def test_a_page_for_operators_names_the_missing_role(people, world, path):
    seen = page(people, path.format(root=world.root, card=world.card), "demo", 403)
    assert "requires the role admin" in seen
    assert "compute-1" not in seen


def test_a_member_sees_only_objects_of_their_own_project(people, world):
    for path in ("/servers", "/servers?all=1", "/accelerators", "/explain?flavor=fpga"):
        seen = page(people, path, "demo")
        assert "compute-1" not in seen
        assert world.server not in seen
        assert world.homeless not in seen
    page(people, f"/servers/{world.server}", "demo", 404)
    assert 'href="/ui/map"' not in page(people, "/servers", "demo")


def test_the_page_of_servers_shows_states_and_counts_reasons_of_failures(people, world):
    seen = page(people, "/servers")
    assert ESCAPED in seen
    assert HOSTILE not in seen
    assert "resources:CUSTOM_ACCELERATOR_FPGA=7 left 0." in seen
    assert world.homeless not in page(people, "/servers?find=active").partition("Why servers")[0]
    assert 'No server matches. <a href="/ui/servers">Show all.</a>' in page(people, "/servers?find=nobody")


def test_a_server_shows_its_actions_devices_and_their_history(people, world):
    seen = page(people, f"/servers/{world.server}")
    for word in ("create", "Success", "Bound", "0000:3b:00.1", "programmed", "attached", "sha512"):
        assert word in seen
    assert ESCAPED in seen
    assert HOSTILE not in seen


def test_a_server_without_a_host_shows_why_each_filter_rejected_hosts(people, world):
    seen = page(people, f"/servers/{world.homeless}")
    assert "Why no host fits" in seen
    assert "resources:CUSTOM_ACCELERATOR_FPGA=1 instead of 7 on compute-1" in seen


def test_accelerators_show_their_bitstream_and_their_server(people, world):
    seen = page(people, "/accelerators")
    assert f'href="/ui/servers/{world.server}"' in seen
    assert "6b7e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21" in seen
    assert "reports no accelerators" in page(people, "/accelerators?host=%3Cb%3Enowhere")
    assert "No handle matches" in page(people, "/accelerators?find=nothing+like+it")
    found = page(people, "/accelerators?find=attached&sort=-handle")
    assert f">{ESCAPED}</a>" in found
    assert 'aria-sort="descending"' in found
    assert found.count("<tr>") < seen.count("<tr>")
    assert "Accelerators of <b>" not in page(people, "/accelerators?find=%3Cb%3E&sort=%3Cb%3E")
    custody = page(people, f"/devices/{world.card}")
    assert custody.index("attached") < custody.index("programmed")  # newest first


def test_a_member_gets_their_accelerator_requests_in_pages(plane, people, world):
    profile = [{"name": "cards", "groups": [{"resources:CUSTOM_ACCELERATOR_GPU": "60"}]}]
    plane.accelerator.request("POST", "/device_profiles", json=profile)
    transport = InProcessTransport(plane.plane.app, "http://127.0.0.1/accelerator/v2")
    tokens = embedded_credentials(
        InProcessTransport(plane.plane.app, "http://127.0.0.1/identity"), plane.state, plane.clock, "demo"
    )
    client = ServiceClient(transport, service_type="accelerator", credentials=tokens, clock=plane.clock)
    made = client.request("POST", "/accelerator_requests", json={"device_profile_name": "cards"})["arqs"]
    uuids = [one["uuid"] for one in made]
    first = page(people, "/accelerators", "demo")
    following = re.search(r'href="/ui(/accelerators\?after=[^"]+)" rel="next"', first)[1]
    second = page(people, following, "demo")
    assert [f"<code>{uuid}" in first for uuid in uuids] == [False] * 10 + [True] * 50
    assert [f"<code>{uuid}" in second for uuid in uuids] == [True] * 10 + [False] * 50
    assert "First page" in second
    assert 'rel="next"' not in second
    page(people, "/accelerators?after=nonsense", "demo", 400)


def test_with_cyborg_which_has_no_paging_all_requests_are_shown(people, world, monkeypatch):
    get = ServiceClient.get

    def peers(self, path, **options):
        if path.startswith("/moorage/v1/accelerator_requests"):
            raise NotFound("no such route")
        return get(self, path, **options)

    monkeypatch.setattr("moorage.wire.client.ServiceClient.get", peers)
    seen = page(people, "/accelerators", "demo")
    assert "Your project" in seen
    assert 'rel="next"' not in seen


def test_a_flavor_a_query_and_extra_specs_are_explained(people, world):
    assert "No host fits" in page(people, "/explain?flavor=huge")
    seen = page(people, "/explain?query=resources%3DVCPU%3A100000")
    assert "resources:VCPU=15 instead of 100000" in seen
    changed = re.search(r'name="query" value="([^"]+)"><button>Explain with these changes', seen)[1]
    assert "It fits" in page(people, f"/explain?query={changed}")
    specs = "resources:VCPU%3D40000%0Atrait:COMPUTE_NODE%3Drequired"
    assert "required=COMPUTE_NODE" in page(people, f"/explain?query={specs}&vcpus=1&memory_mb=64&disk_gb=1")


@pytest.mark.parametrize("query", ["nonsense", "resources%3DVCPU", "resources:VCPU%3Dmany", "%3Cscript%3E%3D1"])
def test_an_invalid_query_is_reported_beside_its_field(people, world, query):
    seen = page(people, f"/explain?query={query}", status=400)
    assert 'role="alert"' in seen
    assert "<script>=" not in seen


def test_the_map_sends_as_many_requests_for_many_hosts_as_for_one(people, world, monkeypatch):
    asked = []
    monkeypatch.setattr("moorage.wire.client.ServiceClient.get", counted(asked))
    page(people, "/map")
    assert len(asked) == 3
    asked.clear()
    page(people, f"/map/{world.root}")
    assert len(asked) == 4


def counted(asked):
    get = ServiceClient.get

    def counting(self, *arguments, **options):
        asked.append(arguments[0])
        return get(self, *arguments, **options)

    return counting


@pytest.mark.parametrize(
    ("path", "words", "listed"),
    [
        ("/leases/nope", "There is no lease nope.", "/leases"),
        ("/leases/nope/change", "There is no lease nope.", "/leases"),
        ("/leases/holds/nope", "There is no hold nope.", "/leases/holds"),
        ("/servers/nope", "There is no server nope.", "/servers"),
        ("/hosts/nope", "There is no host nope.", "/hosts"),
        ("/people/users/nope", "There is no person nope.", "/people"),
        (f"/map/{NO_UUID}", f"There is no host {NO_UUID}.", "/map"),
        (f"/devices/{NO_UUID}", f"There is no device {NO_UUID}.", "/accelerators"),
    ],
)
def test_what_is_missing_is_named_in_words(people, world, path, words, listed):
    seen = page(people, path, status=404)
    assert f"<p>{words}</p>" in seen
    assert "Object with" not in seen
    assert f'<a href="/ui{listed}">All ' in seen


@pytest.mark.parametrize("path", ["/nowhere", "/leases/a/b/c", "/static"])
def test_an_unknown_address_keeps_navigation_and_theme_in_a_session_only(plane, sign_in, path):
    member, stranger = sign_in("demo"), Site(plane.plane.app)
    member.post("/theme", theme="dark")
    seen, hidden = member.get(path), stranger.get(path)
    assert (seen.status_code, hidden.status_code) == (404, 404)
    assert "There is no page at this address." in seen.text
    assert 'data-theme="dark"' in seen.text
    assert 'href="/ui/leases"' in seen.text
    assert "Sign out demo" in seen.text
    assert 'href="/ui/hosts"' not in seen.text
    for word in ("demo", "<nav", "/ui/leases", "Sign out"):
        assert word not in hidden.text
    assert hidden.headers["content-security-policy"]
    stranger.http.cookies.set(SESSION, "forged")
    assert "<nav" not in stranger.get(path).text


def test_a_refused_page_gives_advice_once_and_only_what_can_be_done(sign_in):
    member = sign_in("demo").get("/hosts").text
    assert re.search(r"<p>This page requires the role admin, but demo has [a-z, ]+ in the project demo\.</p>", member)
    assert member.count("dministrator") == 1
    assert "switch the project" not in member, "there is one"
    assert "<p>This form belongs" in sign_in("demo").post("/leases/new", token="0" * 64).text
