"""Map, servers, accelerators and explanations in a browser."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cloud(lab):
    """A server with an FPGA, one that found no host, and an aggregate with a zone."""
    plane = lab.plane
    made = plane.compute.request(
        "POST", "/os-aggregates", json={"aggregate": {"name": "rack-1", "availability_zone": "east"}}
    )
    action = {"add_host": {"host": "compute-1"}}
    plane.compute.request("POST", f"/os-aggregates/{made['aggregate']['id']}/action", json=action)
    plane.settle()
    server = plane.create_server(flavor=plane.create_fpga_flavor(), name="aes-gateway")
    plane.settle()
    huge = plane.create_flavor("huge", **{"resources:CUSTOM_ACCELERATOR_FPGA": "7"})
    homeless = plane.create_server(flavor=huge, name="too-large")
    plane.settle()
    return {"server": server, "homeless": homeless, "plane": plane}


def test_the_map_links_from_the_overview_to_a_region_and_its_server(tab, cloud, look):
    tab.goto("/ui/map")
    expect(tab.get_by_role("link", name="rack-1")).to_be_visible()
    look(tab, "map")
    tab.get_by_label("Name or uuid").fill("3b:00")
    tab.get_by_role("button", name="Search").click()
    expect(tab.get_by_role("status")).to_have_text("1 host matches.")
    tab.get_by_role("link", name="compute-1", exact=True).click()
    expect(tab.get_by_role("heading", name="compute-1")).to_be_visible()
    region = tab.get_by_role("list", name="Consumers of R1")
    expect(region.get_by_role("link", name="aes-gateway")).to_be_visible()
    look(tab, "map-tree", full=True)
    tab.get_by_label("State at, UTC").fill("2026-03-01T09:30:00")
    tab.get_by_role("button", name="Show").click()
    expect(tab.get_by_role("status")).to_contain_text("State at 2026-03-01 09:30")
    expect(tab.get_by_role("link", name="aes-gateway")).to_have_count(0)
    look(tab, "map-past")


def test_the_map_works_on_a_phone_and_without_scripts(open_tab, cloud, look):
    tab = open_tab("admin", scripts=False, width=390, height=800)
    tab.goto("/ui/map")
    tab.get_by_role("link", name="compute-1", exact=True).click()
    expect(tab.get_by_role("heading", name="compute-1")).to_be_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_servers_link_to_the_reasons_of_failures_and_to_device_histories(tab, cloud, open_tab, look):
    tab.goto("/ui/servers")
    expect(tab.get_by_role("region", name="Reasons")).to_contain_text("resources:CUSTOM_ACCELERATOR_FPGA=7 left 0.")
    look(tab, "servers")
    tab.get_by_role("region", name="Reasons").get_by_role("link", name="too-large").click()
    expect(tab.get_by_role("heading", name="Why no host fits")).to_be_visible()
    look(tab, "server-without-host", full=True)
    phone = open_tab("admin", width=390, height=844)
    phone.goto(tab.url)
    condition = phone.get_by_role("region", name="Funnel").locator("th code").first
    assert condition.evaluate("one => one.getClientRects().length") == 1, "the condition is not broken"
    look(phone, "server-without-host-phone", full=True)
    tab.goto("/ui/servers")
    tab.get_by_role("link", name="aes-gateway").click()
    expect(tab.get_by_role("region", name="Device history", exact=True)).to_contain_text("attached")
    look(tab, "server", full=True)


def test_servers_are_deleted_and_stopped_after_a_confirmation(tab, cloud, open_tab, look):
    phone = open_tab("admin", width=390, height=844)
    phone.goto("/ui/servers?select=all")
    look(phone, "servers-phone", full=True)
    phone = open_tab("admin", scripts=False, width=390, height=844)
    phone.goto("/ui/servers?find=error")
    phone.get_by_role("link", name="Select all").click()
    expect(phone.get_by_label("Select too-large")).to_be_checked()
    phone.get_by_role("button", name="Stop").click()
    expect(phone.get_by_role("heading", level=1)).to_have_text("No selected server can be stopped")
    expect(phone.get_by_role("row", name="too-large")).to_contain_text("Found no host")
    phone.get_by_role("link", name="Back").click()
    expect(phone.get_by_label("Filter")).to_have_value("error")
    tab.goto("/ui/servers?sort=name")
    assert tab.get_by_role("region", name="Servers").get_by_role("rowheader").all_inner_texts() == [
        "aes-gateway",
        "too-large",
    ]
    tab.get_by_role("link", name="aes-gateway").click()
    tab.get_by_role("link", name="Stop").click()
    look(tab, "servers-selected")
    tab.get_by_role("link", name="Back").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("aes-gateway")
    spare = spare_server(cloud)
    tab.goto("/ui/servers")
    tab.get_by_label("Select spare").check()
    tab.get_by_role("button", name="Delete").click()
    tab.get_by_role("button", name="Delete 1 server").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("1 server being deleted")
    look(tab, "servers-deleted")
    cloud["plane"].settle()
    tab.get_by_role("link", name="Back to the servers").click()
    expect(tab.get_by_role("row", name="spare")).to_have_count(0)
    assert cloud["plane"].server(spare) is None


def spare_server(cloud):
    """A further server, without a host."""
    server = cloud["plane"].create_server(flavor="huge", name="spare")
    cloud["plane"].settle()
    return server


def test_accelerators_link_to_the_history_of_a_device(tab, cloud, look):
    tab.goto("/ui/accelerators")
    row = tab.get_by_role("region", name="Table of attach handles").get_by_role("row", name="aes-gateway")
    expect(row).to_contain_text("attached")
    look(tab, "accelerators")
    row.get_by_role("link", name="history of 0000:3b:00.0").click()
    expect(tab.get_by_role("region", name="Device history", exact=True)).to_contain_text("programmed")
    look(tab, "device-history")


def test_a_member_can_page_through_their_requests(open_tab, cloud, lab, look):
    profile = [{"name": "cards", "groups": [{"resources:CUSTOM_ACCELERATOR_GPU": "51"}]}]
    lab.plane.accelerator.request("POST", "/device_profiles", json=profile)
    body = {"device_profile_name": "cards"}
    lab.client("demo", "accelerator").request("POST", "/v2/accelerator_requests", json=body)
    tab = open_tab("demo")
    tab.goto("/ui/accelerators")
    expect(tab.get_by_role("row")).to_have_count(51)  # 50 and the header
    look(tab, "accelerators-member", full=True)
    tab.get_by_role("link", name="Next page").click()
    expect(tab.get_by_role("row")).to_have_count(2)
    tab.get_by_role("link", name="First page").click()
    expect(tab.get_by_role("row")).to_have_count(51)


def test_an_explanation_links_to_a_change_that_makes_the_request_fit(tab, cloud, look):
    tab.goto("/ui/explain")
    tab.get_by_label("A query on one line").fill("resources=VCPU:100000,CUSTOM_ACCELERATOR_FPGA:1")
    tab.get_by_role("button", name="Explain the query").click()
    expect(tab.get_by_role("heading", name="No host fits")).to_be_visible()
    look(tab, "explain", full=True)
    tab.get_by_role("button", name="Explain with these changes").click()
    expect(tab.get_by_role("heading", name="It fits")).to_be_visible()
    tab.get_by_label("Flavor", exact=True).select_option("huge")
    tab.get_by_role("button", name="Explain the flavor").click()
    expect(tab.get_by_role("region", name="Funnel")).to_contain_text("resources:CUSTOM_ACCELERATOR_FPGA=7")
    look(tab, "explain-flavor", full=True)


def test_an_audit_shows_its_findings_on_any_screen(lab, open_tab, cloud, look):
    root = lab.plane.placement.get("/moorage/v1/trees")["trees"][0]["uuid"]
    stray = {
        "allocations": {root: {"resources": {"VCPU": 1}}},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    lab.plane.placement.request("PUT", "/allocations/0f6e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21", json=stray)
    lab.plane.clock.sleep(3600)
    for width in (390, 1280):
        tab = open_tab("admin", width=width)
        tab.goto("/ui/audit")
        tab.get_by_role("button", name="Run an audit").click()
        expect(tab.get_by_role("region", name="Table of findings")).to_contain_text("unknown consumer")
        look(tab, f"audit-{width}", full=True)
    lab.plane.placement.request("DELETE", "/allocations/0f6e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21")


def test_a_member_is_told_which_role_is_missing(open_tab, cloud, look):
    tab = open_tab("demo")
    answer = tab.goto("/ui/map")
    assert answer.status == 403
    expect(tab.get_by_text("requires the role admin")).to_be_visible()
    tab.troubles.clear()  # the browser reports a 403 as an error
    look(tab, "refused")


GOLD = """meta:
  schema_version: '1.0'
