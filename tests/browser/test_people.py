"""Invitations in a browser: the code stays after the ``#``, and the form works with and without scripts."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.slow]


@pytest.fixture
def link(lab, request):
    """A link for a new member of demo, who has no password."""
    identity = lab.client("admin", "identity")
    project = next(row["id"] for row in identity.get("/v3/projects")["projects"] if row["name"] == "demo")
    name = f"invited-{request.node.callspec.id if hasattr(request.node, 'callspec') else 'alone'}"
    given = {"name": name, "default_project_id": project}
    user = identity.request("POST", "/v3/users", json={"user": given})["user"]["id"]
    identity.request("PUT", f"/v3/projects/{project}/users/{user}/roles/member")
    made = identity.request("POST", f"/moorage/v1/users/{user}/invitation", json={"expires_s": 600})
    return name, f"/ui/invitation#{made['token']}", made["token"]


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_an_invited_person_opens_the_link_chooses_a_password_and_signs_in(open_tab, link, scripts):
    name, address, code = link
    tab = open_tab(None, scripts=scripts)
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(address)
    if scripts:
        expect(tab.get_by_label("Code")).to_be_hidden()
        assert "#" not in tab.evaluate("location.href")
    else:
        tab.get_by_label("Code").fill(code)
    tab.get_by_label("Password", exact=True).fill("chosen")
    tab.get_by_label("Password again").fill("chosen")
    tab.get_by_role("button", name="Set password").click()
    expect(tab.get_by_role("status")).to_contain_text("Your password is set")
    expect(tab.get_by_label("Name")).to_have_value(name)
    tab.get_by_label("Password", exact=True).fill("chosen")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("button", name=f"Sign out {name}")).to_be_visible()
    assert not [url for url in asked if code in url.partition("#")[0]], "no server was asked with the code"


def test_an_administrator_gets_a_link_by_adding_a_person(open_tab, look):
    tab = open_tab("admin")
    tab.goto("/ui/people")
    tab.get_by_label("Name, with which the person signs in").fill("carol")
    tab.get_by_label("Project", exact=True).select_option("demo")
    tab.get_by_role("button", name="Add person").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("carol invited")
    expect(tab.locator("pre.command")).to_contain_text("/ui/invitation#")
    look(tab, "person-link")


def test_a_link_that_is_not_valid_says_so_and_shows_the_code(open_tab, look):
    tab = open_tab(None)
    tab.goto("/ui/invitation#no-such-code")
    tab.get_by_label("Password", exact=True).fill("chosen")
    tab.get_by_label("Password again").fill("chosen")
    tab.get_by_role("button", name="Set password").click()
    expect(tab.get_by_role("alert")).to_contain_text("this link is not valid")
    expect(tab.get_by_label("Code")).to_have_value("no-such-code")
    tab.troubles.clear()  # the console names the status 401
    look(tab, "invitation-refused")
