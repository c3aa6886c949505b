"""The pages of people and projects, of an own password, and who may use them."""

import re

import pytest

from moorage.dashboard.cookies import SESSION
from moorage.dashboard.routes import ROUTES
from moorage.identity.tokens.throttle import FREE_FAILURES
from tests.wire.dashboard.site import Site
from tests.wire.dashboard.test_pages import ESCAPED, HOSTILE
from tests.wire.dashboard.test_signing_in import IDENTITY_ONLY, _from

PEOPLE = [route for route in ROUTES if route.path.startswith("/people")]


@pytest.fixture
def other(open_site):
    """Another browser, without a session, at the plane of `admin`."""
    site = open_site(IDENTITY_ONLY)
    site.other = lambda: _beside(site)
    return site


@pytest.fixture
def admin(other):
    assert other.sign_in("admin", other.password("admin")).status_code == 303
    return other


def _beside(site):
    beside = Site(site.http._transport.app)
    beside.password = site.password
    return beside


def names_and_ids(page):
    return {name: found for found, name in re.findall(r'href="/ui/people/users/([^"]+)">([^<]+)</a>', page)}


def project_id(admin, name="demo"):
    return re.search(rf'<option value="([^"]+)"[^>]*>{name}</option>', admin.get("/people").text)[1]


def add(admin, name, password="a long password", **more):
    fields = {"project": project_id(admin), "role": "member", "password": password, "again": password, **more}
    return admin.post("/people", name=name, **fields)


@pytest.fixture
def alice(admin):
    """The address of her page."""
    answer = add(admin, "alice")
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].removeprefix("/ui")


def test_an_added_person_signs_in_and_has_the_role(admin, alice):
    page = admin.get("/people").text
    assert {"admin", "demo", "moorage", "alice"} <= names_and_ids(page).keys()
    assert re.search(r"alice</a>.*?demo <span class=\"quiet\">member</span>", page, re.DOTALL)
    site = admin.other()
    assert site.sign_in("alice", "a long password").status_code == 303
    assert "Project <strong>demo</strong>" in site.get("/", follow_redirects=True).text


def test_the_table_is_filtered_and_sorted(admin, alice):
    page = admin.get("/people?find=alice&sort=-name").text
    assert names_and_ids(page).keys() == {"alice"}
    assert 'aria-sort="descending"' in page
    assert "Nobody matches" in admin.get("/people?find=no+such+person").text
    assert "No project matches" in admin.get("/people/projects?find=no+such+project").text


@pytest.mark.parametrize(
    ("fields", "status", "words", "field"),
    [
        ({"name": "demo"}, 409, "the same name: demo", "name"),
        ({"name": ""}, 400, "name", "name"),
        ({"project": ""}, 400, "Project: select one", "project"),
        ({"project": "elsewhere"}, 400, "Project: select one", "project"),
        ({"role": "chief"}, 400, "Role: select one", "role"),
        ({"password": "", "again": "x"}, 400, "Password: enter one", "password"),
        ({"again": "another"}, 400, "the two are not the same", "password"),
        ({"password": "x" * 73, "again": "x" * 73}, 400, "1 to 72 bytes", "password"),
    ],
    ids=str,
)
def test_an_error_is_at_its_field_and_nobody_is_added(admin, fields, status, words, field):
    answer = add(admin, **{"name": "bob", **fields})
    assert answer.status_code == status
    assert words in answer.text
    assert f'id="{field}-problem"' in answer.text
    assert "a long password" not in answer.text
    assert "bob" not in names_and_ids(admin.get("/people").text)


def test_a_disabled_person_cannot_sign_in_until_enabled(admin, alice):
    site = admin.other()
    assert site.sign_in("alice", "a long password").status_code == 303
    assert "Disable alice" in admin.get(alice).text
    assert "alice is disabled. All sessions" in done(admin, admin.post(f"{alice}/state", disable="1"))
    page = admin.get(alice).text
    assert '<span class="badge bad">disabled</span>' in page
    assert "Make a link" not in page
    assert "With a link" not in page, "a hint for a button that is not there"
    assert done(admin, admin.get(f"{alice}?done=enabled")) == "", "it is not"
    assert admin.other().sign_in("alice", "a long password").status_code == 401
    assert "alice is enabled" in done(admin, admin.post(f"{alice}/state", enable="1"))
    assert admin.other().sign_in("alice", "a long password").status_code == 303


