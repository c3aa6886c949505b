import json

import pytest

from moorage.core.clock import AdjustableClock
from moorage.identity.first_start.first_credentials import first_credentials
from tests.plane import InProcessPlane

SERVICES = "identity,placement,image,compute,accelerator,reservation,agent,dashboard"


class Trailed:
    """A plane with its own users and every service, whose requests are compared with its audit trail."""

    def __init__(self, directory, **sections):
        self.plane = InProcessPlane(
            directory,
            SERVICES,
            clock=AdjustableClock(),
            authenticator=None,
            credentials=None,
            **sections,
        )
        self.path = directory / "trail.jsonl"
        self._tokens = {}

    def password(self, user):
        return first_credentials(self.plane.config.state, user)[0]

    def log_in(self, user, password, project="admin"):
        auth = {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": user, "password": password, "domain": {"id": "default"}}},
            },
            "scope": {"project": {"name": project, "domain": {"id": "default"}}},
        }
        return self.plane.send("POST", "/identity/v3/auth/tokens", {"auth": auth}, who=None, roles=None)

    def token(self, user):
        if user not in self._tokens:
            project = {"admin": "admin", "demo": "demo", "moorage": "service"}[user]
            self._tokens[user] = self.log_in(user, self.password(user), project).headers["x-subject-token"]
        return self._tokens[user]

    def send(self, method, path, body=None, *, user="admin", headers=None, version=None):
        """Sends a request; without a user it has no token."""
        sent = dict(headers or {}) | ({"x-auth-token": self.token(user)} if user else {})
        return self.plane.send(method, path, body, who=None, roles=None, headers=sent, version=version)

    def entries(self, since=0):
        """The entries from byte `since` on."""
        lines = self.path.read_bytes()[since:].splitlines() if self.path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def size(self):
        return self.path.stat().st_size if self.path.exists() else 0

    def noted(self, *request, **options):
        """Sends a request; returns its answer and its entries, without those of requests that it caused."""
        since = self.size
        answer = self.send(*request, **options)
        request_id = answer.headers["x-openstack-request-id"]
        return answer, [entry for entry in self.entries(since) if entry["request_id"] == request_id]


@pytest.fixture(scope="module")
def trailed(tmp_path_factory):
    made = Trailed(
        tmp_path_factory.mktemp("trailed"),
        plane={"clock": "adjustable"},
        trail={"agents": True},
        # The tests share the plane in real time, and only one of them lets a host send its heartbeat.
        compute={"host_down_after_s": 86_400},
    )
    with made.plane:
        yield made
