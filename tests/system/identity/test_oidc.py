"""People sign in with a real OpenID provider, Glewlwyd of Debian: at the dashboard, and on the command line.

The plane is `moorage up`; the browser is an HTTP client that follows what pages and the provider say
(`tests/browser/test_oidc.py` has a real one). `tests/wire/identity/test_oidc_attacks.py` has a provider that lies.
"""

import re
import subprocess
from html import unescape

import httpx
import pytest

from moorage.core.clock import SystemClock
from tests.glewlwyd import Browser, query_of, running_glewlwyd
from tests.ports import free_port
from tests.processes import inherited, openstack
from tests.servers import ServerMissing
from tests.system.planes import MOORAGE, PlaneProcess, embedded_credentials, write_config
from tests.wire.dashboard.site import Site

pytestmark = [pytest.mark.slow]

SECRET = "the dashboard's secret"
MAPPING = """\
- value: lab-physics
  project: demo
  role: member
- value: lab-physics
  project: service
  role: reader
- value: cloud admins
  project: admin
  role: admin
"""


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    directory = tmp_path_factory.mktemp("glewlwyd")
    try:
        with running_glewlwyd(directory) as provider:
            yield provider
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def plane(tmp_path_factory, provider):
    state, port = tmp_path_factory.mktemp("plane") / "state", free_port()
    callback = f"http://127.0.0.1:{port}/ui/sign-in/provider/callback"
    provider.add_client("moorage", secret=SECRET, grants=["code"], redirect_uri=callback)
    provider.add_client("moorage-cli", secret=None, grants=["device_authorization"], redirect_uri=None)
    state.mkdir()
    (state / "client.secret").write_text(f"{SECRET}\n")
    (state / "oidc.yaml").write_text(MAPPING)
    config = write_config(
        state,
        plane={"services": "identity,dashboard"},
        server={"port": port},
        oidc={
            "issuer": provider.issuer,
            "name": "Glewlwyd",
            "client_id": "moorage",
            "client_secret_file": "client.secret",
            "device_client_id": "moorage-cli",
            "mapping_file": "oidc.yaml",
            "scopes": "openid",
        },
    )
    with PlaneProcess(config.source) as plane:
        yield plane


@pytest.fixture
def site(plane):
    return Site(None, plane.url)


def begin(site, target="/password"):
    """The provider's address to which the button of the page of sign-in leads."""
    page = site.get(f"/sign-in?next={target}")
    assert page.status_code == 200, page.text
    link = unescape(re.search(r'href="([^"]+)">Sign in with Glewlwyd<', page.text)[1])
    answer = site.http.get(link)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def sign_in(site, provider, username, target="/password"):
    """The page that the person sees after the provider."""
    return site.http.get(Browser(provider, username, "moorage").authorize(begin(site, target)))


def test_a_person_signs_in_at_the_dashboard_and_gets_the_roles_of_the_groups(plane, provider, site):
    provider.put_person("ada", groups=["lab-physics", "football"])
    page = sign_in(site, provider, "ada")
    assert page.status_code == 200, page.text
    assert 'http-equiv="refresh" content="0; url=/ui/password"' in page.text
    session = site.http.cookies["moorage_session"]
    assert site.get("/password").status_code == 200
    identity = httpx.get(
        f"{plane.url}/identity/v3/auth/tokens", headers={"x-auth-token": session, "x-subject-token": session}
    ).json()["token"]
    assert identity["methods"] == ["openid"]
    assert identity["user"]["name"] == "ada"
    assert identity["user"]["domain"]["name"] == provider.issuer
    assert identity["project"]["name"] == "demo"
    assert {role["name"] for role in identity["roles"]} == {"member", "reader"}
    assert site.get("/people").status_code == 403