def done(site, answer):
    """What the page, or the page that a form leads to, says has happened."""
    page = site.http.get(answer.headers["location"]) if answer.status_code == 303 else answer
    found = re.search(r'<p class="done" role="status">([^<]+)</p>', page.text)
    return found[1] if found else ""


def test_a_new_password_ends_the_old_one_and_is_shown_nowhere(admin, alice):
    answer = admin.post(f"{alice}/password", password="n3w one", again="n3w one")
    assert answer.status_code == 303
    assert "n3w one" not in answer.headers["location"]
    assert "The new password is set" in admin.http.get(answer.headers["location"]).text
    assert admin.other().sign_in("alice", "a long password").status_code == 401
    assert admin.other().sign_in("alice", "n3w one").status_code == 303
    for typed in ({"password": "", "again": ""}, {"password": "a", "again": "b"}, {"password": "x" * 73}):
        answer = admin.post(f"{alice}/password", **{"again": typed["password"]} | typed)
        assert (answer.status_code, 'id="password-problem"' in answer.text) == (400, True)


def test_a_role_is_given_and_taken(admin, alice):
    project = project_id(admin, "admin")
    given, again = (done(admin, admin.post(f"{alice}/roles", project=project, role="reader")) for _ in range(2))
    assert given == "alice has the role reader in admin now."
    assert again == "alice already had the role reader in admin; nothing was changed."
    site = admin.other()
    site.sign_in("alice", "a long password")
    assert 'name="project_id"' in site.get("/", follow_redirects=True).text
    assert "the role reader in admin" in admin.get(alice).text
    taken = done(admin, admin.post(f"{alice}/roles", project=project, role="reader", take="1"))
    assert taken == "alice no longer has the role reader in admin."
    assert done(admin, admin.get(f"{alice}?done=given&role=%3Cb%3E&project={project}")) == ""
    for words in ("given", "had"):
        assert done(admin, admin.get(f"{alice}?done={words}&role=reader&project={project}")) == "", "it is not so"
    assert "the role reader in admin" not in admin.get(alice).text
    assert admin.post(f"{alice}/roles", project=project, role="reader", take="1").status_code == 404
    for fields in ({"project": "", "role": "reader"}, {"project": project, "role": "chief"}):
        answer = admin.post(f"{alice}/roles", **fields)
        assert (answer.status_code, "select one" in answer.text) == (400, True)


def test_the_lock_of_a_person_is_shown_and_cleared(admin, alice):
    for _ in range(FREE_FAILURES):
        assert admin.other().sign_in("alice", "wrong").status_code == 401
    assert admin.other().sign_in("alice", "a long password").status_code == 429
    assert f"{FREE_FAILURES} failed sign-ins" in admin.get("/people?find=locked").text
    page = admin.get(alice).text
    assert "must wait until" in page
    assert "Unlock" in page
    assert admin.post(f"{alice}/lock").status_code == 303
    assert "Unlock" not in admin.get(alice).text
    assert admin.other().sign_in("alice", "a long password").status_code == 303


def test_a_project_is_added_disabled_and_enabled(admin):
    added = admin.post("/people/projects", name="physics", description="the lab")
    assert done(admin, added).startswith("physics is added.")
    found = admin.get("/people/projects?find=physics").text
    assert "the lab" in found
    path = re.search(r'action="/ui(/people/projects/[^"]+/state)"', found)[1]
    assert "Disable physics" in found
    assert done(admin, admin.post(path, disable="1")) == "physics is disabled. All tokens for it have ended."
    assert '<span class="badge bad">disabled</span>' in admin.get("/people/projects?find=physics").text
    assert done(admin, admin.post(path, enable="1")) == "physics is enabled."
    assert '<span class="badge good">enabled</span>' in admin.get("/people/projects?find=physics").text
    answer = admin.post("/people/projects", name="physics")
    assert (answer.status_code, 'id="name-problem"' in answer.text) == (409, True)


