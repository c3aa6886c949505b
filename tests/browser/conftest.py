"""Pages in a real browser: one plane and one Chromium for each module, and what every page is held to."""

import shutil
from socket import create_server

import pytest

from moorage.wire.server import Server
from tests.browser.looking import Lab, Looker
from tests.conftest import START
from tests.system.planes import VirtualPlane


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium here: tools/browser_host installs it (as root on Debian)")
    from playwright.sync_api import sync_playwright

    # As root Chromium wants no sandbox; the pages are our own. Small machines have a small /dev/shm.
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--font-render-hinting=none"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A plane with a simulated host, under a clock that stands, behind a port of this machine."""
    with VirtualPlane(tmp_path_factory.mktemp("lab") / "state", START) as plane:
        server = Server(plane.plane.app, create_server(("127.0.0.1", 0)), threads=4)
        server.start()
        yield Lab(plane, f"http://127.0.0.1:{server.address[1]}")
        server.stop(10.0)


@pytest.fixture
def open_tab(browser, lab):
    """Opens a window of its own: `open_tab("demo")` signs in, `open_tab(None)` does not; `scripts=False` has none."""
    contexts = []

    def opened(user: str | None = "admin", *, scripts: bool = True, width: int = 1280, height: int = 900):
        context = browser.new_context(
            base_url=lab.url, java_script_enabled=scripts, viewport={"width": width, "height": height}
        )
        context.set_default_timeout(30_000)
        contexts.append(context)
        if user is not None:
            context.add_cookies(lab.cookies_of(user))
        tab = context.new_page()
        tab.troubles = []
        tab.on("pageerror", lambda error: tab.troubles.append(str(error)))
        tab.on("console", lambda said: tab.troubles.append(said.text) if said.type == "error" else None)
        return tab

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def tab(open_tab):
    """Signed in as admin."""
    return open_tab("admin")


@pytest.fixture
def look(request, tmp_path):
    """``look(tab, "calendar")``: the page is accessible, in light and in dark, and not empty; pictures of both are kept."""
    return Looker(tmp_path)
