"""Opens every page in light and in dark colours. A new page without an example here fails."""

from contextlib import suppress
from datetime import timedelta
from socket import create_server

import pytest
from playwright.sync_api import expect

from moorage.core.errors import Unauthorized
from moorage.dashboard.routes import ROUTES
from moorage.identity.client import PasswordTokens
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.identity.tokens.throttle import FREE_FAILURES
from moorage.wire.server.http_server import HttpServer
from moorage.wire.transports import SocketTransport
from tests.conftest import START
from tests.plane import InProcessPlane

pytestmark = [pytest.mark.core, pytest.mark.slow]

#: The way to an OpenID provider and back: `tests/browser/test_oidc.py`.
ELSEWHERE = ("/static", "/sign-in/provider")
PAGES = [route.path for route in ROUTES if route.method == "GET" and not route.path.startswith(ELSEWHERE)]


@pytest.fixture(scope="module")
def ids(lab):
    """Values for the variable parts of addresses: a lease that has started, a hold, a server without a host, a
    device.
    """
    plane = lab.plane
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    lease = plane.create_lease(start=START, end=START + timedelta(days=2), amount=1)
    size = {
        "resource_type": "virtual:instance",
        "vcpus": 1,
        "memory_mb": 64,
        "disk_gb": 1,
        "amount": 1,
        "resource_properties": "",
    }
    wanted = {"duration_minutes": 60, "reservations": [size]}
    hold = plane.reservation.request("POST", "/v1/holds", json=wanted, version="1.1")["hold"]["id"]
    server = plane.create_server(flavor=plane.create_flavor("small"))
    plane.settle()
    return {
        "/leases/{lease_id}": lease,
        "/leases/{lease_id}/change": lease,
        "/leases/{lease_id}/launch": lease,
        "/leases/holds/{hold_id}": hold,
        "/map/{uuid}": plane.placement.get("/moorage/v1/trees")["trees"][0]["uuid"],
        "/servers/{server_id}": server,
        "/servers/{server_id}/console": server,
        "/people/users/{user_id}": _locked_person(lab),
        "/hosts/{host}": "compute-1",
        "/devices/{uuid}": plane.accelerator.get("/devices")["devices"][0]["uuid"],
    }


def _locked_person(lab):
    """A person with roles in two projects who failed to sign in: the page has all that it can show."""
    identity = lab.client("admin", "identity")
    projects = {row["name"]: row["id"] for row in identity.get("/v3/projects")["projects"]}
    given = {"name": "alice", "password": "of-alice", "default_project_id": projects["demo"]}
    found = identity.request("POST", "/v3/users", json={"user": given})["user"]["id"]
    for project, role in (("demo", "member"), ("admin", "reader")):
        identity.request("PUT", f"/v3/projects/{projects[project]}/users/{found}/roles/{role}")
    for _ in range(FREE_FAILURES):
        with suppress(Unauthorized):
            PasswordTokens(
                SocketTransport(f"{lab.url}/identity"),
                username="alice",
                password="wrong",
                project="demo",
                clock=lab.plane.clock,
            ).current_token()
    return found


def example(path, ids):
    """The address of the page with this path. Explain and Search show an answer, and a lease is selected."""
    head, variable, tail = path.partition("{")
    address = head + ids[path] + tail.partition("}")[2] if variable else path
    return f"/ui{address}" + {
        "/explain": "?flavor=small",
        "/search": "?q=e",
        "/leases/selected": f"?do=end&lease={ids['/leases/{lease_id}']}",
        "/servers/selected": f"?do=delete&server={ids['/servers/{server_id}']}",
    }.get(path, "")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_in_light_and_in_dark(ids, open_tab, look, path):
    tab = open_tab(None if path in ("/sign-in", "/invitation") else "admin")
    answer = tab.goto(example(path, ids))
    assert answer.status == 200
    expect(tab.get_by_role("heading", level=1)).to_have_count(1)
    assert tab.locator("[id]").evaluate_all("all => new Set(all.map(one => one.id)).size === all.length")
    look(tab, "page" + path.replace("/", "-").replace("{", "").replace("}", ""))