def test_an_administrator_does_not_shut_out_the_own_session(admin):
    page = admin.get("/people").text
    own, project = f"/people/users/{names_and_ids(page)['admin']}", project_id(admin, "admin")
    assert admin.post(f"{own}/state", disable="1").status_code == 400
    assert admin.post(f"{own}/roles", project=project, role="admin", take="1").status_code == 400
    assert admin.post(f"/people/projects/{project}/state", disable="1").status_code == 400
    assert admin.post(f"{own}/password", password="n3w", again="n3w").headers["location"] == "/ui/password"
    assert admin.get("/people").status_code == 200
    assert admin.other().sign_in("admin", admin.password("admin")).status_code == 303


def test_the_user_of_the_services_stays_enabled(admin):
    found = names_and_ids(admin.get("/people").text)["moorage"]
    answer = admin.post(f"/people/users/{found}/state", disable="1")
    assert answer.status_code == 403
    assert 'role="alert"' in answer.text


def test_the_project_of_the_services_stays_enabled_and_their_user_keeps_its_roles(admin):
    found, project = names_and_ids(admin.get("/people").text)["moorage"], project_id(admin, "service")
    page, projects = admin.get(f"/people/users/{found}").text, admin.get("/people/projects?find=service").text
    assert "Disable" not in page
    assert "Remove the role" not in page
    assert f"{project}/state" not in projects
    refused = admin.post(f"/people/projects/{project}/state", disable="1")
    assert (refused.status_code, "log in to the project service" in refused.text) == (403, True)
    taken = admin.post(f"/people/users/{found}/roles", project=project, role="service", take="1")
    assert (taken.status_code, "log in with the role service" in taken.text) == (403, True)
    assert (
        "the role member in demo" in admin.get(f"/people/users/{names_and_ids(admin.get('/people').text)['demo']}").text
    )


@pytest.mark.parametrize("route", PEOPLE, ids=lambda route: f"{route.method} {route.path}")
def test_a_member_and_a_stranger_get_no_page_and_change_nothing(admin, alice, route):
    user = alice.rpartition("/")[2]
    path = route.path.replace("{user_id}", user).replace("{project_id}", project_id(admin))
    fields = {"name": "bob", "project": project_id(admin), "role": "admin", "password": "x", "again": "x"}
    member, stranger = admin.other(), admin.other()
    member.sign_in("alice", "a long password")

    def seen():
        return re.sub(r"<footer>.*|value=\"[0-9a-f]{64}\"", "", admin.get("/people").text)

    before = seen()
    for site, status in ((member, 403), (stranger, 303)):
        send = site.get if route.method == "GET" else lambda path, site=site: site.post(path, **fields, disable="1")
        answer = send(path)
        assert answer.status_code == status
        assert "moorage</a>" not in answer.text
    assert answer.headers["location"].startswith("/ui/sign-in?")
    assert "requires the role admin" in member.get("/people").text
    assert 'href="/ui/people"' not in member.get("/password").text
    assert seen() == before


def test_an_administrator_in_a_project_without_that_role_is_refused(admin, alice):
    """The role counts in the project of the session, as with every other page."""
    admin.post(f"{alice}/roles", project=project_id(admin, "admin"), role="admin")
    site = admin.other()
    site.sign_in("alice", "a long password")
    assert site.get("/people").status_code == 403
    site.post("/project", project_id=project_id(admin, "admin"))
    assert site.get("/people").status_code == 200


def test_a_manager_of_a_project_is_no_administrator(admin, alice):
    admin.post(f"{alice}/roles", project=project_id(admin), role="manager")
    site = admin.other()
    site.sign_in("alice", "a long password")
    assert site.get("/people").status_code == 403
    assert site.post(f"{alice}/roles", project=project_id(admin), role="admin").status_code == 403


