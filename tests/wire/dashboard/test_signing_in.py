"""Access to the dashboard, and the headers that restrict a browser."""

import re

import httpx
import pytest

from moorage.dashboard.cookies import SEED, SESSION, form_token
from tests.wire.dashboard.site import Site

IDENTITY_ONLY = "identity,dashboard"
WITHOUT_USERS = {"identity": {"mode": "none"}}


def test_a_page_without_a_session_asks_to_sign_in_and_returns_to_the_page(site, plane):
    asked = site.get("/?from=here")
    assert asked.status_code == 303
    assert asked.headers["location"] == "/ui/sign-in?next=%2F%3Ffrom%3Dhere"
    done = site.sign_in("admin", plane.password("admin"), next="/?from=here")
    assert (done.status_code, done.headers["location"]) == (303, "/ui/?from=here")


def test_a_wrong_password_is_reported_and_the_name_is_kept(site):
    answer = site.sign_in("admin", "no such")
    assert answer.status_code == 401
    assert "User name or password is wrong" in answer.text
    assert 'name="name" value="admin"' in answer.text
    assert SESSION not in site.http.cookies


def test_the_session_cookie_is_hidden_from_scripts_and_other_sites(site, plane):
    given = site.sign_in("demo", plane.password("demo")).headers.get_list("set-cookie")
    session = next(text for text in given if text.startswith(SESSION))
    assert {"HttpOnly", "SameSite=Strict", "Path=/ui"} <= {part.strip() for part in session.split(";")}
    assert "Secure" not in session


def test_behind_https_cookies_are_secure(open_site):
    site = open_site(IDENTITY_ONLY, "https://cloud.test", server={"public_url": "https://cloud.test"})
    given = site.sign_in("admin", site.password("admin")).headers.get_list("set-cookie")
    assert given
    assert all("Secure" in text for text in given)


def test_signing_in_does_not_redirect_to_another_site(site, plane):
    for elsewhere in ("https://evil.test/", "//evil.test/", "/\\evil.test", "/a\r\nset-cookie: x=1"):
        location = site.sign_in("demo", plane.password("demo"), next=elsewhere).headers["location"]
        assert location.startswith("/ui/")
        assert "\n" not in location


def test_signing_out_deletes_the_cookie(sign_in):
    site = sign_in("demo")
    assert site.get("/", follow_redirects=True).status_code == 200
    assert site.post("/sign-out").status_code == 303
    assert SESSION not in site.http.cookies
    assert site.get("/").headers["location"].startswith("/ui/sign-in")


def _is_good(plane, token):
    answer = Site(plane.plane.app).http.get("/identity/v3/auth/projects", headers={"x-auth-token": token})
    return answer.status_code == 200


def test_signing_out_revokes_the_token(sign_in, plane):
    """A copied cookie is worthless afterwards."""
    site = sign_in("demo")
    token = site.http.cookies[SESSION]
    assert _is_good(plane, token)
    site.post("/sign-out")
    assert not _is_good(plane, token)


def test_switching_the_project_revokes_the_previous_token(sign_in, plane):
    site = sign_in("admin")
    before = site.http.cookies[SESSION]
    projects = dict(reversed(pair) for pair in _projects(site.get("/", follow_redirects=True).text))
    site.post("/project", project_id=projects["demo"])
    after = site.http.cookies[SESSION]
    assert (_is_good(plane, before), _is_good(plane, after)) == (False, True)
    site.post("/sign-out")
    assert not _is_good(plane, after)


def test_an_expired_token_redirects_to_the_sign_in_page_with_a_reason(sign_in):
    site = sign_in("demo")
    site.http.cookies.set(SESSION, "moor1.nonsense.nonsense", domain="127.0.0.1", path="/ui")
    answer = site.get("/", follow_redirects=True)
    assert "Your session has ended" in answer.text


@pytest.mark.parametrize(
    ("referer", "back"),
    [("/ui/leases/1?a=b", "%2Fleases%2F1%3Fa%3Db"), ("/elsewhere", "%2F"), ("//evil.test/ui/", "%2F"), ("", "%2F")],
)
def test_a_form_with_an_expired_session_returns_to_its_page_after_signing_in(sign_in, referer, back):
    site = sign_in("demo")
    token = form_token(site.http.cookies[SEED], "moor1.nonsense.nonsense")
    site.http.cookies.set(SESSION, "moor1.nonsense.nonsense", domain="127.0.0.1", path="/ui")
    site.http.headers["referer"] = f"{site.url}{referer}" if referer.startswith("/ui") else referer
    answer = site.post("/leases/1/change", token=token)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/sign-in?next={back}&over=1")


def test_a_user_can_switch_only_to_their_own_projects(sign_in):
    site = sign_in("admin")
    page = site.get("/", follow_redirects=True).text
    projects = dict(reversed(pair) for pair in _projects(page))
    before = site.http.cookies[SESSION]
    assert site.post("/project", project_id=projects["demo"]).status_code == 303
    assert site.http.cookies[SESSION] != before
    assert "Project <strong>demo</strong>" in site.get("/", follow_redirects=True).text
    assert site.post("/project", project_id="somebody-elses").status_code == 400


