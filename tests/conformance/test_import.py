"""`moorage placement import` copies a database of the real Placement; then both answer every GET alike."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from moorage.cli.main import cli
from moorage.core.clock import SystemClock
from moorage.wire.transports import InProcessTransport
from tests.conformance.conform import upstream_server
from tests.conformance.reset import empty
from tests.conformance.wire import Api, send
from tests.conformance.world import World
from tests.conformance.worlds import WORLDS, granular, multi_segment_network, numa_network
from tests.conftest import DATABASES
from tests.plane import InProcessPlane
from tests.servers import temporary_database

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

HEADERS = {"x-auth-token": "admin", "accept": "application/json", "openstack-api-version": "placement 1.39"}

CANDIDATES = (
    "resources=VCPU:1",
    "resources=VCPU:1,DISK_GB:10",
    "resources=VCPU:2,MEMORY_MB:1024&limit=1000&required=CUSTOM_FOO",
    "resources=VCPU:1&resources_N=CUSTOM_VF:1&required_N=CUSTOM_PHYSNET1",
    "resources1=SRIOV_NET_VF:1&resources2=SRIOV_NET_VF:2&group_policy=isolate",
    "resources=VCPU:1&resources_A=NET_BW_EGR_KILOBIT_PER_SEC:500&resources_B=FPGA:1&group_policy=none",
    "resources=DISK_GB:5&required=in:CUSTOM_DISK_SSD,MISC_SHARES_VIA_AGGREGATE",
    "resources=VGPU:3",
    "resources=CUSTOM_GOLD:1",
)


class Upstream:
    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str):
        status, _, headers, body = send(self._url + path, headers=HEADERS)
        return status, headers, json.loads(body)


class Ours:
    """Our service on a database, called in process. Links in its answers have no prefix, as upstream's."""

    def __init__(self, database_url: str, directory: Path) -> None:
        database = {"placement": database_url}
        self._plane = InProcessPlane(directory / "ours", "placement", clock=SystemClock(), database=database)
        self._transport = InProcessTransport(self._plane.alone("placement"))

    def get(self, path: str):
        answer = self._transport.send("GET", path, HEADERS)
        return answer.status, answer.headers, json.loads(answer.body)

    def put(self, path: str, body: dict) -> int:
        headers = HEADERS | {"content-type": "application/json"}
        return self._transport.send("PUT", path, headers, json.dumps(body).encode()).status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._plane.stop()


def import_(source: str, target: str, directory: Path, *options: str):
    """Runs the command; the result has its output and exit status."""
    directory.mkdir(exist_ok=True)
    config = directory / "moorage.conf"
    config.write_text(f"[plane]\nservices = placement\nstate_path = .\n[database]\nplacement = {target}\n")
    return CliRunner().invoke(
        cli, ["placement", "import", source, "--config", str(config), *options], catch_exceptions=False
    )


def paths(side: Upstream) -> Iterator[str]:
    """The paths of all GETs about the objects that `side` has."""
    yield from ("/resource_providers", "/resource_classes", "/traits", "/traits?associated=true")
    names = set(side.get("/traits")[2]["traits"])
    names |= {one["name"] for one in side.get("/resource_classes")[2]["resource_classes"]}
    for query in CANDIDATES:
        if set(re.findall(r"CUSTOM_\w+", query)) <= names:
            yield f"/allocation_candidates?{query}"
    consumers: set[str] = set()
    projects: set[tuple[str, str]] = set()
    for provider in side.get("/resource_providers")[2]["resource_providers"]:
        uuid = provider["uuid"]
        yield f"/resource_providers/{uuid}"
        yield from (
            f"/resource_providers/{uuid}/{what}"
            for what in ("inventories", "usages", "traits", "aggregates", "allocations")
        )
        consumers |= side.get(f"/resource_providers/{uuid}/allocations")[2]["allocations"].keys()
    for consumer in sorted(consumers):
        yield f"/allocations/{consumer}"
        body = side.get(f"/allocations/{consumer}")[2]
        projects.add((body["project_id"], body["user_id"]))
    for project, user in sorted(projects):
        yield f"/usages?project_id={project}"
        yield f"/usages?project_id={project}&user_id={user}"


