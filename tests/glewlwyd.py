"""A Glewlwyd of Debian's packages: the OpenID provider that the tests sign in with. It has both grants that we use.

The provider is configured through its own administration API, as its administrators do it. People and their groups are
set with `Glewlwyd.put_person`; `Browser` does at its pages what a person does there, over its own API.
"""

import gzip
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.debian import libraries_of, unpacked
from tests.ports import free_port
from tests.processes import running

#: Of the first administrator; Glewlwyd's own default, and only reachable from this machine.
_ADMIN = {"username": "admin", "password": "password"}
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Glewlwyd:
    url: str
    admin: httpx.Client = field(repr=False)

    @property
    def issuer(self) -> str:
        return f"{self.url}/api/oidc"

    def put_person(self, username: str, *, groups: list[str]) -> None:
        """Adds the person, or gives it these groups."""
        person = {
            "username": username, "password": PASSWORD, "name": username.title(), "email": f"{username}@example.org",
            "enabled": True, "scope": ["openid", "g_profile"], "groups": groups,
        }  # fmt: skip
        known = self.admin.get(f"/api/user/{username}").status_code == 200
        answer = self.admin.request("PUT" if known else "POST", f"/api/user/{username if known else ''}", json=person)
        assert answer.status_code == 200, answer.text

    def add_client(self, client_id: str, *, secret: str | None, grants: list[str], redirect_uri: str | None) -> None:
        client = {
            "client_id": client_id, "name": client_id, "confidential": secret is not None, "enabled": True,
            "authorization_type": grants, "redirect_uri": [redirect_uri] if redirect_uri else [], "scope": [],
        }  # fmt: skip
        if secret is not None:
            client |= {
                "password": secret,
                "client_secret": secret,
                "token_endpoint_auth_method": ["client_secret_basic"],
            }
        answer = self.admin.post("/api/client/", json=client)
        assert answer.status_code == 200, answer.text


class Browser:
    """What a person's browser does at Glewlwyd's pages, whose scripts call this API."""

    def __init__(self, provider: Glewlwyd, username: str, client_id: str) -> None:
        self._http = httpx.Client(base_url=provider.url)
        signed_in = self._http.post("/api/auth/", json={"username": username, "password": PASSWORD})
        assert signed_in.status_code == 200, signed_in.text
        granted = self._http.put(f"/api/auth/grant/{client_id}", json={"scope": "openid"})
        assert granted.status_code == 200, granted.text

    def authorize(self, url: str) -> str:
        """Follows an authorization URL; returns the URL of the client to which the provider sends the browser."""
        answer = self._http.get(f"{url}&g_continue")
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    def enter_code(self, verification_uri_complete: str) -> None:
        """Confirms the code that a program shows."""
        answer = self._http.get(f"{verification_uri_complete}&g_continue")
        assert answer.status_code == 302, answer.text
        assert "deviceComplete" in answer.headers["location"], answer.headers["location"]


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


@contextmanager
def running_glewlwyd(directory: Path) -> Iterator[Glewlwyd]:
    """Raises `ServerMissing` if apt cannot download it."""
    place, port = unpacked("glewlwyd", "glewlwyd", "glewlwyd-common"), free_port()
    url = f"http://127.0.0.1:{port}"
    _make_database(place, directory / "glewlwyd.db")
    (directory / "none").mkdir()
    (directory / "glewlwyd.conf").write_text(_configuration(place, directory, port, url))
    command = [place / "usr/bin/glewlwyd", f"--config-file={directory / 'glewlwyd.conf'}"]
    with (
        running(command, f"{url}/config", directory / "glewlwyd.log", LD_LIBRARY_PATH=libraries_of(place)),
        httpx.Client(base_url=url, timeout=30, trust_env=False) as admin,
    ):
        admin.post("/api/auth/", json=_ADMIN).raise_for_status()
        _describe_groups(admin)
        provider = Glewlwyd(url, admin)
        _add_plugin(admin, provider.issuer)
        yield provider


def _make_database(place: Path, path: Path) -> None:
    script = place / "usr/share/doc/glewlwyd/database/init.sqlite3.sql.gz"
    with sqlite3.connect(path) as database:
        database.executescript(gzip.decompress(script.read_bytes()).decode())
    database.close()


def _describe_groups(admin: httpx.Client) -> None:
    """Lets people have a property ``groups`` with several values."""
    module = admin.get("/api/mod/user/database").raise_for_status().json()
    module["parameters"]["data-format"]["groups"] = {"multiple": True, "read": True, "write": True}
    admin.put("/api/mod/user/database", json=module).raise_for_status()
    admin.put("/api/mod/reload/").raise_for_status()


def _add_plugin(admin: httpx.Client, issuer: str) -> None:
    key = subprocess.run(["openssl", "genrsa", "2048"], capture_output=True, text=True, check=True).stdout
    public = subprocess.run(["openssl", "rsa", "-pubout"], input=key, capture_output=True, text=True, check=True).stdout
    parameters = {
        "iss": issuer, "jwt-type": "rsa", "jwt-key-size": "256", "key": key, "cert": public,
        "access-token-duration": 600, "refresh-token-duration": 1209600, "code-duration": 600,
        "refresh-token-rolling": True, "allow-non-oidc": False, "subject-type": "public",
        "auth-type-code-enabled": True, "auth-type-device-enabled": True, "auth-type-code-revoke-replayed": True,
        "auth-type-token-enabled": False, "auth-type-id-token-enabled": True, "auth-type-none-enabled": False,
        "auth-type-password-enabled": False, "auth-type-client-enabled": False, "auth-type-refresh-enabled": False,
        "pkce-allowed": True, "pkce-required": True, "pkce-method-plain-allowed": False,
        "device-authorization-expiration": 600, "device-authorization-interval": 1,
        "jwks-show": True, "oauth-as-iss-id": True, "name-claim": "mandatory",
        "claims": [
            {"name": "groups", "user-property": "groups", "type": "string", "mandatory": True},
            {"name": "preferred_username", "user-property": "username", "type": "string", "mandatory": True},
        ],
    }  # fmt: skip
    plugin = {"module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "parameters": parameters}
    answer = admin.post("/api/mod/plugin/", json=plugin)
    assert answer.status_code == 200, answer.text


def _configuration(place: Path, directory: Path, port: int, url: str) -> str:
    shipped = gzip.decompress((place / "usr/share/doc/glewlwyd/glewlwyd.conf.sample.gz").read_bytes()).decode()
    changes = {
        "port": port, "external_url": f'"{url}"', "static_files_path": f'"{place}/usr/share/glewlwyd/webapp/"',
        "log_level": '"WARNING"', "cookie_secure": 0,
        "user_module_path": f'"{place}/usr/lib/glewlwyd/user"',
        "user_middleware_module_path": f'"{directory}/none"',
        "client_module_path": f'"{place}/usr/lib/glewlwyd/client"',
        "user_auth_scheme_module_path": f'"{place}/usr/lib/glewlwyd/scheme"',
        "plugin_module_path": f'"{place}/usr/lib/glewlwyd/plugin"',
    }  # fmt: skip
    lines = []
    for line in shipped.replace("/var/cache/glewlwyd/glewlwyd.db", str(directory / "glewlwyd.db")).splitlines():
        name = line.partition("=")[0].strip()
        if name == "cookie_domain":
            continue  # Python's cookie jar refuses a domain without a dot; without one, the cookie is for this host
        lines.append(f"{name}={changes[name]}" if name in changes else line)
    return "\n".join(lines)
