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


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_project_is_disabled_in_two_steps_that_no_table_cuts_off(open_tab, lab, scripts, width):
    name = f"optics-{width}-{scripts}"
    lab.client("admin", "identity").request("POST", "/v3/projects", json={"project": {"name": name}})
    tab = open_tab("admin", scripts=scripts, width=width)
    tab.goto(f"/ui/people/projects?find={name}")
    expect(tab.get_by_role("button", name=f"Disable {name}", exact=True)).to_be_hidden()
    tab.locator("summary", has_text=f"Disable … {name}").click()
    button = tab.get_by_role("button", name=f"Disable {name}", exact=True)
    button.scroll_into_view_if_needed()
    expect(button).to_be_in_viewport(ratio=1)
    scroll = tab.get_by_role("region", name="Table of projects")
    assert scroll.evaluate("one => [one.scrollWidth - one.clientWidth, one.scrollHeight - one.clientHeight]") == [0, 0]
    button.click()
    expect(tab.get_by_role("status")).to_have_text(f"{name} is disabled. All tokens for it have ended.")
    tab.goto("/ui/people/projects?find=service")
    expect(tab.get_by_role("row", name="service").locator("summary, button")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_role_is_given_and_removed_in_two_steps(open_tab, lab, look, width):
    made = {"user": {"name": f"dora-{width}"}}
    user = lab.client("admin", "identity").request("POST", "/v3/users", json=made)["user"]
    tab = open_tab("admin", width=width)
    tab.goto(f"/ui/people/users/{user['id']}")
    for words in ("has the role member in demo now.", "already had the role member in demo; nothing was changed."):
        tab.get_by_label("Project", exact=True).select_option("demo")
        tab.get_by_role("button", name="Give role").click()
        expect(tab.get_by_role("status")).to_have_text(f"{user['name']} {words}")
    tab.locator("summary", has_text="Remove").click()
    tab.locator("summary", has_text="Disable").click()
    expect(tab.get_by_role("button", name="Remove member in demo")).to_be_hidden()  # the other one closes it
    tab.locator("summary", has_text="Remove").click()
    look(tab, f"person-{width}", full=True)
    tab.get_by_role("button", name="Remove member in demo").click()
    expect(tab.get_by_role("status")).to_contain_text("no longer has the role member in demo")