def in_any_order(answer):
    """The answer with sorted lists, because upstream's order is that of Python's sets."""
    if isinstance(answer, dict):
        return {name: in_any_order(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return sorted((in_any_order(one) for one in answer), key=lambda one: json.dumps(one, sort_keys=True))
    return answer


def differing(upstream: Upstream, ours: Ours) -> list[str]:
    """The paths whose answers differ, in the body or in the time of the last change."""
    found = []
    for path in paths(upstream):
        status, headers, body = upstream.get(path)
        our_status, our_headers, our_body = ours.get(path)
        if "GroupingError" in str(body):
            continue  # the real Placement 16.0.0 on PostgreSQL answers every GET /usages like this from 1.38 on
        same = status == our_status and (status >= 400 or in_any_order(body) == in_any_order(our_body))
        # For empty results and sums, the time of the last change is that of the request.
        last = path.rpartition("/")[2]
        if path.startswith("/allocations/") or (last in ("inventories", "traits", "allocations") and body[last]):
            same = same and headers.get("last-modified") == our_headers.get("last-modified")
        if not same:
            found.append(path)
    return found


def create_history(world: World, api: Api) -> None:
    """Creates, uses, changes and deletes objects as clients of all versions do."""
    for build_part in (numa_network, granular, multi_segment_network):
        build_part(world)
    env = world.env
    host = env["CN2_UUID"]
    # consumers with a type, another one, and none; some without an owner
    for kind in ("INSTANCE", "MIGRATION"):
        body = {
            "allocations": {host: {"resources": {"VCPU": 1}}, env["SS1_UUID"]: {"resources": {"DISK_GB": 5}}},
            "project_id": "alpha", "user_id": "ann", "consumer_generation": None, "consumer_type": kind,
        }  # fmt: skip
        api("PUT", f"/allocations/{world.uuid()}", "1.38", body)
    api("PUT", f"/allocations/{world.uuid()}", "1.0",
        {"allocations": [{"resource_provider": {"uuid": host}, "resources": {"VCPU": 1}}]})  # fmt: skip
    consumer = world.use(host, {"VCPU": 1}, project="beta")
    body = {"allocations": {host: {"resources": {"VCPU": 1}}}, "project_id": "beta", "user_id": "bob"}
    api("PUT", f"/allocations/{consumer}", "1.12", body)
    gone = world.use(host, {"VCPU": 1}, project="gamma", user="gus")
    api("DELETE", f"/allocations/{gone}", "1.12")
    # custom names, used and unused
    world.inventory(host, "CUSTOM_GOLD", 7, allocation_ratio=1.1, reserved=1, min_unit=1, step_size=2)
    api("PUT", "/resource_classes/CUSTOM_UNUSED", "1.7")
    api("PUT", "/traits/CUSTOM_UNUSED", "1.6")
    # a host whose inventory was reduced below its usage, one that was moved, an aggregate without members
    inventories = api("GET", f"/resource_providers/{host}/inventories", "1.39")
    inventories["inventories"]["VCPU"] |= {"total": 2, "max_unit": 2}
    api("PUT", f"/resource_providers/{host}/inventories", "1.39", inventories)
    moved = world.provider("moved")
    child = world.provider("child", parent=moved)
    api("PUT", f"/resource_providers/{moved}", "1.37", {"name": "moved", "parent_provider_uuid": env["CN1_UUID"]})
    world.aggregates(child, ["LEFT"])
    world.aggregates(child, [])


@pytest.mark.parametrize("kind", DATABASES)
def test_an_imported_database_of_each_kind_gives_the_same_answers(kind, tmp_path):
    with temporary_database(kind) as source, temporary_database("sqlite") as target, upstream_server(source) as url:
        api = Api(url)
        create_history(World(api), api)
        rehearsal = import_(source, target, tmp_path, "--dry-run", "--json")
        assert rehearsal.exit_code == 0, rehearsal.output
        done = import_(source, target, tmp_path, "--json")
        assert done.exit_code == 0, done.output
        with Ours(target, tmp_path) as ours:
            assert differing(Upstream(url), ours) == []
    receipt = json.loads(done.output)
    assert receipt == json.loads(rehearsal.output) | {"dry_run": False}
    assert receipt["tables"]["consumers"] == {"source": 6, "taken": 6, "left_out": 0}
    assert {name: found["count"] for name, found in receipt["findings"].items()} == {
        "incomplete-owner": 1,
        "over-capacity": 1,
        "unused": 3,  # the aggregate, and the project and the user of deleted consumers
    }


def test_imported_objects_can_be_used_with_their_generations(tmp_path):
    """Generations continue with the next number, and used resources stay used."""
    with temporary_database("sqlite") as source, temporary_database("sqlite") as target:
        with upstream_server(source) as url:
            world = World(Api(url))
            host = world.provider("host")
            world.inventory(host, "VCPU", 8)
            consumer = world.use(host, {"VCPU": 6})
        assert import_(source, target, tmp_path).exit_code == 0
        with Ours(target, tmp_path) as ours:
            held = ours.get(f"/allocations/{consumer}")[2] | {"consumer_type": "INSTANCE"}
            other = held | {"consumer_generation": None}
            assert held["consumer_generation"] == 1
            assert ours.put(f"/allocations/{world.uuid()}", other) == 409, "6 of 8 are in use"
            assert ours.put(f"/allocations/{consumer}", other) == 409, "it is not new"
            held["allocations"][host]["resources"]["VCPU"] = 2
            assert ours.put(f"/allocations/{consumer}", held) == 204
            assert ours.put(f"/allocations/{world.uuid()}", other) == 204
            assert ours.get(f"/resource_providers/{host}/usages")[2] == {
                "resource_provider_generation": 4, "usages": {"VCPU": 4}
            }  # fmt: skip


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_an_import_into_each_kind_of_our_databases_gives_the_same_answers(kind, tmp_path):
    with temporary_database("sqlite") as source, temporary_database(kind) as target, upstream_server(source) as url:
        api = Api(url)
        create_history(World(api), api)
        assert import_(source, target, tmp_path).exit_code == 0
        with Ours(target, tmp_path) as ours:
            assert differing(Upstream(url), ours) == []


def test_an_import_of_each_fixture_of_the_suite_gives_the_same_answers(tmp_path):
    with temporary_database("sqlite") as source, upstream_server(source) as url:
        for name, build_world in WORLDS.items():
            api = Api(url)
            empty(api)
            build_world(World(api))
            with temporary_database("sqlite") as target:
                done = import_(source, target, tmp_path / name)
                assert done.exit_code == 0, done.output
                with Ours(target, tmp_path / name) as ours:
                    assert (name, differing(Upstream(url), ours)) == (name, [])
