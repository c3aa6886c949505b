"""Every route of placement, image, compute, network and identity with every role: which roles the rules allow and refuse.

`routes_by_roles.txt` repeats the rules in full, so that a change of a rule also changes that table. A section is
``[service: roles]``, and its lines are routes: ``GET /v2.1/servers``; after the route of an action on a server or an
aggregate follows the action's name. ``everybody`` has no token; ``nothing`` is a role that no rule knows.

Only the rules are tested: an allowed request may be wrong in every other way. Each service has its own tests for the
visibility of objects; reservation and accelerator have tables for both, in their `test_tenants.py`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.compute.api.handlers.server_actions import ACTIONS
from moorage.compute.api.routes import API as COMPUTE
from moorage.identity.api.routes import API as IDENTITY
from moorage.identity.client import PasswordTokens
from moorage.identity.tokens.passwords import hash_password
from moorage.images.routes import API as IMAGE
from moorage.network.routes import API as NETWORK
from moorage.placement.api.routes import API as PLACEMENT
from tests.plane import InProcessPlane

SERVICES = {"placement": PLACEMENT, "image": IMAGE, "compute": COMPUTE, "network": NETWORK, "identity": IDENTITY}
NEWEST = {"placement": "1.39", "compute": "2.97"}
ROLES = ("nothing", "reader", "member", "manager", "admin", "service")
#: Routes whose bodies name an action; each action has its own rule.
NAMED_ACTIONS = {
    "POST /v2.1/servers/{server_id}/action": tuple(ACTIONS),
    "POST /v2.1/os-aggregates/{aggregate_id}/action": ("add_host", "remove_host", "set_metadata"),
}
PASSWORD, PROJECT = "of-all-of-them", "red"
#: Values for the variable parts of paths; some routes check the format first.
UUID = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
VARIABLES = {"project_id": PROJECT, "aggregate_id": "1", "resource_class": "VCPU", "host": "compute-1"}
#: Queries of routes that readers may only use for their own project.
QUERIES = {"GET /usages": f"?project_id={PROJECT}"}


def wanted(service: str) -> dict[str, frozenset[str]]:
    """{route: roles}"""
    found: dict[str, frozenset[str]] = {}
    roles = None
    for line in Path(__file__).with_name("routes_by_roles.txt").read_text(encoding="utf-8").splitlines():
        if section := re.fullmatch(r"\[(\w+): (.+)\]", line):
            roles = frozenset(section[2].split()) if section[1] == service else None
        elif roles is not None and line:
            assert line not in found, f"{line} of {service} is there twice"
            found[line] = roles
    return found


def requests(service: str) -> Iterator[tuple[str, str, str, object, str | None]]:
    """(name in the table, method, path, body, microversion) of each route in each of its versions."""
    # Identity would delete the project of the tokens.
    values = {} if service == "identity" else VARIABLES
    for route in SERVICES[service].routes:
        name = f"{route.method} {route.path}"
        path = re.sub(r"{(\w+)}", lambda name: values.get(name[1], UUID), route.path) + QUERIES.get(name, "")
        version = str(route.until) if route.until else NEWEST.get(service)
        body = {} if route.reads == "json" and route.method in ("POST", "PUT", "PATCH") else None
        yield name, route.method, path, body, version
        for action in NAMED_ACTIONS.get(name, ()):
            yield f"{name} {action}", route.method, path, {action: {}}, version


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """A plane with a user of each role; user, role and token have the same name."""
    directory = tmp_path_factory.mktemp("identity")
    users = {role: {"id": role, "password": hash_password(PASSWORD, 4), "roles": {PROJECT: [role]}} for role in ROLES}
    file = directory / "users.yaml"
    file.write_text(json.dumps({"projects": {PROJECT: {"id": PROJECT}}, "users": users}))  # JSON is YAML
    file.chmod(0o600)
    with InProcessPlane(directory, "identity", authenticator=None, identity={"users_file": str(file)}) as plane:
        yield plane


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    with InProcessPlane(tmp_path_factory.mktemp("others"), "placement,image,compute,network") as plane:
        yield plane


@pytest.fixture
def callers(tokens) -> dict[str, dict[str, dict[str, str]]]:
    """{service: {role: headers}}; `everybody` has none."""

    def log_in(role: str) -> dict[str, str]:
        return dict(
            PasswordTokens(
                tokens.transport("/identity"), username=role, password=PASSWORD, project=PROJECT, clock=tokens.clock
            ).headers()
        )

    named = {"everybody": {}} | {role: {"x-auth-token": f"{role}:{PROJECT}", "x-roles": role} for role in ROLES}
    return dict.fromkeys(SERVICES, named) | {"identity": {"everybody": {}} | {role: log_in(role) for role in ROLES}}


@pytest.mark.parametrize("service", SERVICES)
def test_a_route_allows_exactly_the_roles_of_its_row(service, tokens, others, callers):
    plane = tokens if service == "identity" else others
    expected = wanted(service)
    found: dict[str, frozenset[str]] = {}
    for name, method, path, body, version in requests(service):
        answers = {
            caller: plane.send(
                method, f"/{service}{path}", body, who=None, roles=None, version=version, headers=headers
            ).status
            for caller, headers in callers[service].items()
        }
        refused = {caller: status for caller, status in answers.items() if status in (401, 403)}
        assert refused.pop("everybody", 401) == 401, name
        assert set(refused.values()) <= {403}, (name, answers)
        public = answers["everybody"] != 401
        allowed = frozenset({"everybody"} if public else answers.keys() - refused - {"everybody"})
        assert not (public and refused), (name, answers)
        assert found.setdefault(name, allowed) == allowed, f"the versions of {name} have different rules"
    assert found == expected
