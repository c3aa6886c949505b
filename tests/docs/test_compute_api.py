"""docs/wire/compute.md lists the missing parts of the Compute API as the route table and the actions have them."""

import re
from pathlib import Path

import pytest

from moorage.compute.api.handlers import server_actions, unsupported_routes
from moorage.compute.api.handlers.versions import VERSIONS
from moorage.compute.api.routes import API

PAGE = (Path(__file__).parents[2] / "docs" / "wire" / "compute.md").read_text()
ROW = re.compile(r"^\| `(/[^`]+)` \| ([A-Z ]+) \| (\d+) \| ([\w .]+) \|$", re.MULTILINE)


def versions(row):
    if row.since is not None:
        return f"from 2.{row.since}"
    return "all" if row.until is None else f"up to 2.{row.until}"


def test_every_unsupported_path_is_on_the_page_with_its_answer():
    assert ROW.findall(PAGE) == [
        (row.path, row.methods, str(row.status), versions(row)) for row in unsupported_routes.UNSUPPORTED_ROUTES
    ]


def test_unsupported_paths_are_in_the_route_table():
    served = {(route.method, route.path) for route in API.routes}
    for row in unsupported_routes.UNSUPPORTED_ROUTES:
        assert {(method, f"/v2.1{row.path}") for method in row.methods.split()} <= served


@pytest.mark.parametrize(
    ("words", "actions"),
    [
        ("Actions that are not offered (501): ", server_actions.NOT_BUILT),
        ("Actions that the peer took away (410): ", server_actions.GONE),
    ],
)
def test_unsupported_actions_are_on_the_page(words, actions):
    section = PAGE.partition(words)[2].partition(".\n")[0]
    assert re.findall(r"`([\w-]+)`", section) == sorted(actions)


#: All actions on servers in the table of routes of OpenStack Nova 34.0.0.
ACTIONS_OF_NOVA = frozenset(
    [
        "addFixedIp",
        "addFloatingIp",
        "addSecurityGroup",
        "changePassword",
        "confirmResize",
        "createBackup",
        "createImage",
        "evacuate",
        "forceDelete",
        "injectNetworkInfo",
        "lock",
        "migrate",
        "os-getConsoleOutput",
        "os-getRDPConsole",
        "os-getSPICEConsole",
        "os-getSerialConsole",
        "os-getVNCConsole",
        "os-migrateLive",
        "os-resetState",
        "os-start",
        "os-stop",
        "pause",
        "reboot",
        "rebuild",
        "removeFixedIp",
        "removeFloatingIp",
        "removeSecurityGroup",
        "rescue",
        "resetNetwork",
        "resize",
        "restore",
        "resume",
        "revertResize",
        "shelve",
        "shelveOffload",
        "suspend",
        "trigger_crash_dump",
        "unlock",
        "unpause",
        "unrescue",
        "unshelve",
    ]
)


def test_every_action_of_nova_is_supported_or_on_the_page():
    known = {*server_actions.ACTIONS, *server_actions.NOT_BUILT, *server_actions.GONE}
    assert known == ACTIONS_OF_NOVA
    assert not server_actions.ACTIONS.keys() & (server_actions.NOT_BUILT | server_actions.GONE)


def test_every_path_of_nova_has_a_route():
    """Every path has a route. The other tests check that the page tells whether it is supported."""
    patterns = {}
    for route in API.routes:
        pattern = re.sub(r"\{[^}]*\}", "[^/]+", route.path.removeprefix("/v2.1"))
        patterns.setdefault(route.method, []).append(re.compile(pattern))
    lines = Path(__file__).with_name("nova_routes.txt").read_text().splitlines()
    assert len(lines) > 100
    for line in lines[1:]:
        path, *methods = line.split()
        for method in methods:
            assert any(pattern.fullmatch(path) for pattern in patterns[method]), f"{method} {path}"


def test_supported_paths_are_on_the_page():
    """Compares their first segment, and for sub-resources of servers the second one."""
    section = PAGE.partition("## What exists")[2].partition("\n## ")[0]
    named = set(re.findall(r"[\w-]+", section))
    told = {row.path for row in unsupported_routes.UNSUPPORTED_ROUTES}
    for route in API.routes:
        path = route.path.removeprefix("/v2.1")
        if not route.path.startswith("/v2.1/") or not path.strip("/") or path in told:
            continue
        steps = [step for step in path.split("/")[1:] if not step.startswith("{")]
        assert steps[0] in named, path
        if steps[0] == "servers" and len(steps) > 1:
            assert steps[1] in named, path


def test_the_page_names_the_range_of_microversions():
    assert f"microversions {VERSIONS.minimum} to {VERSIONS.maximum}," in PAGE
