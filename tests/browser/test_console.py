"""The page of a serial console, with a real websocket to a simulated host."""

from socket import create_server

import pytest
from playwright.sync_api import expect

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.options.plane import PlaneOptions
from moorage.wire.server.http_server import HttpServer
from tests.browser.looking import Lab
from tests.plane import InProcessPlane
from tests.system.planes import PlaneClients, embedded_credentials, until

pytestmark = [pytest.mark.core, pytest.mark.slow]


class RealPlane(InProcessPlane, PlaneClients):
    """All services, whose tasks run in threads with the machine's time."""

    def __init__(self, directory, url):
        InProcessPlane.__init__(
            self, directory, PlaneOptions().services, clock=SystemClock(), ids=RandomIds(), url=url, authenticator=None,
            credentials=None, has_sockets=True, server={"public_url": url},
        )  # fmt: skip
        tokens = embedded_credentials(self.transport("/identity"), self.config.state, self.clock)
        PlaneClients.__init__(self, self.transport, tokens, self.clock)
        self.plane.start_tasks()

    @property
    def state(self):
        return self.config.state


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    listener = create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with RealPlane(tmp_path_factory.mktemp("consoles") / "state", url) as plane:
        server = HttpServer(plane.plane.app, listener, threads=4)
        server.start()
        yield Lab(plane, url)
        server.stop(10.0)


@pytest.fixture(scope="module")
def server(lab):
    server = lab.plane.create_server(flavor=lab.plane.create_flavor("small"), name="web")
    until(lambda: lab.plane.server(server)["status"] == "ACTIVE")
    return server


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_a_person_types_into_the_terminal_and_reads_the_answer(open_tab, server, look, width, height):
    tab = open_tab("admin", width=width, height=height)
    tab.goto(f"/ui/servers/{server}")
    tab.get_by_role("link", name="Console").click()
    tab.get_by_role("button", name="Open the console").click()
    expect(tab.get_by_role("status")).to_have_text("Connected")
    rows = tab.locator(".xterm-rows")
    expect(rows).to_contain_text("web login:")
    tab.keyboard.type("hello/there")  # the slash is typed, and does not lead to the search
    tab.keyboard.press("Enter")
    expect(rows).to_contain_text("you typed 'hello/there'")
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    look(tab, f"console-{width}")
    tab.keyboard.press("Control+Escape")
    expect(tab.get_by_role("button", name="Open again")).to_be_focused()


def test_the_page_says_why_a_console_ended(open_tab, lab, server):
    tab = open_tab("admin")
    tab.goto(f"/ui/servers/{server}/console")
    tab.get_by_role("button", name="Open the console").click()
    expect(tab.get_by_role("status")).to_have_text("Connected")
    lab.plane.compute.request("POST", f"/servers/{server}/action", json={"os-stop": None})
    expect(tab.get_by_role("status")).to_contain_text("Ended: the console ended: the server was stopped")
    until(lambda: lab.plane.server(server)["status"] == "SHUTOFF")
    tab.get_by_role("button", name="Open again").click()
    expect(tab.get_by_role("main")).to_contain_text("start it first")
    lab.plane.compute.request("POST", f"/servers/{server}/action", json={"os-start": None})
    until(lambda: lab.plane.server(server)["status"] == "ACTIVE")
