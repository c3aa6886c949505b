"""Every route of the Reservation API with every kind of caller: the answer is right and reveals nothing (G8).

LP#2120655: in Blazar any user could change and delete any lease whose id was known.

The rows are compared with the app's route table: a route without a row fails.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

import pytest

from moorage.reservation.api.routes import API
from moorage.wire.microversion import Version
from tests.wire.reservation.neutron import NETWORK, Neutron
from tests.wire.reservation.plane import Plane, instance, lease

DEMO, ELSE = "demo-project", "other-project"

#: Callers: (project, roles). All objects belong to `DEMO`.
CALLERS = {
    "nobody": None,
    "without a role": (DEMO, ()),
    "reader": (DEMO, ("reader",)),
    "member": (DEMO, ("member",)),
    "manager": (DEMO, ("manager",)),
    "reader elsewhere": (ELSE, ("reader",)),
    "member elsewhere": (ELSE, ("member",)),
    "manager elsewhere": (ELSE, ("manager",)),
    "admin": (ELSE, ("admin",)),
}
ADMIN = ("admin",)
OWN_READERS, OWN_WRITERS = ("reader", "member", "manager"), ("member", "manager")
ELSEWHERE = ("reader elsewhere", "member elsewhere", "manager elsewhere")
READERS = (*OWN_READERS, *ELSEWHERE, *ADMIN)
WRITERS = (*OWN_WRITERS, *ELSEWHERE[1:], *ADMIN)

SMALL = {"memory_mb": 1, "disk_gb": 0}
SEARCH = {"duration_minutes": 30, "reservations": [instance(**SMALL)]}
number = count()


@dataclass(frozen=True)
class Ask:
    path: str
    body: object = None


class World:
    """A host with a secret, and a project with a lease and a hold."""

    def __init__(self, directory):
        self.plane = Plane(directory, neutron=Neutron())
        self.plane.stop_runner()
        self.plane.add_host("secret-host", vcpus=64)
        self.plane.register("secret-host", secret_key="secret-value")
        self.lease = self.new_lease()
        self.hold = self.new_hold()

    def new_lease(self):
        body = lease(instance(**SMALL), name="secret-lease", start="2026-03-05 10:00", end="2026-03-06 10:00")
        return self("member", "POST", "/v1/leases", body, status=201)["lease"]["id"]

    def deleted_lease(self):
        lease_id = self.new_lease()
        self("member", "DELETE", f"/v1/leases/{lease_id}", status=204)
        return lease_id

    def new_feed(self):
        """Of the user of all callers; each has at most a few."""
        for each in self("member", "GET", "/v1/calendar-feeds")["feeds"]:
            self("member", "DELETE", f"/v1/calendar-feeds/{each['id']}", status=204)
        return self("member", "POST", "/v1/calendar-feeds", {"name": "feed"}, status=201)["feed"]

    def new_hold(self):
        for each in self("member", "GET", "/v1/holds")["holds"]:
            self("member", "DELETE", f"/v1/holds/{each['id']}", status=204)
        return self("member", "POST", "/v1/holds", SEARCH, status=201)["hold"]["id"]

    def new_host(self):
        name = f"host-{next(number)}"
        self.plane.add_host(name)
        return name

    def registered(self):
        return self.plane.register(self.new_host())["id"]

    def __call__(self, caller, method, path, body=None, *, status=200, version="1.1"):
        got, document = self.answer(caller, method, path, body, version)
        assert got == status, document
        return document

    def answer(self, caller, method, path, body, version):
        if CALLERS[caller] is None:
            transport = self.plane.client("reservation")._transport
            headers = {"openstack-api-version": f"reservation {version}", "content-type": "application/json"}
            answer = transport.send(method, path, headers, None if body is None else json.dumps(body).encode())
            is_json = "json" in answer.headers.get("content-type", "")
            return answer.status, json.loads(answer.body) if is_json else answer.body.decode()
        project, roles = CALLERS[caller]
        return self.plane.answer(method, path, body, user="u", project=project, roles=roles, version=version)

    def picture(self):
        """All rows of the database."""
        with self.plane.engine.connect() as connection:
            names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
            return {name: connection.exec_driver_sql(f"SELECT * FROM {name}").all() for name in names}


def fixed(form, body=None):
    return lambda world: Ask(form.format(lease=world.lease, hold=world.hold), body)


def a_new_lease(form, body=None):
    return lambda world: Ask(form.format(lease=world.new_lease()), body)


def an_address_to_register(world):
    address = f"192.0.2.{2 + next(number)}"
    return Ask("/v1/floatingips", {"floating_network_id": NETWORK, "floating_ip_address": address})


def an_address(world):
    ask = an_address_to_register(world)
    return Ask(f"/v1/floatingips/{world('admin', 'POST', ask.path, ask.body, status=201)['floatingip']['id']}")


def a_new_hold(world):
    return Ask(f"/v1/holds/{world.new_hold()}")


def a_lease_of_a_hold(world):
    return Ask("/v1/leases", {"name": "taken", "hold_id": world.new_hold()})


def a_hold_to_make(world):
    world.new_hold()
    return Ask("/v1/holds", SEARCH)


def a_feed_to_make(world):
    world.new_feed()
    return Ask("/v1/calendar-feeds", {"name": "another"})


def the_url_of_a_feed(world):
    url = urlsplit(world.new_feed()["url"])
    path = f"{url.path.removeprefix('/reservation')}?{url.query}"
    assert world.answer("nobody", "GET", path, None, "1.0")[0] == 200, "later reads do not change `read_at`"
    return Ask(path)


def a_host_to_register(world):
    return Ask("/v1/os-hosts", {"name": world.new_host()})


def a_new_host(world):
    return Ask(f"/v1/os-hosts/{world.registered()}")


def a_maintenance(path):
    def ask(world):
        name = world.new_host()
        world.plane.register(name)
        return Ask(path, {"name": "repair", "start_date": "now", "end_date": "2026-03-06 10:00", "hosts": [name]})

    return ask


def answers(status, callers, *, elsewhere=403):
    """`status` for `callers`, 401 without a token, `elsewhere` for members of another project, 403 for the rest."""
    known = {caller: 401 if caller == "nobody" else 403 for caller in CALLERS}
    return known | dict.fromkeys(ELSEWHERE[1:], elsewhere) | dict.fromkeys(callers, status)


PUBLIC = dict.fromkeys
LEASE = lease(instance(**SMALL), start="2026-03-05 10:00", end="2026-03-06 10:00")
ONE = "/v1/leases/{lease}"
OPERATORS = answers(200, ADMIN)
FIRST, NEXT = Version(1, 0), Version(1, 1)

#: The URL of a feed contains a secret, which is enough to read the leases of the feed's project.
TELLS_EVERYONE = {("GET", "/v1/calendar-feeds/{feed_id}/leases.ics", FIRST)}

#: For each route and version: the request, and the expected status for each caller.
ROWS: dict[tuple[str, str, Version], list[tuple[Callable[[World], Ask], dict[str, int]]]] = {
    ("GET", "/", FIRST): [(fixed("/"), PUBLIC(CALLERS, 300))],
    ("GET", "/versions", FIRST): [(fixed("/versions"), PUBLIC(CALLERS, 300))],
    ("GET", "/v1", FIRST): [(fixed("/v1"), PUBLIC(CALLERS, 200))],
    ("GET", "/v1/", FIRST): [(fixed("/v1/"), PUBLIC(CALLERS, 200))],
    ("GET", "/moorage/v1/openapi.json", FIRST): [(fixed("/moorage/v1/openapi.json"), PUBLIC(CALLERS, 200))],
    ("GET", "/v1/leases", FIRST): [(fixed("/v1/leases"), answers(200, READERS))],
    ("GET", "/v1/leases", NEXT): [
        (fixed("/v1/leases"), answers(200, READERS)),
        (fixed("/v1/leases?name=secret-lease"), answers(200, READERS)),
        (fixed(f"/v1/leases?project_id={DEMO}"), answers(200, (*OWN_READERS, *ADMIN))),
        (fixed("/v1/leases?marker={lease}"), answers(400, ELSEWHERE) | dict.fromkeys((*OWN_READERS, *ADMIN), 200)),
    ],
    ("POST", "/v1/leases", FIRST): [(fixed("/v1/leases", LEASE), answers(201, WRITERS))],
    ("POST", "/v1/leases", NEXT): [
        (fixed("/v1/leases", LEASE), answers(201, WRITERS)),
        (a_lease_of_a_hold, answers(201, (*OWN_WRITERS, *ADMIN), elsewhere=404)),
    ],
    ("POST", "/v1/leases/dry-run", NEXT): [(fixed("/v1/leases/dry-run", LEASE), answers(200, WRITERS))],
    ("GET", "/v1/leases/{lease_id}", FIRST): [(fixed(ONE), answers(200, (*OWN_READERS, *ADMIN)))],
    ("PUT", "/v1/leases/{lease_id}", FIRST): [(fixed(ONE, {"name": "new"}), answers(200, (*OWN_WRITERS, *ADMIN)))],
    ("DELETE", "/v1/leases/{lease_id}", FIRST): [(a_new_lease(ONE), answers(204, (*OWN_WRITERS, *ADMIN)))],
    ("POST", "/v1/leases/{lease_id}/dry-run", NEXT): [
        (fixed(ONE + "/dry-run", {"name": "new"}), answers(200, (*OWN_WRITERS, *ADMIN)))
    ],
    ("GET", "/v1/leases/{lease_id}/prolongation", NEXT): [
        (fixed(ONE + "/prolongation"), answers(200, (*OWN_READERS, *ADMIN)))
    ],
    ("GET", "/v1/leases/{lease_id}/timeline", NEXT): [(fixed(ONE + "/timeline"), answers(200, (*OWN_READERS, *ADMIN)))],
    ("GET", "/v1/leases/{lease_id}/hosts", NEXT): [(fixed(ONE + "/hosts"), answers(200, (*OWN_READERS, *ADMIN)))],
    ("POST", "/v1/offers", NEXT): [(fixed("/v1/offers", SEARCH), answers(200, READERS))],
    ("GET", "/v1/holds", NEXT): [(fixed("/v1/holds"), answers(200, READERS))],
    ("POST", "/v1/holds", NEXT): [(a_hold_to_make, answers(201, WRITERS))],
    ("GET", "/v1/holds/{hold_id}", NEXT): [
        (
            lambda world: Ask(f"/v1/holds/{world.new_hold()}"),
            answers(404, ELSEWHERE) | dict.fromkeys((*OWN_READERS, *ADMIN), 200),
        )
    ],
    ("DELETE", "/v1/holds/{hold_id}", NEXT): [(a_new_hold, answers(204, (*OWN_WRITERS, *ADMIN), elsewhere=404))],
    ("GET", "/v1/calendar", NEXT): [(fixed("/v1/calendar"), answers(200, READERS))],
    ("GET", "/v1/calendar.ics", NEXT): [(fixed("/v1/calendar.ics"), answers(200, READERS))],
    ("POST", "/v1/leases/series", NEXT): [
        (fixed("/v1/leases/series", {**LEASE, "every_days": 7, "count": 2}), answers(201, WRITERS))
    ],
    ("POST", "/v1/leases/series/dry-run", NEXT): [
        (fixed("/v1/leases/series/dry-run", {**LEASE, "every_days": 7, "count": 2}), answers(200, WRITERS))
    ],
    ("POST", "/v1/maintenance", NEXT): [(a_maintenance("/v1/maintenance"), answers(201, ADMIN))],
    ("POST", "/v1/maintenance/dry-run", NEXT): [(a_maintenance("/v1/maintenance/dry-run"), answers(200, ADMIN))],
    ("GET", "/v1/limits", NEXT): [(fixed("/v1/limits"), answers(200, READERS))],
    ("GET", "/v1/limits/{project_id}", NEXT): [(fixed(f"/v1/limits/{DEMO}"), OPERATORS)],
    ("PUT", "/v1/limits/{project_id}", NEXT): [(fixed(f"/v1/limits/{DEMO}", {"limits": None}), OPERATORS)],
    ("GET", "/v1/calendar-feeds", NEXT): [(fixed("/v1/calendar-feeds"), answers(200, READERS))],
    ("POST", "/v1/calendar-feeds", NEXT): [(a_feed_to_make, answers(201, READERS))],
    ("DELETE", "/v1/calendar-feeds/{feed_id}", NEXT): [
        (lambda world: Ask(f"/v1/calendar-feeds/{world.new_feed()['id']}"), answers(204, READERS)),
    ],
    ("GET", "/v1/calendar-feeds/{feed_id}/leases.ics", FIRST): [(the_url_of_a_feed, answers(200, CALLERS))],
    ("GET", "/v1/deleted-leases", NEXT): [(fixed("/v1/deleted-leases"), answers(200, READERS))],
    ("GET", "/v1/deleted-leases/{lease_id}", NEXT): [
        (
            lambda world: Ask(f"/v1/deleted-leases/{world.deleted_lease()}"),
            answers(404, ELSEWHERE) | dict.fromkeys((*OWN_READERS, *ADMIN), 200),
        )
    ],
    ("GET", "/v1/user-limits", NEXT): [(fixed("/v1/user-limits"), answers(200, READERS))],
    ("GET", "/v1/user-limits/{user_id}", NEXT): [(fixed("/v1/user-limits/u"), OPERATORS)],
    ("PUT", "/v1/user-limits/{user_id}", NEXT): [(fixed("/v1/user-limits/u", {"limits": None}), OPERATORS)],
    ("GET", "/v1/os-hosts", FIRST): [(fixed("/v1/os-hosts"), OPERATORS)],
    ("GET", "/v1/os-hosts", NEXT): [(fixed("/v1/os-hosts?limit=1"), OPERATORS)],
    ("POST", "/v1/os-hosts", FIRST): [(a_host_to_register, answers(201, ADMIN))],
    ("GET", "/v1/os-hosts/allocations", FIRST): [(fixed("/v1/os-hosts/allocations"), OPERATORS)],
    ("GET", "/v1/os-hosts/allocations", NEXT): [(fixed("/v1/os-hosts/allocations"), OPERATORS)],
    ("GET", "/v1/os-hosts/properties", FIRST): [(fixed("/v1/os-hosts/properties?detail=1"), OPERATORS)],
    ("PATCH", "/v1/os-hosts/properties/{name}", FIRST): [
        (fixed("/v1/os-hosts/properties/secret_key", {"private": True}), OPERATORS)
    ],
    ("GET", "/v1/os-hosts/{host_id}", FIRST): [(fixed("/v1/os-hosts/1"), OPERATORS)],
    ("PUT", "/v1/os-hosts/{host_id}", FIRST): [(fixed("/v1/os-hosts/1", {"rack": "9"}), OPERATORS)],
    ("DELETE", "/v1/os-hosts/{host_id}", FIRST): [(a_new_host, answers(204, ADMIN))],
    ("GET", "/v1/os-hosts/{host_id}/allocation", FIRST): [(fixed("/v1/os-hosts/1/allocation"), OPERATORS)],
    ("GET", "/v1/floatingips", FIRST): [(fixed("/v1/floatingips"), answers(200, READERS))],
    ("POST", "/v1/floatingips", FIRST): [(an_address_to_register, answers(201, ADMIN))],
    ("GET", "/v1/floatingips/{floatingip_id}", FIRST): [(an_address, answers(200, READERS))],
    ("DELETE", "/v1/floatingips/{floatingip_id}", FIRST): [(an_address, answers(204, ADMIN))],
}

#: Texts for the project and administrators only, and texts for administrators only.
TENANTS, OPERATORS_OWN = {"secret-lease", DEMO}, {"secret-host", "secret_key", "secret-value"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("tenants"))
    yield world
    world.plane.close()


def test_every_route_has_a_row():
    routes = {(route.method, route.path.removesuffix(".json"), route.since or FIRST) for route in API.routes}
    routes.discard(("GET", "/moorage/v1/openapi", FIRST))
    assert {row for row in ROWS if "openapi" not in row[1]} == routes


@pytest.mark.parametrize("route", ROWS, ids=lambda route: " ".join(map(str, route)))
def test_each_caller_gets_only_what_its_role_and_project_allow(world, route):
    """LP#2120655"""
    method, _, version = route
    for make, expected in ROWS[route]:
        ask = None
        for caller, status in expected.items():
            ask = ask or make(world)
            before = world.picture()
            got, answer = world.answer(caller, method, ask.path, ask.body, str(version))
            assert got == status, (caller, ask.path, answer)
            if status >= 400 or method == "GET":
                assert world.picture() == before, f"{caller} has changed something"
            if route in TELLS_EVERYONE:
                continue
            hidden = _hidden(world, caller)
            told = {text for text in hidden if text in json.dumps(answer) and text not in ask.path}
            assert told == set(), f"{caller} is told {told} by {route}"
            if status < 400 and method != "GET":
                ask = None


def _hidden(world, caller):
    if caller == "admin":
        return set()
    return OPERATORS_OWN if caller in OWN_READERS else OPERATORS_OWN | TENANTS | {world.lease, world.hold}


def test_routes_with_a_json_suffix_have_the_same_permissions(world):
    """LP#2120655"""
    for method, body in (("GET", None), ("PUT", {"name": "theirs"}), ("DELETE", None)):
        got, _ = world.answer("manager elsewhere", method, f"/v1/leases/{world.lease}.json", body, "1.0")
        assert got == 403
    assert world("member", "GET", f"/v1/leases/{world.lease}")["lease"]["id"] == world.lease
