"""A sign-in with an OpenID provider in a real browser, which crosses from one site to another and back.

The provider is one of ours, at ``localhost``; the dashboard is at ``127.0.0.1``, which browsers take for another site:
cookies that are SameSite=Strict stay behind. `tests/system/identity/test_oidc.py` has a real provider.
"""

from socket import create_server

import pytest
from playwright.sync_api import expect

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.wire.server.http_server import HttpServer
from tests.browser.conftest import new_tab
from tests.plane import InProcessPlane
from tests.ports import free_port
from tests.wire.identity.lying_provider import running_provider

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def provider():
    with running_provider(SystemClock(), host="localhost") as provider:
        yield provider


@pytest.fixture(scope="module")
def url(tmp_path_factory, provider):
    state, port = tmp_path_factory.mktemp("plane"), free_port()
    (state / "oidc.yaml").write_text("- {value: lab, project: demo, role: member}\n")
    url = f"http://127.0.0.1:{port}"
    options = {"issuer": provider.issuer, "client_id": "dashboard", "mapping_file": "oidc.yaml", "name": "the lab"}
    with InProcessPlane(
        state, "identity,dashboard", clock=SystemClock(), ids=RandomIds(), url=url, authenticator=None,
        credentials=None, server={"port": port}, oidc=options,
    ) as plane:  # fmt: skip
        server = HttpServer(plane.plane.app, create_server(("127.0.0.1", port)), threads=4)
        server.start()
        yield url
        server.stop(10.0)


@pytest.fixture
def open_window(browser, url):
    """Opens a new window, with scripts or without."""
    opened = []

    def window(*, scripts: bool = True):
        tab = new_tab(browser, url, scripts, 1280, 900)
        opened.append(tab)
        return tab

    yield window
    for tab in opened:
        tab.context.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_a_person_signs_in_over_another_site_and_comes_back_to_the_page_of_before(open_window, scripts):
    tab = open_window(scripts=scripts)
    tab.goto("/ui/password")
    tab.get_by_role("link", name="Sign in with the lab").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Change your password")
    expect(tab.get_by_role("button", name="Sign out ada")).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in tab.context.cookies()}
    assert cookies["moorage_session"]["sameSite"] == "Strict"
    assert cookies["moorage_session"]["httpOnly"]
    assert "moorage_provider" not in cookies
    tab.get_by_role("button", name="Sign out ada").click()
    expect(tab.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_person_without_a_role_reads_why_at_the_page_of_sign_in(open_window, provider, look):
    tab = open_window()
    provider.claims = {"groups": ["football"], "sub": "2"}
    try:
        tab.goto("/ui/sign-in")
        look(tab, "sign-in-with-provider")
        tab.get_by_role("link", name="Sign in with the lab").click()
        expect(tab.get_by_role("alert")).to_contain_text("no rule of this cloud gives this person a role")
        assert len(tab.troubles) == 1, "the browser reports the status of the page, and nothing else"
        assert "403 (Forbidden)" in tab.troubles.pop()
        look(tab, "sign-in-refused-by-mapping")
    finally:
        provider.claims = {}