@pytest.mark.parametrize("path", [route.path for route in PEOPLE if route.method == "POST"])
def test_a_form_without_our_token_is_refused(admin, path):
    for wrong in ({"token": "0" * 64}, {"origin": "https://evil.test"}):
        assert admin.post(path, **wrong, name="bob").status_code == 403


def test_hostile_names_are_escaped(admin):
    assert admin.post("/people/projects", name=HOSTILE, description=HOSTILE).status_code == 303
    path = add(admin, HOSTILE).headers["location"].removeprefix("/ui")
    for address in ("/people", "/people/projects", path, "/people?find=%3Cscript%3E&sort=%3Cscript%3E"):
        page = admin.get(address).text
        assert ESCAPED in page or "find=" in address
        assert "<script>alert" not in page
    assert "<script>alert" not in add(admin, HOSTILE).text
    assert admin.get("/people/users/%3Cscript%3E").status_code == 404


def test_there_are_no_pages_of_people_where_moorage_has_no_users(open_site):
    site = open_site("placement,dashboard", identity={"mode": "none"})
    assert site.get("/people").status_code == 404
    assert 'href="/ui/people"' not in site.get("/map").text


# --- invitations ---------------------------------------------------------------------------------------------------


def invited(admin, name="bob", **more):
    """(address of the page, code) of a new person who gets a link."""
    answer = add(admin, name, password="", **more)
    assert answer.status_code == 200, answer.text
    page = admin.get("/people").text
    return f"/people/users/{names_and_ids(page)[name]}", code_in(answer.text)


def code_in(page):
    return re.search(r">http://127.0.0.1:8778/ui/invitation#([\w-]{43})<", page)[1]


def choose(site, code, password="chosen", again=None):
    return site.post("/invitation", code=code, password=password, again=password if again is None else again)


def test_an_invited_person_chooses_a_password_and_signs_in(admin):
    path, code = invited(admin)
    assert '<span class="badge warn">invited</span>' in admin.get(path).text
    assert code not in admin.get(path).text, "it is shown once"
    site = admin.other()
    assert site.get("/invitation").status_code == 200
    answer = choose(site, code)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/sign-in?done=invited&name=bob")
    page = site.http.get(answer.headers["location"]).text
    assert "Your password is set" in page
    assert 'name="name" value="bob"' in page
    assert site.sign_in("bob", "chosen").status_code == 303
    again = choose(admin.other(), code, "of a thief")
    assert (again.status_code, "this link is not valid" in again.text) == (401, True)
    assert admin.other().sign_in("bob", "chosen").status_code == 303


def test_a_whole_link_may_be_pasted(admin):
    _, code = invited(admin)
    assert choose(admin.other(), f" http://127.0.0.1:8778/ui/invitation#{code} ").status_code == 303


@pytest.mark.parametrize(
    ("password", "again", "words"),
    [("", "", "enter the same one twice"), ("a", "b", "enter the same one twice"), ("x" * 73, None, "1 to 72 bytes")],
)
def test_a_refused_password_keeps_the_link_and_is_shown_nowhere(admin, password, again, words):
    _, code = invited(admin)
    site = admin.other()
    answer = choose(site, code, password, again)
    assert answer.status_code == 400
    assert words in answer.text
    assert f'value="{code}"' in answer.text
    assert "x" * 73 not in answer.text
    assert choose(site, code).status_code == 303


def test_a_new_link_and_a_withdrawal_end_the_link(admin):
    path, first = invited(admin)
    second = code_in(admin.post(f"{path}/invitation").text)
    assert choose(admin.other(), first).status_code == 401
    assert admin.post(f"{path}/invitation", withdraw="1").status_code == 303
    assert choose(admin.other(), second).status_code == 401
    assert admin.post(f"{path}/invitation", withdraw="1").status_code == 404


def test_a_disabled_person_has_no_link(admin):
    path, code = invited(admin)
    admin.post(f"{path}/state", disable="1")
    assert choose(admin.other(), code).status_code == 401
    answer = admin.post(f"{path}/invitation")
    assert (answer.status_code, 'role="alert"' in answer.text) == (409, True)
    admin.post(f"{path}/state", enable="1")
    assert choose(admin.other(), code).status_code == 401


