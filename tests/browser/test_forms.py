"""Forms in a browser: where the focus is, how they are left, and passwords that can be shown."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tests.conftest import START

pytestmark = pytest.mark.slow


def shown(tab):
    """{id: type} of the fields for passwords."""
    fields = '[autocomplete$="-password"]'
    return dict(tab.locator(fields).evaluate_all("all => all.map((one) => [one.id, one.type])"))


def test_the_first_field_without_a_value_has_the_focus_at_sign_in(open_tab):
    tab = open_tab(None)
    tab.goto("/ui/sign-in")
    expect(tab.get_by_label("Name")).to_be_focused()
    tab.keyboard.type("admin")
    tab.keyboard.press("Tab")
    tab.keyboard.type("wrong")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("alert")).to_be_visible()
    expect(tab.get_by_label("Password", exact=True)).to_be_focused()
    tab.goto("/ui/sign-in?name=anna")
    expect(tab.get_by_label("Password", exact=True)).to_be_focused()


def test_the_password_is_shown_and_hidden_by_keyboard_and_not_kept(open_tab, look):
    tab = open_tab(None)
    tab.goto("/ui/sign-in?name=admin")
    expect(tab.get_by_label("Password", exact=True)).to_be_focused()
    tab.keyboard.type("wrong")
    tab.keyboard.press("Tab")
    box = tab.get_by_role("checkbox", name="Show password")
    expect(box).to_be_focused()
    expect(box).not_to_be_checked()
    tab.keyboard.press("Space")
    expect(box).to_be_checked()
    assert shown(tab) == {"password": "text"}
    look(tab, "sign-in-shown")
    tab.keyboard.press("Space")
    assert shown(tab) == {"password": "password"}
    box.check()
    with tab.expect_request(lambda request: request.method == "POST") as sent:
        tab.get_by_role("button", name="Sign in").click()
    assert "password=wrong" in sent.value.post_data
    assert not re.search("Show|=on", sent.value.post_data), "the box is not sent"
    expect(tab.get_by_role("alert")).to_be_visible()
    expect(box).not_to_be_checked()
    expect(tab.get_by_label("Password", exact=True)).to_have_value("")


def test_a_password_that_was_shown_is_hidden_on_the_way_back(open_tab):
    tab = open_tab(None)
    tab.goto("/ui/sign-in?name=admin")
    expect(tab.get_by_label("Password", exact=True)).to_be_focused()
    tab.keyboard.type("wrong")
    tab.get_by_role("checkbox", name="Show password").check()
    tab.goto("/ui/sign-in?name=bob")
    tab.go_back()
    expect(tab.get_by_label("Name")).to_have_value("admin")
    expect(tab.get_by_role("checkbox", name="Show password")).not_to_be_checked()
    assert shown(tab) == {"password": "password"}


def test_a_form_that_is_sent_hides_its_password_first(open_tab):
    """Browsers keep what was in a field of text, and offer it again."""
    tab = open_tab(None)
    tab.goto("/ui/sign-in?name=admin")
    expect(tab.get_by_label("Password", exact=True)).to_be_focused()
    tab.keyboard.type("wrong")
    tab.get_by_role("checkbox", name="Show password").check()
    tab.evaluate("document.querySelector('form.fields').addEventListener('submit', (event) => event.preventDefault())")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("checkbox", name="Show password")).not_to_be_checked()
    assert shown(tab) == {"password": "password"}


def test_without_scripts_there_is_no_box_that_could_do_nothing(open_tab):
    tab = open_tab(None, scripts=False)
    tab.goto("/ui/sign-in")
    expect(tab.get_by_label("Password", exact=True)).to_be_visible()
    expect(tab.get_by_role("checkbox")).to_have_count(0)
    expect(tab.get_by_label("Name")).to_be_focused()


def test_one_box_shows_all_passwords_of_a_form(open_tab, look):
    tab = open_tab("admin")
    tab.goto("/ui/password")
    expect(tab.get_by_label("Present password")).to_be_focused()
    assert shown(tab) == dict.fromkeys(("original", "password", "again"), "password")
    tab.get_by_role("checkbox", name="Show passwords").check()
    assert shown(tab) == dict.fromkeys(("original", "password", "again"), "text")
    tab.get_by_label("Present password").fill("not it")
    tab.get_by_label("New password", exact=True).fill("new")
    tab.get_by_label("New password again").fill("new")
    look(tab, "password-shown")
    tab.get_by_role("button", name="Change password").click()
    expect(tab.get_by_role("alert")).to_contain_text("The present password is wrong")
    expect(tab.get_by_label("Present password")).to_be_focused()
    expect(tab.get_by_role("checkbox", name="Show passwords")).not_to_be_checked()
    tab.troubles.clear()  # the console names the status 401
    tab.get_by_role("link", name="Cancel").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("Calendar")


@pytest.mark.parametrize(("address", "first"), [("/ui/invitation", "code"), ("/ui/invitation#abc", "password")])
def test_the_first_visible_field_of_an_invitation_has_the_focus(open_tab, address, first):
    tab = open_tab(None)
    tab.goto(address)
    expect(tab.locator(f"#{first}")).to_be_focused()
    tab.get_by_role("checkbox", name="Show passwords").check()
    assert shown(tab) == {"password": "text", "again": "text"}


@pytest.fixture(scope="module")
def lease(lab):
    lab.plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    return lab.plane.create_lease(start=START, end=START + timedelta(days=2), amount=1)


def test_the_form_of_a_lease_proposes_an_end_and_can_be_cancelled(lease, open_tab, look):
    tab = open_tab("admin", width=1440)
    tab.goto("/ui/leases/new")
    expect(tab.get_by_label("Name", exact=True)).to_be_focused()
    expect(tab.get_by_label("End, UTC")).to_have_value("2026-03-01T14:00")
    look(tab, "lease-new-1440")
    tab.goto("/ui/leases/new?start_date=2026-03-09T08:00")
    expect(tab.get_by_label("Start, UTC")).to_have_value("2026-03-09T08:00")
    expect(tab.get_by_label("End, UTC")).to_have_value("2026-03-09T12:00")
    tab.get_by_label("VCPUs each").fill("0")
    tab.get_by_role("button", name="Reserve", exact=True).click()
    expect(tab.get_by_label("VCPUs each")).to_be_focused()
    tab.troubles.clear()  # the browser reports a 400 as an error
    tab.get_by_role("link", name="Cancel").click()
    expect(tab.get_by_role("heading", name="Leases", level=1)).to_be_visible()


def test_an_answer_above_the_form_is_not_scrolled_away_by_the_focus(lease, open_tab):
    tab = open_tab("admin", width=390, height=600)
    tab.goto("/ui/leases/new?start_date=2026-03-09T08:00&vcpus=1&memory_mb=64&disk_gb=1")
    tab.get_by_role("button", name="Preview").click()
    expect(tab.get_by_role("status")).to_be_in_viewport()
    assert tab.evaluate("scrollY") == 0


@pytest.mark.parametrize(
    ("address", "first", "back"),
    [("/leases/maintenance", "name", "/leases"), ("/leases/{lease}/change", "name", "/leases/{lease}"),
     ("/leases/{lease}/launch", "name", "/leases/{lease}"),
     ("/accelerators/release?host=compute-1&handle=R1", "reason", "/accelerators?host=compute-1")],
)  # fmt: skip
def test_a_form_focuses_its_first_field_and_leads_back(lease, open_tab, look, address, first, back):
    tab = open_tab("admin", width=1440)
    tab.goto("/ui" + address.format(lease=lease))
    expect(tab.locator(f"#{first}")).to_be_focused()
    look(tab, "form-" + re.sub(r"\W+", "-", address.format(lease="lease").partition("?")[0].strip("/")))
    tab.get_by_role("link", name="Cancel").click()
    expect(tab).to_have_url(re.compile(re.escape("/ui" + back.format(lease=lease)) + "$"))
