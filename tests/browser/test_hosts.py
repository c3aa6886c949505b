"""The list of hosts and the page of a host in a browser."""

from datetime import timedelta
from socket import create_server

import pytest
from playwright.sync_api import expect

from moorage.wire.server.http_server import HttpServer
from tests.browser.looking import Lab
from tests.conftest import START
from tests.system.planes import VirtualPlane

pytestmark = pytest.mark.slow

REASON = "new fans for the whole rack; the machine comes back on the seventh of March. " * 3

#: A cell without a value.
EMPTY = "\N{EN DASH}"

#: A value of an operator: it does not end, and it would run.
HOSTILE = "<img src=x onerror=\"document.title='run'\">" + "x" * 200


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A plane with hosts of each kind: with servers, drained, down, in another zone, for leases, invited and retired."""
    with VirtualPlane(tmp_path_factory.mktemp("lab") / "state", START, agent={"simulated_hosts": 6}) as plane:
        server = HttpServer(plane.plane.app, create_server(("127.0.0.1", 0)), threads=4)
        server.start()
        lab = Lab(plane, f"http://127.0.0.1:{server.address[1]}")
        furnish(lab)
        yield lab
        server.stop(10.0)


def furnish(lab):
    plane = lab.plane
    body = {"name": "compute-1", "rack": "9", "owner": HOSTILE, "k" * 64: "v"}
    plane.reservation.request("POST", "/v1/os-hosts", json=body)
    plane.create_lease(start=START, end=START + timedelta(days=2), amount=2)
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-2"})
    zone = {"aggregate": {"name": "rack-1", "availability_zone": "east"}}
    made = plane.compute.request("POST", "/os-aggregates", json=zone)["aggregate"]["id"]
    plane.compute.request("POST", f"/os-aggregates/{made}/action", json={"add_host": {"host": "compute-5"}})
    plane.settle()
    flavor, image = plane.create_flavor("small", ram_mb=1_536), plane.create_image()
    for number in range(3):
        plane.create_server(flavor=flavor, image=image, name=f"server-{number}")
    plane.settle()
    services = {one["host"]: one["id"] for one in plane.compute.get("/os-services")["services"]}
    drained = {"status": "disabled", "disabled_reason": REASON.strip()}
    plane.compute.request("PUT", f"/os-services/{services['compute-3']}", json=drained)
    plane.compute.request("PUT", f"/os-services/{services['compute-6']}", json={"forced_down": True})
    identity = lab.client("admin", "identity")
    for name in ("rack-17.lab.example.org", "rack-18"):
        identity.request("POST", f"/moorage/v1/hosts/{name}/enrolment", json={"expires_s": 3600})
    identity.request("DELETE", "/moorage/v1/hosts/rack-18")
    plane.clock.sleep(137)


#: {host: (height of its row, lines below the first one)}, and how much wider the table is than its panel.
SHAPE = """() => {
  const rows = [...document.querySelectorAll('#host-rows tbody tr')], panel = document.getElementById('host-rows')
  return {
    heights: Object.fromEntries(rows.map((one) => [one.cells[0].textContent, [one.offsetHeight, one.querySelectorAll('.second').length]])),
    wider: panel.scrollWidth - panel.clientWidth,
  }
}"""
#: The text, the badge around it, and the padding of the cell.
ONE_LINE_PX = 40
ANOTHER_LINE_PX = 22


@pytest.mark.parametrize("width", [1024, 1280, 1440, 1920])
def test_a_host_has_one_line_and_a_second_one_for_a_remark(open_tab, width):
    tab = open_tab("admin", width=width)
    tab.goto("/ui/hosts")
    shape = tab.evaluate(SHAPE)
    assert shape["wider"] == 0
    remarks = {name for name, (_, lines) in shape["heights"].items() if lines}
    assert remarks == {"compute-3", "compute-6", "rack-17.lab.example.org"}
    for name, (height, lines) in shape["heights"].items():
        if width >= 1440 or "." not in name:
            assert height <= ONE_LINE_PX + lines * ANOTHER_LINE_PX, name


@pytest.mark.parametrize("width", [390, 1440])
def test_the_list_of_hosts_looks_well(open_tab, look, width):
    tab = open_tab("admin", width=width, height=900)
    tab.goto("/ui/hosts")
    cells = tab.get_by_role("row", name="rack-18").locator("td") if width == 1440 else tab.locator("tr:last-child td")
    expect(cells.filter(has_text=EMPTY).first).to_be_visible(visible=width == 1440)  # a card has no empty fields
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    look(tab, f"hosts-{width}", full=True)


def test_a_column_of_amounts_is_sorted_by_number_without_scripts(open_tab):
    tab = open_tab("admin", scripts=False, width=1440)
    tab.goto("/ui/hosts")
    for order in ("ascending", "descending"):
        tab.get_by_role("columnheader", name="Memory").get_by_role("link").click()
        expect(tab.get_by_role("columnheader", name="Memory")).to_have_attribute("aria-sort", order)
    used = [text for text in tab.locator("tbody td:nth-child(7)").all_inner_texts() if text != EMPTY]
    assert used == ["1.5 of 32 GiB"] * 3 + ["0 of 32 GiB"] * 3
    tab.get_by_label("Filter").fill("fans drain")
    tab.get_by_role("button", name="Show", exact=True).click()
    expect(tab.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("width", [390, 1440])
def test_a_host_shows_its_properties_and_leads_to_its_calendar(open_tab, look, width):
    tab = open_tab("admin", width=width, height=900)
    tab.goto("/ui/hosts/compute-1")
    section = tab.get_by_role("region", name="In leases")
    expect(section.get_by_text("$hypervisor_hostname")).to_be_hidden()
    section.locator("summary", has_text="Standard properties").click()
    expect(section.get_by_role("list", name="Leases that hold the host now")).to_contain_text("team project")
    expect(section.locator("dt", has_text="$rack").locator("+ dd")).to_have_text("9")
    expect(section.locator("dt", has_text="$owner").locator("+ dd")).to_have_text(HOSTILE)
    expect(tab).to_have_title("compute-1 · Moorage")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    overflowing = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert section.locator("dt, dd").evaluate_all(overflowing) == 0
    look(tab, f"host-{width}", full=True)
    section.get_by_role("link", name="Calendar of this host").click()
    expect(tab.get_by_label("Filter hosts")).to_have_value('["=", "$hypervisor_hostname", "compute-1"]')
    expect(tab.locator("main")).to_contain_text("compute-1")
    assert "compute-2" not in tab.locator("main").inner_text()
    expect(tab.get_by_role("alert")).to_have_count(0)


def test_a_host_that_is_not_registered_says_how(tab, look):
    tab.goto("/ui/hosts/compute-5")
    section = tab.get_by_role("region", name="In leases")
    expect(section.locator("pre")).to_have_text("openstack reservation host create compute-5")
    look(tab, "host-without-leases", full=True)
