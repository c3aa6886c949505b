"""Provider configuration over the network: administrators plan, apply and undo changes of a host's own files."""

import re
from datetime import timedelta

import pytest

from tests.system.planes import VirtualPlane
from tests.wire.dashboard.site import Site
from tests.wire.dashboard.test_pages import page

GOLD = """meta:
  schema_version: '1.0'
providers:
  - identification:
      uuid: $COMPUTE_NODE
    inventories:
      additional:
        - CUSTOM_GOLD:
            total: {total}
"""


class Host:
    def __init__(self, plane: VirtualPlane) -> None:
        self.plane = plane
        self.directory = plane.state / "provider_config"
        self.site = Site(plane.plane.app)
        self.site.sign_in("admin", plane.password("admin"))
        self.path = ""

    def order(self, what, /, **files):
        """The page with the host's answer to an order; `files` as ``gold=TEXT``."""
        fields = {}
        for place, (name, text) in enumerate(files.items()):
            fields |= {f"name{place}": f"{name}.yaml", f"text{place}": text}
        answer = self.site.post("/provider-config", host="compute-1", do=what, **fields)
        assert answer.status_code == 303, answer.text
        self.path = answer.headers["location"].removeprefix("/ui")
        self.plane.settle()
        return self.answer()

    def answer(self):
        return self.site.get(self.path).text

    def offers(self):
        root = self.plane.placement.get("/resource_providers?name=compute-1")["resource_providers"][0]["uuid"]
        found = self.plane.placement.get(f"/resource_providers/{root}/inventories")["inventories"]
        return found.get("CUSTOM_GOLD", {}).get("total")


@pytest.fixture(scope="module")
def host(plane):
    return Host(plane)


def test_files_are_planned_applied_refused_and_undone(host):
    seen = host.order("show")
    assert "Current state" in seen
    seen = host.order("plan", gold=GOLD.format(total=7))
    assert "CUSTOM_GOLD" in seen
    assert "total 7" in seen
    assert host.offers() is None
    seen = host.order("apply", gold=GOLD.format(total=7))
    assert "What the files have changed" in seen
    assert (host.offers(), [one.name for one in host.directory.glob("*.yaml")]) == (7, ["gold.yaml"])
    seen = host.order("apply", gold="<b>no yaml: [")
    assert "Rejected" in seen
    assert "gold.yaml" in seen
    assert "<b>no" not in seen
    assert (host.offers(), (host.directory / "gold.yaml").read_text()) == (7, GOLD.format(total=7))
    seen = host.order("apply", gold=GOLD.format(total=9))
    assert host.offers() == 9
    back = re.search(r"Roll back", seen)
    assert back
    host.order("apply", gold=GOLD.format(total=7))
    assert host.offers() == 7
    host.order("apply")
    assert (host.offers(), list(host.directory.glob("*.yaml"))) == (None, [])


def test_a_plan_names_the_servers_that_use_a_removed_class(host):
    host.order("apply", gold=GOLD.format(total=7))
    flavor = host.plane.create_flavor("golden", **{"resources:CUSTOM_GOLD": "2"})
    server = host.plane.create_server(flavor=flavor, name="<i>digger</i>")
    host.plane.settle()
    seen = host.order("plan")
    assert "2 in use; no new allocations; existing ones stay until released" in seen
    assert f'2 by <a href="/ui/servers/{server}">&lt;i&gt;digger&lt;/i&gt;</a>' in seen
    host.plane.compute.request("DELETE", f"/servers/{server}")
    host.plane.settle()
    host.order("apply")


def test_an_expired_order_is_not_carried_out(host):
    answer = host.site.post(
        "/provider-config", host="compute-1", do="apply", name0="gold.yaml", text0=GOLD.format(total=3)
    )
    host.path = answer.headers["location"].removeprefix("/ui")
    assert "Waiting for the host" in host.answer()
    host.plane.clock.advance_to(host.plane.clock.now() + timedelta(minutes=6))
    host.plane.settle()
    assert "has expired" in host.answer()
    assert host.offers() is None


@pytest.mark.parametrize("name", ["../evil.yaml", "a/b.yaml", ".hidden.yaml", "notes.txt"])
def test_an_invalid_file_name_is_refused(host, name):
    answer = host.site.post("/provider-config", host="compute-1", do="apply", name0=name, text0="x")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


def test_only_administrators_may_change_provider_files(host, plane):
    demo = Site(plane.plane.app)
    demo.sign_in("demo", plane.password("demo"))
    assert "requires the role admin" in page({"demo": demo}, "/provider-config", "demo", 403)
    assert demo.post("/provider-config", host="compute-1", do="show").status_code == 403
    assert host.site.get("/provider-config?host=compute-1&order=nosuch").status_code == 404
    assert host.site.post("/provider-config", host="nowhere", do="show").status_code == 404
    assert host.site.post("/provider-config", host="compute-1", do="burn").status_code == 400
