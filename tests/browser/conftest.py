"""Fixtures for pages in a real browser: one Chromium per session, one plane per module."""

import shutil
from collections import defaultdict
from socket import create_server

import pytest

from moorage.wire.server.http_server import HttpServer
from tests.browser.looking import Lab, Looker
from tests.conftest import START
from tests.system.planes import VirtualPlane

#: The first program that exists is used. The headless shell renders the same pages with a quarter of Chromium's CPU
#: time.
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser")


@pytest.fixture(scope="session")
def browser():
    program = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if program is None:
        pytest.skip("no Chromium here: tools/browser_host installs it (as root on Debian)")
    from playwright.sync_api import sync_playwright

    # As root, Chromium cannot use its sandbox, and only our own pages are opened. Small machines have a small /dev/shm.
    options = ["--no-sandbox", "--disable-dev-shm-usage", "--font-render-hinting=none"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A plane with a simulated host, under a virtual clock, served on a port of this machine."""
    with VirtualPlane(tmp_path_factory.mktemp("lab") / "state", START) as plane:
        server = HttpServer(plane.plane.app, create_server(("127.0.0.1", 0)), threads=4)
        server.start()
        yield Lab(plane, f"http://127.0.0.1:{server.address[1]}")
        server.stop(10.0)


@pytest.fixture(scope="module")
def idle_tabs(lab):
    """Unused windows by (scripts, width, height): opening a window takes as long as rendering a page in it."""
    idle = defaultdict(list)
    yield idle
    for tabs in idle.values():
        for tab in tabs:
            tab.context.close()


@pytest.fixture
def open_tab(browser, lab, idle_tabs):
    """Opens a new window: `open_tab("demo")` signs in, `open_tab(None)` does not; `scripts=False` disables scripts."""
    in_use = []

    def opened(user: str | None = "admin", *, scripts: bool = True, width: int = 1280, height: int = 900):
        kind = (scripts, width, height)
        tab = idle_tabs[kind].pop() if idle_tabs[kind] else new_tab(browser, lab.url, *kind)
        in_use.append((kind, tab))
        if user is not None:
            tab.context.add_cookies(lab.cookies_of(user))
        return tab

    yield opened
    for kind, tab in in_use:
        tab.goto("/ui/static/anchor.svg")  # an idle page of the same site keeps the renderer process alive
        tab.emulate_media(color_scheme="null", reduced_motion="null")
        tab.context.clear_cookies()  # our pages store nothing else in a browser
        tab.troubles.clear()
        idle_tabs[kind].append(tab)


def new_tab(browser, url, scripts, width, height, **options):
    """A window whose attribute `troubles` collects the errors of scripts and of the console."""
    context = browser.new_context(
        base_url=url, java_script_enabled=scripts, viewport={"width": width, "height": height}, **options
    )
    context.set_default_timeout(30_000)
    tab = context.new_page()
    tab.troubles = []
    tab.on("pageerror", lambda error: tab.troubles.append(str(error)))
    tab.on("console", lambda said: tab.troubles.append(said.text) if said.type == "error" else None)
    return tab


@pytest.fixture
def tab(open_tab):
    """A window signed in as admin."""
    return open_tab("admin")


@pytest.fixture
def look(request, tmp_path):
    """``look(tab, "calendar")`` checks that the page is accessible and not empty in light and in dark, and saves a
    picture of both.
    """
    return Looker(tmp_path)
