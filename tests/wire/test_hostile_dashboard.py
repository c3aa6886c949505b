"""No value in a form, a parameter, a path or a header of the dashboard causes a 5xx, signed in or not.

Fields and parameters are those that a page reads while it answers. `tests.wire.test_hostile_values` covers the
services.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import pytest

from moorage.dashboard import cookies
from moorage.dashboard.forms import Form
from moorage.dashboard.routes import ROUTES
from moorage.dashboard.views.lease_form import DEFAULTS
from moorage.identity.tokens.throttle import BACKOFF
from tests.conftest import START
from tests.system.planes import VirtualPlane
from tests.wire.hostile import DATES, DIGITS, asked_for

URL = "http://127.0.0.1"
NOBODY = "00000000-0000-4000-8000-00000000000f"
IN_PATHS = (*DIGITS[:5], DATES[0], "..", "x" * 300, "\u0662", "a b")
IN_HEADERS = (*DIGITS[:5], "http://[::1", "http://[x]", "http://a:b", "x" * 3000, "\xe9")

IN_QUERIES = (DATES[0], DATES[2], "9999-12-31", str(2**63), "9" * 5000, "1e400", "\u0662", "x" * 300)

#: Values of form fields: dates in the browser's format, numbers, and lines of `name=value`.
IN_FORMS = (
    "0001-01-01T00:00", "9999-12-31T23:59", "9" * 9, "9" * 5000, "\u00b2", "A=999999999", "x" * 70_000,
)  # fmt: skip

#: Fields that a page reads by iterating over all of them, so that `fields_asked_for` cannot record them.
OTHERS: Mapping[str, set[str]] = {
    "/leases/new": set(DEFAULTS),
    "/leases/{lease_id}/change": {"start_date", "end_date"},
    "/calendar": {"marker"},
}

TOMORROW = {"start_date": "2026-03-20T10:00", "end_date": "2026-03-20T12:00"}
SMALL = {"vcpus": "1", "memory_mb": "1", "disk_gb": "0"}

PASSWORD = "a password of twenty"

#: The address to which a form redirects after it created a lease or a hold.
_MADE = re.compile("/leases/(holds/)?[0-9a-f-]{36}")


class World:
    """A plane with a lease, a hold, a server and a device, and the browser of its administrator."""

    def __init__(self, plane: VirtualPlane) -> None:
        self.plane = plane
        self.answers: Counter[int] = Counter()
        self.troubles: list[str] = []
        self.session = ""
        self.host = plane.compute.get("/os-hypervisors")["hypervisors"][0]["hypervisor_hostname"]
        plane.reservation.request("POST", "/v1/os-hosts", json={"name": self.host})
        flavor = plane.create_flavor("small")
        self.server = plane.create_server(flavor=flavor, image=plane.create_image())
        plane.settle()
        self.lease = self.hold = self.amount = NOBODY
        project = {"project": {"name": "guests"}}
        self.project = plane.identity.request("POST", "/v3/projects", json=project)["project"]["id"]
        user = {"user": {"name": "guest", "password": PASSWORD}}
        self.user = plane.identity.request("POST", "/v3/users", json=user)["user"]["id"]
        self.device = plane.accelerator.get("/devices")["devices"][0]["uuid"]
        self.shelf = plane.placement.get("/resource_providers")["resource_providers"][0]["uuid"]

    def sign_in(self) -> None:
        self.session = ""
        self.plane.clock.sleep(BACKOFF.longest_s)
        form = {"name": "admin", "password": self.plane.password("admin")}
        self.session = self.sent("POST", "/sign-in", form).headers["set-cookie"].partition("=")[2].partition(";")[0]

    def renew(self) -> None:
        """Signs in, with a new lease and hold."""
        self.sign_in()
        self.sent("POST", f"/leases/holds/{self.hold}/release", {})
        self.delete_lease(self.lease)
        lease = self.sent("POST", "/leases/new", {**DEFAULTS, **SMALL, **TOMORROW})
        self.lease = lease.headers["location"].rpartition("/")[2]
        self.amount = f"amount-{self.plane.reservation_id(self.lease)}"
        self.renew_hold()

    def delete_lease(self, lease: str) -> None:
        """In any status. A form without a lease would be refused."""
        for act in ("cancel", "delete", "delete_ended"):
            self.sent("POST", "/leases/selected", {act: lease})

    def renew_hold(self) -> None:
        hold = self.sent("POST", "/leases/new", {**DEFAULTS, **SMALL, "hold": "|".join(TOMORROW.values())})
        self.hold = hold.headers["location"].rpartition("/")[2].partition("?")[0]

    def sent(self, method, path, form: Mapping[str, str] | None = None, **headers):
        kept = {cookies.SEED: "seed"} | ({cookies.SESSION: self.session} if self.session else {})
        sent = {"cookie": "; ".join(f"{name}={value}" for name, value in kept.items()), "origin": URL}
        body = None
        if form is not None:
            sent["content-type"] = "application/x-www-form-urlencoded"
            body = urlencode({"form_token": cookies.form_token("seed", self.session), **form}).encode()
        return self.plane.transport().send(method, f"/ui{path}", sent | headers, body)

    def ask(self, method: str, path: str, form: Mapping[str, str] | None = None, **headers: str) -> int:
        """Sends a request; signs in again if an earlier one ended the session.

        Waits before a sign-in until failed logins no longer cause a delay.
        """
        was = bool(self.session)
        self.plane.clock.sleep(BACKOFF.longest_s if path.startswith("/sign-in") and method == "POST" else 0)
        answer = self.sent(method, path, form, **headers)
        if was and not headers and "/sign-in?" in answer.headers.get("location", ""):
            self.sign_in()
            answer = self.sent(method, path, form)
        made = _MADE.search(answer.headers.get("location", ""))
        if made and path in ("/leases/new", "/leases/maintenance"):
            if made[1]:
                self.sent("POST", f"{made[0]}/release", {})
            else:
                self.delete_lease(made[0].rpartition("/")[2])
        elif made and path == f"/leases/holds/{self.hold}":  # the request converted the hold to a lease
            self.delete_lease(made[0].rpartition("/")[2])
            self.renew_hold()
        self.answers[answer.status] += 1
        if answer.status >= 500:
            shown = {name: value[:40] for name, value in (form or headers).items()}
            self.troubles.append(f"{method} {path[:120]} {shown}: {answer.status} {_said(answer.body)}")
        return answer.status

    def path(self, route, **others: str) -> str:
        there = {"hold_id": self.hold, "lease_id": self.lease, "server_id": self.server, "name": "moorage.css",
                 "host": self.host,
                 "user_id": self.user, "project_id": self.project,
                 "uuid": self.device if "devices" in route.path else self.shelf}  # fmt: skip
        return re.sub(r"\{(\w+)\}", lambda found: quote((there | others)[found[1]], safe=""), route.path)

    def parameters(self, path: str) -> Mapping[str, str]:
        """Valid parameters of a page that needs some."""
        selected = {"/leases/selected": {"lease": self.lease}, "/servers/selected": {"server": self.server}}
        return {"do": "delete", **selected[path]} if path in selected else {}

    def forms(self, path: str) -> list[Mapping[str, str]]:
        """Valid forms by the action of a route. Those that delete something come last."""
        check = {**TOMORROW, "action": "check"}
        of_flavor = {"resource_type": "flavor:instance", "flavor_id": "small"}
        of_hosts = {"resource_type": "physical:host", "min": "1", "max": "1", "hypervisor_properties": ""}
        of_any = {
            "resource_type": "resource:any",
            "resources": "VCPU=1",
            "traits": "",
            "function_name": "",
            "bitstream_id": "",
        }
        maintenance = {**TOMORROW, "hosts": self.host, "name": "x"}
        found: Mapping[str, list[Mapping[str, str]]] = {
            "/sign-in": [{"name": "admin", "password": "wrong", "next": "/map"}],
            "/project": [{"project_id": NOBODY, "next": "/"}],
            "/theme": [{"theme": "dark", "next": "/"}],
            "/password": [{"original": "wrong", "password": PASSWORD, "again": PASSWORD}],
            "/invitation": [{"code": "wrong", "password": PASSWORD, "again": PASSWORD}],
            "/people": [{"name": "another", "project": self.project, "role": "member"}],
            "/people/projects": [{"name": "another", "description": "x"}],
            "/people/projects/{project_id}/state": [{}, {"enable": "1"}],
            "/people/users/{user_id}/state": [{}, {"enable": "1"}],
            "/people/users/{user_id}/password": [{"password": PASSWORD, "again": PASSWORD}],
            "/people/users/{user_id}/roles": [{"project": self.project, "role": "member"}, {"take": "1"}],
            "/people/users/{user_id}/invitation": [{}, {"withdraw": "1"}],
            "/hosts": [{"name": "another"}],
            "/hosts/{host}/state": [{"reason": "x"}, {"undrain": "1"}],
            "/leases/new": [
                {**DEFAULTS, **SMALL, **check, "times": "2", "snapshot": "1"}, check | of_flavor, check | of_hosts, check | of_any,
                SMALL | TOMORROW, SMALL | check | {"action": "find"}, {"take": "|"}, SMALL | {"hold": "|".join(TOMORROW.values())},
            ],
            "/leases/holds/{hold_id}": [{"name": "x", "before_end_date": "", "emails": "", "webhooks": ""}],
            "/leases/maintenance": [maintenance | {"action": "check"}, maintenance],
            "/leases/selected": [{"cancel": self.lease}],
            "/servers/selected": [{"stop": self.server}, {"start": self.server}, {"reboot": self.server}],
            "/leases/{lease_id}/change": [
                {**TOMORROW, "name": "x", "before_end_date": "", "emails": "", "webhooks": "", "action": "check",
                 self.amount: "1"},
            ],
            "/provider-config": [{"host": self.host, "do": "plan", "name0": "a.yaml", "text0": "x: 1"}],
        }  # fmt: skip
        return found.get(path, [{}])


def _said(body: bytes) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", body.decode()).split())[-300:]


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with VirtualPlane(tmp_path_factory.mktemp("plane") / "state", START) as plane:
        yield plane


@pytest.fixture(scope="module")
def furnished(plane):
    return World(plane)


@pytest.fixture
def world(furnished):
    """Signed in as admin."""
    furnished.answers.clear()
    furnished.troubles.clear()
    furnished.renew()
    return furnished


@pytest.fixture
def stranger(world):
    """The same world, with a browser that is not signed in."""
    world.session = ""
    return world


@contextmanager
def fields_asked_for() -> Iterator[set[str]]:
    """The names of all form fields that are read inside this context."""
    names: set[str] = set()

    def noting(read):
        def noted(self, name, *more):
            names.add(name)
            return read(self, name, *more)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        for reader in ("text", "every", "raw", "has"):
            patch.setattr(Form, reader, noting(getattr(Form, reader)))
        yield names


def pages(method: str) -> Iterable:
    return (route for route in ROUTES if route.method == method)


def test_no_value_of_a_form_is_answered_with_5xx(world):
    for route in pages("POST"):
        for form in world.forms(route.path):
            world.renew()
            with fields_asked_for() as names:
                world.ask("POST", world.path(route), form)
            names = (
                {*names, *form}
                - {"form_token"}
                - {f"{name}{place}" for name in ("name", "text") for place in range(1, 99)}
            )
            for name in sorted(names):
                for value in IN_FORMS:
                    world.ask("POST", world.path(route), {**form, name: value})
    assert world.troubles == []
    assert world.answers[400] > 300


#: {path: its answer on a plane without an OpenID provider}
WITHOUT_PROVIDER = {"/sign-in/provider": (404,), "/sign-in/provider/callback": (401,)}


def test_no_value_of_a_parameter_is_answered_with_5xx(world):
    for route in pages("GET"):
        path, needed = world.path(route), world.parameters(route.path)
        with asked_for("mark") as names:
            answer = world.ask("GET", f"{path}?{urlencode({**needed, 'mark': '1'})}")
            assert answer in WITHOUT_PROVIDER.get(route.path, (200, 303)), path
        for name, value in itertools.product(sorted(names | OTHERS.get(route.path, set())), IN_QUERIES):
            world.ask("GET", f"{path}?{urlencode({**needed, name: value})}")
    assert world.troubles == []
    assert world.answers[200] > 100


def test_no_value_in_a_path_is_answered_with_5xx(world):
    for route in ROUTES:
        form = world.forms(route.path)[0] if route.method == "POST" else None
        for name in re.findall(r"\{(\w+)\}", route.path):
            for value in IN_PATHS:
                world.ask(route.method, world.path(route, **{name: value}), form)
    assert world.troubles == []
    assert world.answers[404] > 50


def test_no_value_of_a_header_is_answered_with_5xx(world):
    for path in ("/theme", "/leases/new", "/sign-in"):
        for value in IN_HEADERS:
            for header in ("origin", "referer", "cookie"):
                alone = {"origin": ""} if header == "referer" else {}
                world.ask("POST", path, {"theme": "dark"}, **alone, **{header: value})
                world.ask("POST", path, {"theme": "dark"}, **{header: value})
    for route in pages("GET"):
        for value in IN_HEADERS:
            for cookie in (cookies.SESSION, cookies.SEED, cookies.THEME):
                world.ask("GET", world.path(route), cookie=f"{cookie}={value}")
    assert world.troubles == []
    assert world.answers[403] > 20


def test_no_value_sent_without_a_session_is_answered_with_5xx(stranger):
    for route in ROUTES:
        path = stranger.path(route)
        forms = [None]
        if route.method == "POST":
            forms = [
                {**form, name: value} for form in stranger.forms(route.path)[:1] for name in form for value in IN_FORMS
            ]
            forms += [
                {},
                {"form_token": "\u0662"},
                {"x" * 3000: "1"},
                {"next": "http://[", "name": "a", "password": "b"},
            ]
        for form in forms:
            stranger.ask(route.method, path, form)
        for value in (*IN_PATHS, "http://["):
            stranger.ask(route.method, f"{path}?{urlencode({'next': value, 'start': value})}", forms[-1])
        for name in re.findall(r"\{(\w+)\}", route.path):
            for value in IN_PATHS:
                stranger.ask(route.method, stranger.path(route, **{name: value}), forms[0])
    assert stranger.troubles == []
    assert stranger.answers[303] > 100