def test_guessing_links_must_wait(admin):
    _, code = invited(admin)
    site = admin.other()
    site.http = _from(site, "192.0.2.7")
    assert [choose(site, f"guess-{at}").status_code for at in range(FREE_FAILURES)] == [401] * FREE_FAILURES
    answer = choose(site, code)
    assert (answer.status_code, "try again in 1 seconds" in answer.text) == (429, True)
    site.http = _from(site, "192.0.2.8")
    assert choose(site, code).status_code == 303


def test_the_page_of_a_link_shows_input_escaped_and_redirects_only_to_signing_in(admin):
    site = admin.other()
    page = choose(site, HOSTILE).text
    assert "<script>alert" not in page
    _, code = invited(admin, name="//evil.test/?next=//evil.test/")
    site.http.headers["referer"] = "https://evil.test/"
    location = site.post("/invitation", code=code, password="p", again="p", next="//evil.test/").headers["location"]
    assert location.startswith("/ui/sign-in?done=invited&name=%2F%2Fevil.test")
    assert 'name="next" value="/"' in site.http.get(location).text
    assert "<script>" not in site.get("/sign-in?name=%22%3E%3Cscript%3E&done=%3Cscript%3E").text


def test_a_form_with_a_link_needs_our_token(admin):
    _, code = invited(admin)
    for wrong in ({"token": "0" * 64}, {"origin": "https://evil.test"}):
        assert admin.other().post("/invitation", **wrong, code=code, password="p", again="p").status_code == 403
    assert choose(admin.other(), code).status_code == 303


def test_a_plane_without_users_invites_nobody(open_site):
    site = open_site("placement,dashboard", identity={"mode": "none"})
    assert site.get("/invitation").status_code == 404


# --- the own password ---------------------------------------------------------------------------------------------


def test_a_member_changes_the_own_password_and_signs_in_again(admin, alice):
    site = admin.other()
    site.sign_in("alice", "a long password")
    answer = site.post("/password", original="a long password", password="n3w one", again="n3w one")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/sign-in?done=changed")
    assert SESSION not in site.http.cookies
    assert "Your password is changed" in site.http.get(answer.headers["location"]).text
    assert site.sign_in("alice", "a long password").status_code == 401
    assert site.sign_in("alice", "n3w one").status_code == 303


@pytest.mark.parametrize(
    ("fields", "status", "words", "field"),
    [
        ({"original": "wrong"}, 401, "The present password is wrong", "original"),
        ({"original": ""}, 400, "Present password: enter it", "original"),
        ({"again": "another"}, 400, "enter the same one twice", "password"),
        ({"password": "", "again": ""}, 400, "enter the same one twice", "password"),
        ({"password": "x" * 73, "again": "x" * 73}, 400, "1 to 72 bytes", "password"),
    ],
    ids=str,
)
def test_a_password_that_is_not_changed_says_why_and_the_session_goes_on(admin, alice, fields, status, words, field):
    site = admin.other()
    site.sign_in("alice", "a long password")
    given = {"original": "a long password", "password": "n3w one", "again": "n3w one", **fields}
    answer = site.post("/password", **given)
    assert answer.status_code == status
    assert words in answer.text
    assert f'id="{field}-problem"' in answer.text
    assert "n3w one" not in answer.text
    assert site.get("/password").status_code == 200


def test_guessing_the_present_password_must_wait(admin, alice):
    site = admin.other()
    site.sign_in("alice", "a long password")
    given = {"original": "wrong", "password": "n3w", "again": "n3w"}
    assert [site.post("/password", **given).status_code for _ in range(FREE_FAILURES)] == [401] * FREE_FAILURES
    answer = site.post("/password", **given | {"original": "a long password"})
    assert answer.status_code == 429
    assert "Too many failed logins" in answer.text


def test_the_password_of_the_services_is_not_changed_here(admin):
    site = admin.other()
    site.sign_in("moorage", admin.password("moorage"))
    answer = site.post("/password", original=admin.password("moorage"), password="n3w", again="n3w")
    assert answer.status_code == 403
    assert "administrator" in answer.text