providers:
  - identification:
      uuid: $COMPUTE_NODE
    inventories:
      additional:
        - CUSTOM_GOLD:
            total: 7
"""


def test_provider_files_are_planned_refused_and_applied_from_a_page(tab, cloud, lab, look):
    tab.goto("/ui/provider-config")
    tab.get_by_role("link", name="compute-1").click()
    tab.get_by_role("button", name="Read files from the host").click()
    expect(tab.get_by_role("status")).to_contain_text("Waiting for the host")
    lab.plane.settle()
    tab.get_by_role("link", name="Show it").click()  # the page has reloaded by itself
    tab.get_by_label("Another file").fill("gold.yaml")
    tab.get_by_label("Contents", exact=True).fill(GOLD)
    tab.get_by_role("button", name="Plan").click()
    expect(tab.get_by_role("status")).to_contain_text("Waiting for the host")
    lab.plane.settle()
    tab.reload()
    expect(tab.get_by_role("region", name="Changes")).to_contain_text("CUSTOM_GOLD")
    expect(tab.get_by_role("link", name="Show it")).to_be_hidden()
    # The picture is part of the documents, which must not show a path of this machine.
    hint = tab.get_by_text(f"from {lab.plane.state}")
    hint.evaluate(
        "(hint, is) => { hint.textContent = hint.textContent.replace(is, '/var/lib/moorage'); }", str(lab.plane.state)
    )
    look(tab, "provider-config", full=True)
    tab.get_by_role("button", name="Apply").click()
    expect(tab.get_by_role("status")).to_contain_text("Waiting for the host")
    lab.plane.settle()
    tab.reload()
    expect(tab.get_by_role("heading", name="What the files have changed")).to_be_visible()
    tab.get_by_label("Contents of gold.yaml").fill(GOLD.replace("total: 7", "total: none"))
    tab.get_by_role("button", name="Apply", exact=True).click()
    expect(tab.get_by_role("status")).to_contain_text("Waiting for the host")
    lab.plane.settle()
    tab.reload()
    expect(tab.get_by_role("alert")).to_contain_text("gold.yaml")
    look(tab, "provider-config-refused", full=True)