def test_a_person_with_the_name_of_a_local_user_is_another_one_and_rights_come_and_go_with_the_groups(
    plane, provider, site
):
    """A local user has the name demo, too; the provider's is another one, in a domain of its own."""
    provider.put_person("demo", groups=["lab-physics", "cloud admins"])
    assert sign_in(site, provider, "demo").status_code == 200
    first = site.http.cookies["moorage_session"]
    assert roles_of(plane, first, "admin") >= {"admin"}
    named = [row for row in as_admin(plane, "GET", "/v3/users").json()["users"] if row["name"] == "demo"]
    assert len({row["domain_id"] for row in named}) == 2
    provider.put_person("demo", groups=["lab-physics"])
    again = Site(None, plane.url)
    assert sign_in(again, provider, "demo").status_code == 200
    assert again.http.cookies["moorage_session"] != first, "each sign-in has a session of its own"
    assert roles_of(plane, again.http.cookies["moorage_session"], "admin") is None
    assert roles_of(plane, first, "admin") is None, "also for sessions from before"


def roles_of(plane, token, project):
    scope = {"project": {"name": project, "domain": {"id": "default"}}}
    auth = {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}, "scope": scope}}
    answer = httpx.post(f"{plane.url}/identity/v3/auth/tokens", json=auth)
    return {role["name"] for role in answer.json()["token"]["roles"]} if answer.status_code == 201 else None


def test_a_person_without_a_group_here_gets_a_page_that_says_so_and_no_user(plane, provider, site):
    provider.put_person("stranger", groups=["lab-physics "])
    page = sign_in(site, provider, "stranger")
    assert page.status_code == 403
    assert "no rule of this cloud gives this person a role in a project" in page.text
    assert "moorage_session" not in site.http.cookies
    assert "stranger" not in people_of(plane)


def people_of(plane):
    return {row["name"]: row for row in as_admin(plane, "GET", "/v3/users").json()["users"]}


def as_admin(plane, method, path, **options):
    tokens = embedded_credentials(plane.transport("/identity"), plane.state, SystemClock())
    return httpx.request(method, f"{plane.url}/identity{path}", headers=dict(tokens.headers()), **options)


def test_a_code_counts_once_and_only_in_the_browser_that_began(plane, provider, site):
    provider.put_person("ada", groups=["lab-physics"])
    address = Browser(provider, "ada", "moorage").authorize(begin(site))
    stolen = Site(None, plane.url)
    begin(stolen)
    refused = stolen.http.get(address)
    assert refused.status_code == 401
    assert "not started in this browser" in refused.text
    assert "moorage_session" not in stolen.http.cookies
    secret = site.http.cookies["moorage_provider"]
    assert site.http.get(address).status_code == 200
    replay = Site(None, plane.url)
    replay.http.cookies.set("moorage_provider", secret, domain="127.0.0.1")
    answer = replay.http.get(address)
    assert answer.status_code == 401
    assert "the provider refused the sign-in" in answer.text


def test_the_provider_demands_pkce_and_gets_it(provider, site):
    asked = query_of(begin(site))
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["code_challenge"]) == 43
    assert asked["redirect_uri"].endswith("/ui/sign-in/provider/callback")
    without = {name: value for name, value in asked.items() if not name.startswith("code_challenge")}
    refused = httpx.get(f"{provider.issuer}/auth", params=without)
    assert "error=invalid_request" in refused.headers.get("location", "") or refused.status_code == 400


def test_the_address_of_return_does_not_come_from_the_host_header(provider, site):
    page = site.get("/sign-in/provider", headers={"host": "evil.example"})
    assert query_of(page.headers["location"])["redirect_uri"].startswith(site.url)


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_no_sign_in_leads_to_another_site(provider, site, target):
    provider.put_person("ada", groups=["lab-physics"])
    answer = site.get("/sign-in/provider", params={"next": target})
    page = site.http.get(Browser(provider, "ada", "moorage").authorize(answer.headers["location"]))
    url = unescape(re.search(r'content="0; url=([^"]*)"', page.text)[1])
    assert url.startswith("/ui/")
    assert "evil" not in str(httpx.URL(site.url).join(url).host)