#: The widths of inputs and buttons of one form that lie on each other, and what is wider than the window.
CROWDED = """() => {
  const box = (one) => one.getBoundingClientRect()
  const fields = [...document.querySelectorAll('main input, main select, main textarea, main button')]
    .filter((one) => one.type !== 'hidden' && box(one).width && one.checkVisibility())
  const over = (a, b) => a.left + 1 < b.right && b.left + 1 < a.right && a.top + 1 < b.bottom && b.top + 1 < a.bottom
  const name = (one) => one.id || one.name || one.textContent
  return {
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    overlapping: fields.flatMap((a, at) => fields.slice(at + 1).filter((b) => over(box(a), box(b))).map((b) => [name(a), name(b)])),
  }
}"""


#: A phone, tablets and small windows.
WIDTHS = (660, 768, 900, 1024, 390)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_not_wider_than_a_small_window(ids, open_tab, path):
    """Forms overlapped at a width of 390 pixels, and the map was 764 pixels wide; the labels of tables that nobody sees
    made pages scroll sideways at 660 to 1024 pixels.
    """
    tab = open_tab(None if path in ("/sign-in", "/invitation") else "admin", width=390, height=844)
    tab.goto(example(path, ids))
    tab.locator("main details:not(.menu)").evaluate_all("all => all.forEach((one) => { one.open = true })")
    found = {}
    for width in WIDTHS:  # the last one is that of the window, which other tests use again
        tab.set_viewport_size({"width": width, "height": 844})
        found[width] = tab.evaluate(CROWDED)
    assert found == {width: {"wide": 0, "overlapping": []} for width in WIDTHS}


@pytest.mark.parametrize("path", ["/leases", "/people"])
def test_a_phone_shows_in_the_navigation_which_page_this_is(ids, open_tab, path):
    tab = open_tab("admin", width=390, height=844)
    tab.goto(f"/ui{path}")
    own = tab.locator(".bar nav :is(summary.current, ul > li > a[aria-current])").first
    expect(own).to_be_in_viewport(ratio=1)


def test_the_key_slash_leads_to_the_search_unless_somebody_types(ids, tab):
    tab.goto("/ui/leases")
    tab.keyboard.press("/")
    expect(tab.get_by_role("searchbox")).to_be_focused()
    tab.keyboard.type("compute/-1")
    expect(tab.get_by_role("searchbox")).to_have_value("compute/-1")
    tab.get_by_role("searchbox").fill("compute")
    tab.keyboard.press("Enter")
    tab.get_by_role("link", name="compute-1").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("compute-1")


def test_the_map_links_to_the_lease_that_has_slots_on_a_host(ids, tab):
    tab.goto(f"/ui/map/{ids['/map/{uuid}']}")
    tab.get_by_role("list", name="Leases on compute-1").get_by_role("link").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("team ACTIVE")


def test_the_first_page_of_a_plane_without_services_says_what_is_missing(browser, look, tmp_path):
    with InProcessPlane(tmp_path, "identity,dashboard", authenticator=None, credentials=None) as plane:
        server = HttpServer(plane.plane.app, create_server(("127.0.0.1", 0)), threads=2)
        server.start()
        context = browser.new_context(
            base_url=f"http://127.0.0.1:{server.address[1]}", viewport={"width": 1280, "height": 900}
        )
        try:
            tab = context.new_page()
            tab.troubles = []
            tab.goto("/ui/")
            tab.get_by_label("Name").fill("demo")
            tab.get_by_label("Password", exact=True).fill(first_credentials(plane.config.state, "demo")[0])
            tab.get_by_role("button", name="Sign in").click()
            expect(tab.get_by_role("row", name="reservation")).to_contain_text("no: add it to [plane] services")
            look(tab, "overview")
        finally:
            context.close()
            server.stop(5.0)
