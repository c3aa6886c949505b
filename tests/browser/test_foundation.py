"""Signing in, the header of each page, and errors, in a browser."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow


def test_a_user_can_sign_in_and_out(open_tab, lab, look):
    tab = open_tab(None)
    tab.goto("/ui")
    assert tab.title() == "Sign in · Moorage"
    look(tab, "sign-in")
    tab.get_by_label("Name").fill("admin")
    tab.get_by_label("Password", exact=True).fill("wrong")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("alert")).to_have_text("User name or password is wrong")
    expect(tab.get_by_label("Name")).to_have_value("admin")
    tab.get_by_label("Password", exact=True).fill(lab.plane.password("admin"))
    tab.get_by_role("button", name="Sign in").click()
    tab.get_by_role("button", name="Sign out admin").wait_for()
    tab.get_by_role("button", name="Sign out admin").click()
    tab.get_by_label("Password", exact=True).wait_for()


@pytest.mark.parametrize("width", [1280, 1440])
def test_the_header_of_an_administrator_has_one_line(open_tab, width):
    tab = open_tab("admin", width=width)
    tab.goto("/ui/")
    expect(tab.locator("nav details.menu")).to_be_visible()
    assert tab.locator("header.bar").bounding_box()["height"] < 60


@pytest.mark.parametrize("width", [390, 1440])
def test_the_menu_of_administration_leads_to_each_of_its_pages(open_tab, look, width):
    tab = open_tab("admin", scripts=width == 390, width=width, height=844)
    tab.goto("/ui/hosts")
    menu = tab.locator("nav details.menu")
    expect(menu.locator("summary")).to_have_class("current")
    for page in ("Map", "Hosts", "Provider configuration", "Quarantine", "Audit", "People"):
        menu.locator("summary").click()
        link = menu.get_by_role("link", name=page, exact=True)
        box = link.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        link.click()
        expect(tab.get_by_role("heading", level=1)).to_contain_text(page)
    menu.locator("summary").click()
    if width == 390:  # axe is a script
        look(tab, f"menu-{width}")


def test_a_member_has_no_menu_of_administration(open_tab):
    tab = open_tab("demo")
    tab.goto("/ui/leases")
    expect(tab.get_by_role("navigation", name="Pages").get_by_role("link").first).to_be_visible()
    expect(tab.locator("nav details.menu")).to_have_count(0)


def test_the_header_switches_the_project_and_the_theme_without_scripts(open_tab):
    """Comes after the other tests with the administrator's session, which it ends."""
    tab = open_tab("admin", scripts=False)
    tab.goto("/ui/")
    tab.locator(".who details.menu summary").click()
    tab.get_by_role("button", name="demo", exact=True).click()
    expect(tab.locator(".who details.menu summary")).to_have_text("Project demo")
    tab.get_by_role("button", name=re.compile("Theme: auto")).click()
    tab.get_by_role("button", name=re.compile("Theme: light")).click()
    expect(tab.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_first_tab_stop_is_a_link_to_the_content(open_tab):
    tab = open_tab("demo")
    tab.goto("/ui/")
    expect(tab.get_by_role("heading", name="Calendar")).to_be_visible()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.keyboard.press("Enter")
    tab.wait_for_function("document.activeElement.id === 'content'")


def test_an_unknown_address_shows_an_error_page(tab, look):
    answer = tab.goto("/ui/no/such/page")
    assert answer.status == 404
    expect(tab.get_by_role("heading", name="Not Found")).to_be_visible()
    tab.troubles.clear()  # the browser reports a 404 as an error
    look(tab, "error")