class Login:
    """`moorage login`, a process of its own."""

    def __init__(self, url, *options):
        self.process = subprocess.Popen(
            [MOORAGE, "login", url, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=inherited(),
        )
        self.shown = ""
        while "Waiting" not in self.shown:
            line = self.process.stderr.readline()
            assert line, f"it ended: {self.shown}"
            self.shown += line

    @property
    def complete_uri(self):
        return re.search(r"or open (\S+)", self.shown)[1]

    def finish(self):
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


def variables_of(exports):
    return dict(re.findall(r"^export (\w+)=(\S+)$", exports, re.MULTILINE))


@pytest.mark.clients
def test_a_person_signs_in_on_the_command_line_and_openstack_works(plane, provider, tmp_path):
    provider.put_person("grace", groups=["lab-physics"])
    output = tmp_path / "openrc"
    login = Login(plane.url, "--project", "service", "--output", str(output))
    Browser(provider, "grace", "moorage-cli").enter_code(login.complete_uri)
    code, out, err = login.finish()
    assert (code, out) == (0, ""), err
    assert output.stat().st_mode & 0o777 == 0o600
    variables = variables_of(output.read_text())
    token, projects = openstack(
        variables, ["token", "issue", "-f", "json"], ["project", "list", "--my-projects", "-f", "json"]
    )
    assert token.status == 0, token.err
    assert token.document["project_id"] == variables["OS_PROJECT_ID"]
    assert {row["Name"] for row in projects.document} == {"demo", "service"}


def test_a_device_code_gives_another_program_no_token(provider, plane):
    begun = httpx.post(
        f"{provider.issuer}/device_authorization", data={"client_id": "moorage-cli", "scope": "openid"}
    ).json()
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    foreign = httpx.post(
        f"{provider.issuer}/token",
        data={"grant_type": grant, "client_id": "moorage", "device_code": begun["device_code"]},
        auth=("moorage", SECRET),
    )
    assert foreign.status_code >= 400
    assert foreign.json()["error"] in ("invalid_grant", "unauthorized_client", "access_denied")


def test_a_user_that_is_disabled_here_stays_out(plane, provider, site):
    provider.put_person("former", groups=["lab-physics"])
    assert sign_in(site, provider, "former").status_code == 200
    user = people_of(plane)["former"]
    as_admin(plane, "PATCH", f"/v3/users/{user['id']}", json={"user": {"enabled": False}})
    page = sign_in(Site(None, plane.url), provider, "former")
    assert page.status_code == 401
    assert "former is disabled here" in page.text


def test_sign_out_ends_the_session_here(plane, provider, site):
    provider.put_person("ada", groups=["lab-physics"])
    sign_in(site, provider, "ada")
    token = site.http.cookies["moorage_session"]
    assert roles_of(plane, token, "demo")
    assert site.post("/sign-out").status_code == 303
    assert "moorage_session" not in site.http.cookies
    assert roles_of(plane, token, "demo") is None


def test_an_id_token_of_the_dashboard_is_none_of_the_command_line(plane, provider, site):
    """The two clients differ, so a token that was made for one is refused at the door of the other."""
    provider.put_person("ada", groups=["lab-physics"])
    callback = f"{plane.url}/ui/sign-in/provider/callback"
    asked = {
        "response_type": "code", "client_id": "moorage", "redirect_uri": callback, "scope": "openid", "state": "s",
        "nonce": "n", "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", "code_challenge_method": "S256",
    }  # fmt: skip
    back = Browser(provider, "ada", "moorage").authorize(f"{provider.issuer}/auth?{httpx.QueryParams(asked)}")
    redeemed = {
        "grant_type": "authorization_code", "code": query_of(back)["code"], "redirect_uri": callback,
        "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    }  # fmt: skip
    answer = httpx.post(f"{provider.issuer}/token", data=redeemed, auth=("moorage", SECRET))
    id_token = answer.json()["id_token"]
    refused = httpx.post(f"{plane.url}/identity/moorage/v1/oidc/id_tokens", json={"id_token": id_token})
    assert refused.status_code == 401
    assert "aud" in refused.json()["error"]["message"]