def _projects(page):
    return re.findall(r'name="project_id" value="([^"]+)"[^>]*>([^<]+)<', page)


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/project", "/theme"])
def test_a_form_of_another_site_is_refused(sign_in, path):
    site = sign_in("demo")
    for origin in ("https://evil.test", "null", "", "http://127.0.0.1:8779"):
        answer = site.post(path, origin=origin, theme="dark", name="a", password="b", project_id="x")
        assert answer.status_code == 403
        assert "not from the dashboard" in answer.text


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/project", "/theme"])
def test_a_form_without_our_token_is_refused(sign_in, path):
    site = sign_in("demo")
    others = sign_in("demo").form_token()
    for token in ("", "0" * 64, others, "\N{SNOWMAN}"):
        answer = site.post(path, token=token, theme="dark")
        assert answer.status_code == 403
        assert "dashboard.form_token" in answer.text
        assert answer.text.count("belongs to another session") == 1


def test_a_browser_without_cookies_cannot_send_forms(site):
    token = site.form_token()
    site.http.cookies.delete(SEED)
    assert site.post("/theme", token=token, theme="dark").status_code == 403


def test_every_answer_has_headers_that_restrict_the_browser(site, sign_in):
    signed_in = sign_in("demo")
    for answer in (site.get("/"), site.get("/sign-in"), site.get("/nothing/here"), signed_in.get("/")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_input_is_escaped_when_it_is_shown_again(site):
    page = site.sign_in('"><script>alert(1)</script>', "x").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_browsers_may_cache_static_files_until_they_change(site):
    sheet = site.get("/static/moorage.css")
    assert sheet.headers["content-type"].startswith("text/css")
    assert "immutable" in sheet.headers["cache-control"]
    assert site.get("/static/moorage.css", headers={"if-none-match": sheet.headers["etag"]}).status_code == 304
    assert site.get("/static/..%2Froutes.py").status_code == 404
    assert site.get("/static/nothing.css").status_code == 404


def test_the_size_of_a_form_is_limited(sign_in):
    site = sign_in("demo")
    assert site.post("/theme", theme="x" * (1 << 20)).status_code == 413
    headers = {"origin": site.url, "content-type": "application/json"}
    assert site.http.post("/ui/theme", content=b"{}", headers=headers).status_code == 415


def test_the_chosen_theme_is_stored(site):
    site.post("/theme", theme="dark")
    assert '<html lang="en" data-theme="dark">' in site.get("/sign-in").text
    assert site.post("/theme", theme="pink").status_code == 400


def test_in_mode_none_nobody_signs_in_and_local_requests_are_admin(open_site):
    site = open_site("placement,dashboard", **WITHOUT_USERS)
    page = site.get("/", follow_redirects=True)
    assert page.status_code == 200
    assert "sign-in is off" in page.text
    site.http = _from(site, "192.0.2.7")
    assert site.get("/").status_code == 401


def test_in_mode_none_requests_with_a_foreign_host_name_are_refused(open_site):
    """DNS rebinding: the request comes from a local browser, with the same origin as the hostile page."""
    services = "placement,dashboard"
    evil = open_site(services, "http://evil.test:8778", **WITHOUT_USERS)
    assert evil.get("/map").status_code == 401
    assert evil.http.get("/placement/resource_providers").status_code == 401
    assert open_site(services, "http://localhost:8778", **WITHOUT_USERS).get("/map").status_code == 200
    named = {"server": {"public_url": "http://cloud.test"}}
    assert open_site(services, "http://cloud.test", **WITHOUT_USERS, **named).get("/map").status_code == 200


def _from(site, address):
    app = site.http._transport.app
    return httpx.Client(transport=httpx.WSGITransport(app=app, remote_addr=address), base_url=site.url)


def test_repeated_wrong_passwords_delay_only_their_own_address(open_site):
    site = open_site("identity,dashboard")
    site.http = _from(site, "192.0.2.7")
    assert [site.sign_in("demo", "wrong").status_code for _ in range(5)] == [401] * 5
    answer = site.sign_in("demo", site.password("demo"))
    assert answer.status_code == 429
    assert "Too many failed logins; try again in 1 seconds" in answer.text
    site.http = _from(site, "192.0.2.8")
    assert site.sign_in("demo", site.password("demo")).status_code == 303


def test_in_mode_http_basic_users_sign_in_by_the_form(open_site):
    site = open_site(IDENTITY_ONLY, identity={"mode": "http_basic"})
    assert site.sign_in("demo", site.password("demo")).status_code == 303
    assert site.get("/", follow_redirects=True).status_code == 200


def test_a_dashboard_in_its_own_process_uses_the_identity_service_of_another_one(plane):
    """It needs no password of its own, because each request has its user's token."""
    alone = plane.beside("alone", "dashboard")
    try:
        site = Site(alone.plane.app)
        assert site.sign_in("demo", plane.password("demo")).status_code == 303
        assert site.get("/", follow_redirects=True).status_code == 200
        assert not (alone.config.state / "credentials.json").exists()
    finally:
        alone.stop()
