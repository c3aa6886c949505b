"""A real Keystone for tests: its process, and requests as its admin."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.ports import free_port
from tests.processes import python_of, running

PASSWORD = "of-the-bootstrap"


class Keystone:
    """Every user, whether from the bootstrap or from `user`, has the same password."""

    def __init__(self, url):
        self.url = url
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=30)
        self._known = {}
        self.admin = self.token("admin", "admin")
        self.roles = {row["name"]: row["id"] for row in self._get("roles")}
        self.projects = {row["name"]: row["id"] for row in self._get("projects")}

    def token(self, user, project, **scope):
        """A token that tests share; a test that invalidates its token uses a `fresh_token`."""
        known = (user, project, *scope)
        if known not in self._known:
            self._known[known] = self.fresh_token(user, project, **scope)
        return self._known[known]

    def fresh_token(self, user, project, **scope):
        body = {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"name": user, "domain": {"id": "default"}, "password": PASSWORD}},
                },
                "scope": scope or {"project": {"name": project, "domain": {"id": "default"}}},
            }
        }
        answer = self.http.post("/v3/auth/tokens", json=body)
        assert answer.status_code == 201, answer.text
        return answer.headers["x-subject-token"]

    def revoke(self, token):
        headers = {"X-Auth-Token": self.admin, "X-Subject-Token": token}
        assert self.http.delete("/v3/auth/tokens", headers=headers).status_code == 204

    def expired(self, token):
        """The same token with an expiry of one minute ago."""
        return self.http.get("/rig/expired", headers={"X-Subject-Token": token}).text

    def project(self, name):
        self.projects[name] = self._post("projects", {"project": {"name": name, "domain_id": "default"}})["project"][
            "id"
        ]

    def user(self, name, project, *roles):
        body = {"user": {"name": name, "domain_id": "default", "password": PASSWORD}}
        user = self._post("users", body)["user"]["id"]
        for role in roles:
            path = f"/v3/projects/{self.projects[project]}/users/{user}/roles/{self.roles[role]}"
            assert self.http.put(path, headers=self._headers).status_code == 204

    def offer(self, kind, url):
        """Adds a service to the catalogue; `kind` is its type there, and its name."""
        service = self._post("services", {"service": {"type": kind, "name": kind}})["service"]["id"]
        for interface in ("public", "internal"):
            place = {"interface": interface, "region_id": "RegionOne", "service_id": service, "url": url}
            self._post("endpoints", {"endpoint": place})

    @property
    def _headers(self):
        return {"X-Auth-Token": self.admin}

    def _get(self, what):
        return self.http.get(f"/v3/{what}", headers=self._headers).json()[what]

    def _post(self, what, body):
        answer = self.http.post(f"/v3/{what}", json=body, headers=self._headers)
        assert answer.status_code == 201, answer.text
        return answer.json()


@contextlib.contextmanager
def real_keystone(directory: Path) -> Iterator[Keystone]:
    """A Keystone with the projects ``service`` and ``red``, and users with different roles in them."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    rig = "tests/system/keystone/rig.py"
    command = [python_of(".venv-keystone"), "-W", "ignore", rig, str(directory / "keystone"), str(port), PASSWORD]
    with running(command, f"{url}/v3", directory / "keystone.log"):
        keystone = Keystone(url)
        for project in ("service", "red"):
            keystone.project(project)
        keystone.user("moorage", "service", "service", "admin")
        keystone.user("alice", "red", "member")
        keystone.user("reader", "red", "reader")
        keystone.user("nova", "service", "service")
        yield keystone
