"""The dashboard's action on a quarantined handle, with a reason that the device history keeps."""

from urllib.parse import quote

import pytest

from moorage.accelerator.drivers.simulated import FaultControl, FaultKind, SimulatedFault
from tests.wire.dashboard.test_pages import page


@pytest.fixture
def handle(plane):
    """A region's handle that could not be cleaned after its server was deleted; the fault is over."""
    server = plane.create_server(flavor=plane.create_fpga_flavor())
    plane.settle()
    agent = plane.plane.built["accelerators"]
    simulated = agent._registry._drivers["simulated"]
    simulated.order(FaultControl({}, (SimulatedFault("clean", FaultKind.FAILS, "*", 0),)))
    plane.compute.request("DELETE", f"/servers/{server}")
    plane.settle()
    simulated.order(FaultControl({}, ()))
    return next(handle for handle, record in agent.attach_state.handles.items() if record.state == "quarantined")


def test_an_administrator_releases_a_handle_with_a_reason(plane, sign_in, handle):
    people = {"admin": sign_in("admin"), "demo": sign_in("demo")}
    path = f"/accelerators/release?host=compute-1&handle={quote(handle, safe='')}"
    seen = page(people, "/accelerators?host=compute-1")
    assert path.replace("&", "&amp;") in seen
    listed = page(people, "/quarantine")
    assert path.replace("&", "&amp;") in listed
    assert handle in listed
    assert "requires the role admin" in page(people, "/quarantine", who="demo", status=403)
    assert 'name="reason"' in page(people, path)
    assert "requires the role admin" in page(people, path, who="demo", status=403)
    fields = {"host": "compute-1", "handle": handle}
    refused = people["admin"].post("/accelerators/release", **fields, reason=" ")
    assert (refused.status_code, 'role="alert"' in refused.text) == (400, True)
    done = people["admin"].post("/accelerators/release", **fields, reason="<b>reseated</b>")
    assert (done.status_code, done.headers["location"]) == (303, "/ui/accelerators?host=compute-1")
    plane.settle()
    assert '">quarantined</span>' not in page(people, "/accelerators?host=compute-1")
    assert "No handle is quarantined." in page(people, "/quarantine")
    devices = plane.accelerator.get("/devices")["devices"]
    (device,) = [one["uuid"] for one in devices if handle[:-1] in one["std_board_info"]]
    shown = page(people, f"/devices/{device}")
    assert "released from quarantine" in shown
    assert "&lt;b&gt;reseated&lt;/b&gt;" in shown
