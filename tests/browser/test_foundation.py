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
    tab.get_by_label("Password").fill("wrong")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("alert")).to_have_text("user name or password is wrong")
    expect(tab.get_by_label("Name")).to_have_value("admin")
    tab.get_by_label("Password").fill(lab.plane.password("admin"))
    tab.get_by_role("button", name="Sign in").click()
    tab.get_by_role("button", name="Sign out admin").wait_for()
    tab.get_by_role("button", name="Sign out admin").click()
    tab.get_by_label("Password").wait_for()


def test_the_header_switches_the_project_and_the_theme_without_scripts(open_tab):
    tab = open_tab("admin", scripts=False)
    tab.goto("/ui/")
    tab.locator("details.menu summary").click()
    tab.get_by_role("button", name="demo", exact=True).click()
    expect(tab.locator("details.menu summary")).to_have_text("Project demo")
    tab.get_by_role("button", name=re.compile("Theme: auto")).click()
    tab.get_by_role("button", name=re.compile("Theme: light")).click()
    expect(tab.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_first_tab_stop_is_a_link_to_the_content(tab):
    tab.goto("/ui/")
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
