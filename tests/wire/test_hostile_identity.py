"""No value in a field, parameter, path or header of the identity service, or of a rehearsal's clock, causes a 5xx.

Services with databases: `tests.wire.test_hostile_values`; the dashboard: `tests.wire.test_hostile_dashboard`.
"""

import json
import re
from collections import Counter
from urllib.parse import quote, urlencode

import pytest

from moorage.core.clock import AdjustableClock
from moorage.core.errors import StartError
from moorage.identity.api.routes import API as IDENTITY
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.rehearsal import API as REHEARSAL
from moorage.rehearsal import MAX_ADVANCE_S, open_clock
from tests.plane import InProcessPlane
from tests.wire.hostile import DATES, DIGITS, asked_for, bodies, parameters, schema_at

IN_PATHS = (*DIGITS[:5], DATES[0], "..", "x" * 300, "\u0662", "a b", "\0")
IN_HEADERS = (*DIGITS[:5], DATES[0], "x" * 3000, "\xe9", "MGoA-" * 40)

#: Longer than the longest delay after failed logins, so that the service examines each request.
FORGOTTEN_S = 3600.0
YEAR_S = 365 * 86400


class World:
    """An identity service with its own users and an enrolled host."""

    def __init__(self, plane: InProcessPlane) -> None:
        self.plane = plane
        self.answers: Counter[int] = Counter()
        self.troubles: list[str] = []
        self._token = ""
        self.first_password = first_credentials(plane.config.state, "demo")[0]
        self.passwords = {name: first_credentials(plane.config.state, name)[0] for name in ("admin", "demo")}
        users = self.sent("GET", "/v3/users")["users"]
        self.demo = next(user["id"] for user in users if user["name"] == "demo")
        self.project = self.sent("GET", "/v3/projects")["projects"][0]["id"]
        self.records = self._records()
        invited = self.sent("POST", "/moorage/v1/hosts/compute-1/enrolment", {"expires_s": 60})
        self.invitation = invited["token"]
        made = self.sent("POST", f"/moorage/v1/users/{self.demo}/invitation", {"expires_s": 60})
        self.link = made["token"]

    def _records(self) -> dict[str, str]:
        """A record of each kind, and a grant of each kind; {variable of a path: id}."""
        self.passwords["admin"] = first_credentials(self.plane.config.state, "admin")[0]
        made = {
            kind: self.sent("POST", f"/v3/{kind}s", {kind: body})[kind]["id"]
            for kind, body in (
                ("domain", {"name": "elsewhere"}),
                ("group", {"name": "friends"}),
                ("role", {"name": "pilot"}),
                ("region", {"id": "north"}),
                ("service", {"type": "weather"}),
            )
        }
        endpoint = {"service_id": made["service"], "interface": "public", "url": "http://weather.example"}
        made["endpoint"] = self.sent("POST", "/v3/endpoints", {"endpoint": endpoint})["endpoint"]["id"]
        made["implied"] = "reader"
        self.sent("PUT", f"/v3/roles/{made['role']}/implies/reader")
        self.sent("PUT", f"/v3/groups/{made['group']}/users/{self.demo}")
        for target in (f"projects/{self.project}", f"domains/{made['domain']}", "system"):
            for actor in (f"users/{self.demo}", f"groups/{made['group']}"):
                self.sent("PUT", f"/v3/{target}/{actor}/roles/{made['role']}")
                if target != "system":
                    self.sent("PUT", f"/v3/OS-INHERIT/{target}/{actor}/roles/{made['role']}/inherited_to_projects")
        # As demo, since everybody makes credentials for himself only.
        body = json.dumps(self.login("demo")).encode()
        sent = {"content-type": "application/json"}
        token = self.plane.transport().send("POST", "/identity/v3/auth/tokens", sent, body).headers["x-subject-token"]
        path = f"/identity/v3/users/{self.demo}/application_credentials"
        answer = self.plane.transport().send(
            "POST", path, sent | {"x-auth-token": token}, b'{"application_credential": {"name": "one"}}'
        )
        made["credential"] = json.loads(answer.body)["application_credential"]["id"]
        return {f"{kind}_id": record for kind, record in made.items()}

    def login(self, name: str = "admin") -> dict:
        user = {"name": name, "domain": {"id": "default"}, "password": self.passwords[name]}
        project = {"project": {"name": name, "domain": {"id": "default"}}}
        return {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": project}}

    def token(self) -> str:
        """The admin's token, until it is revoked."""
        if not self._token:
            sent = {"content-type": "application/json"}
            body = json.dumps(self.login()).encode()
            answer = self.plane.transport().send("POST", "/identity/v3/auth/tokens", sent, body)
            assert answer.status == 201, answer
            self._token = answer.headers["x-subject-token"]
        return self._token

    def sent(self, method: str, path: str, body: object = None) -> dict:
        sent = {"x-auth-token": self.token(), "content-type": "application/json"}
        raw = None if body is None else json.dumps(body).encode()
        answer = self.plane.transport().send(method, f"/identity{path}", sent, raw)
        assert answer.status < 300, answer
        return json.loads(answer.body) if answer.body else {}

    def ask(self, method: str, path: str, what: str = "", body: bytes | None = None, **headers: str) -> int:
        """Sends a request as admin, after a pause after which failed logins no longer cause a delay."""
        self.plane.clock.sleep(FORGOTTEN_S)
        token = self.token()
        sent = {"x-auth-token": token, "x-subject-token": token, "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.plane.transport().send(method, f"/identity{path}", sent, body)
        if (method, path) == ("DELETE", "/v3/auth/tokens"):
            self._token = ""
        if path.endswith("/password") and answer.status == 204 and body:
            self.passwords["demo"] = json.loads(body)["user"]["password"]
        self.answers[answer.status] += 1
        if answer.status >= 500:
            self.troubles.append(f"{method} {path[:120]} {what}: {answer.status} {answer.body[:160]!r}")
        return answer.status

    def knowing(self, body: object) -> object:
        """The body with the present password, which an earlier accepted request may have changed."""
        match body:
            case {"user": {"original_password": original, "password": str(new)}} if original == self.first_password:
                body = {"user": {"original_password": self.passwords["demo"], "password": new}}
        return body

    def path(self, route, **others: str) -> str:
        there = {"project_id": self.project, "user_id": self.demo, "host": "compute-1"} | self.records
        return re.sub(r"\{(\w+)\}", lambda found: quote((there | others)[found[1]], safe=""), route.path)

    def examples(self, route) -> list:
        """Valid bodies for routes whose schema does not suffice."""
        methods = {"auth": {"identity": {"methods": ["token"], "token": {"id": self.token()}}, "scope": "unscoped"}}
        digest, secret = "0" * 64, "s" * 32
        named = route.path.removeprefix("/v3/").partition("/")[0].removesuffix("s")
        bodies = {
            "endpoint": {"service_id": self.records["service_id"], "interface": "public", "url": "http://x.example"},
            "service": {"type": "tides", "name": "tides", "enabled": True},
            "region": {"description": "windy"},
            "user": {"name": "somebody", "email": "x@example.org", "enabled": True},
            "project": {"name": "dunes", "tags": ["sand"]},
        }
        credential = {"name": "two", "roles": [{"name": "admin"}], "expires_at": "2040-01-01T00:00:00Z"}
        others = [{named: bodies.get(named, {"name": f"another {named}", "description": "x"})}]
        return {
            "POST /v3/auth/tokens": [self.login(), methods],
            "POST /v3/users/{user_id}/application_credentials": [{"application_credential": credential}],
            "POST /v3/users/{user_id}/password": [
                {"user": {"original_password": self.passwords["demo"], "password": "a new one that is long"}}
            ],
            "POST /moorage/v1/users/{user_id}/invitation": [{"expires_s": 60}],
            "POST /moorage/v1/invitations/password": [{"token": self.link, "password": "a new one that is long"}],
            "POST /moorage/v1/oidc/authorizations": [{"browser_secret": secret}],
            "POST /moorage/v1/oidc/codes": [{"browser_secret": secret, "state": "s", "code": "c", "iss": "https://x"}],
            "POST /moorage/v1/oidc/id_tokens": [{"id_token": "a.b.c"}],
            "POST /moorage/v1/hosts/{host}/enrolment": [{"expires_s": 60}],
            "POST /moorage/v1/hosts/{host}/credential": [{"token": self.invitation, "secret_sha256": digest}],
            "PUT /moorage/v1/hosts/{host}/credential": [{"secret": secret, "secret_sha256": digest}],
            "POST /moorage/v1/hosts/{host}/tokens": [{"secret": secret}],
        }.get(f"{route.method} {route.path}", others)


@pytest.fixture
def world(tmp_path):
    with InProcessPlane(tmp_path, "identity", authenticator=None, identity={"token_lifetime_s": YEAR_S}) as plane:
        yield World(plane)


def test_no_value_of_a_field_is_answered_with_5xx(world):
    for route in IDENTITY.routes:
        schema = schema_at(route, IDENTITY)
        if schema is None:
            continue
        for example in world.examples(route):
            schema.validate(example, lambda error, route=route: f"{route.path} needs another example: {error.message}")
            for what, body in bodies(schema.document, example):
                world.ask(route.method, world.path(route), what, json.dumps(world.knowing(body)).encode())
    assert world.troubles == []
    assert world.answers[400] > 100
    assert world.answers[429] == 0


def test_no_value_of_a_parameter_is_answered_with_5xx(world):
    parameter_names = set()
    for route in IDENTITY.routes:
        if route.method not in ("GET", "HEAD"):
            continue
        with asked_for() as names:
            # This plane has no OpenID provider; `identity/test_oidc_attacks.py` has one.
            found = (404,) if route.path == "/moorage/v1/oidc" else (200, 204, 300)
            assert world.ask(route.method, world.path(route)) in found, route.path
        parameter_names |= names
        for name, value in parameters(names | {"limit", "marker"}):
            world.ask(route.method, f"{world.path(route)}?{urlencode({name: value})}")
    assert world.troubles == []
    assert parameter_names >= {"name", "domain_id", "allow_expired"}


def test_no_value_in_a_path_is_answered_with_5xx(world):
    for route in IDENTITY.routes:
        for name in re.findall(r"\{(\w+)\}", route.path):
            for value in IN_PATHS:
                body = None if route.schema is None else json.dumps(world.examples(route)[0]).encode()
                world.ask(route.method, world.path(route, **{name: value}), body=body)
    assert world.troubles == []
    assert world.answers[404] > 20


def test_no_value_of_a_tokens_header_is_answered_with_5xx(world):
    for route in IDENTITY.routes:
        if route.schema is None:
            for value in IN_HEADERS:
                world.ask(route.method, world.path(route), x_auth_token=value)
                if route.path == "/v3/auth/tokens":
                    world.ask(route.method, world.path(route), x_subject_token=value)
    assert world.troubles == []
    assert world.answers[401] > 20
    assert world.answers[404] > 10


def test_no_value_for_the_adjustable_clock_is_answered_with_5xx(tmp_path):
    headers = {"x-auth-token": "root:admin", "x-roles": "admin", "content-type": "application/json"}
    answers: Counter[int] = Counter()
    with InProcessPlane(tmp_path, "identity", clock=AdjustableClock(), plane={"clock": "adjustable"}) as plane:
        for route in REHEARSAL.routes:
            schema = schema_at(route, REHEARSAL)
            sent = [None]
            if schema is not None:
                sent = [json.dumps(body).encode() for _, body in bodies(schema.document, {"advance_s": 1})]
                sent += [b'{"advance_s": NaN}', b'{"advance_s": 1e400}', b'{"advance_s": 1e-300}']
            for body in sent:
                answers[plane.transport().send(route.method, f"/moorage{route.path}", headers, body).status] += 1
    assert answers.keys() == {200, 400}
    assert answers[400] > 5


def test_an_adjustable_clock_cannot_be_moved_beyond_the_calendar(tmp_path):
    """`datetime` cannot represent such times, and the offset would survive restarts."""
    headers = {"x-auth-token": "root:admin", "x-roles": "admin", "content-type": "application/json"}
    body = json.dumps({"advance_s": MAX_ADVANCE_S}).encode()
    with InProcessPlane(tmp_path, "identity", clock=AdjustableClock(), plane={"clock": "adjustable"}) as plane:
        answers = {plane.transport().send("POST", "/moorage/v1/clock", headers, body).status for _ in range(1000)}
        assert answers == {200, 400}
        assert plane.transport().send("GET", "/moorage/v1/clock", headers).status == 200


@pytest.mark.parametrize("offset", ["1e30", "1e12", "nan", "soon"])
def test_a_stored_offset_beyond_the_calendar_stops_the_start(tmp_path, offset):
    (tmp_path / "clock").write_text(offset)
    with pytest.raises(StartError, match="must contain the clock's offset"):
        open_clock(tmp_path)
