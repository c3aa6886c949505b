"""No integer, date or text in any field, parameter or path of any route causes a 5xx.

Routes and schemas are the services' own tables, so a new route is included without a change here, unless the smallest
body of its schema is refused. Then it needs an example in `EXAMPLES`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from moorage.accelerator.api.routes import API as ACCELERATOR
from moorage.compute.api.routes import API as COMPUTE
from moorage.images.routes import API as IMAGE
from moorage.images.schemas import IMAGE as IMAGE_SCHEMA
from moorage.placement.api.routes import API as PLACEMENT
from moorage.reservation.api.routes import API as RESERVATION
from moorage.wire.app import ServiceApi
from moorage.wire.body import VersionedSchema
from moorage.wire.http import Route
from tests.migrated import schema_of
from tests.plane import SERVICE, InProcessPlane
from tests.servers import temporary_database
from tests.store.conftest import kind, on_every_database  # noqa: F401 - pytest uses fixtures by name
from tests.system.planes import PlaneClients
from tests.wire.hostile import DATES, DIGITS, INTEGERS, TEXTS, asked_for, bodies, parameters, schema_at, smallest

APIS: Mapping[str, ServiceApi[Any]] = {
    "placement": PLACEMENT,
    "compute": COMPUTE,
    "accelerator": ACCELERATOR,
    "reservation": RESERVATION,
    "image": IMAGE,
}
SERVICES = ("placement", "compute", "accelerator", "reservation")

CONSUMER = "00000000-0000-4000-8000-000000000001"
PATCHES = "application/openstack-images-v2.1-json-patch"
NOBODY = "00000000-0000-4000-8000-00000000000f"


IN_PATHS = (*DIGITS[:5], DATES[0], "..", "x" * 300)
#: Parameters that handlers read all at once, so that they are not recorded one by one.
OTHERS = {
    "/v2/images": {"limit", "marker", "size_min", "size_max", "created_at", "updated_at", "sort", "sort_key"},
}

#: Values that are also sent some thousand times for one parameter, if it accepts one of them.
REPEATED = ("id", "asc", "VCPU:1", NOBODY)


class World:
    """A plane with one object of each kind."""

    def __init__(self, plane: InProcessPlane) -> None:
        self.plane = plane
        self.answers: Counter[int] = Counter()
        self.troubles: list[str] = []
        clients = PlaneClients(plane.transport, SERVICE, plane.clock)
        plane.settle()
        self.shelf = clients.placement.request("POST", "/resource_providers", json={"name": "shelf"})["uuid"]
        offered = {"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 8}}}
        clients.placement.request("PUT", f"/resource_providers/{self.shelf}/inventories", json=offered)
        held = {"allocations": {self.shelf: {"resources": {"DISK_GB": 3}}}, "consumer_generation": None}
        owner = {"project_id": "red", "user_id": "alice", "consumer_type": "INSTANCE"}
        clients.placement.request("PUT", f"/allocations/{CONSUMER}", json=held | owner)
        clients.placement.request("PUT", "/resource_classes/CUSTOM_WHEAT")
        clients.placement.request("PUT", "/traits/CUSTOM_GOLD")
        clients.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
        start = plane.clock.now() + timedelta(hours=1)
        self.lease = clients.create_lease(start=start, end=start + timedelta(hours=1), amount=1)
        self.flavor = clients.create_flavor("small")
        self.image = clients.create_image()
        self.server = clients.create_server(flavor="small", image=self.image)
        plane.settle()
        profile = [{"name": "fp1", "groups": [{"resources:FPGA": "1"}]}]
        clients.accelerator.request("POST", "/device_profiles", json=profile)
        self.request = clients.accelerator.request(
            "POST", "/accelerator_requests", json={"device_profile_name": "fp1"}
        )["arqs"][0]["uuid"]
        self.reservation = clients.reservation_id(self.lease)
        clients.compute.request("POST", "/os-aggregates", json={"aggregate": {"name": "rack"}})
        self.a_service = clients.compute.get("/os-services")["services"][0]["id"]
        self.device = clients.accelerator.get("/devices")["devices"][0]["uuid"]
        self.deployable = clients.accelerator.get("/deployables")["deployables"][0]["uuid"]
        self.reported = {
            f"PUT /agent/v1/hosts/{{host}}/{name}": [
                next(json.loads(one.body) for one in seen if one.path.endswith(name))
            ]
            for name in ("devices",)
            for seen in [plane.ways["accelerator"].requests]
        }

    def ask(self, service: str, route: Route[Any], path: str, what: str, body: bytes | None = None) -> None:
        versions = APIS[service].versions
        sent = {"x-auth-token": "root:admin", "x-roles": "admin,service", "accept": "application/json"}
        if body is not None:
            sent["content-type"] = PATCHES if route.reads == "stream" else "application/json"
        if versions is not None:
            sent["openstack-api-version"] = f"{versions.service_type} {route.until or versions.maximum}"
        answer = self.plane.transport().send(route.method, f"/{service}{path}", sent, body)
        self.answers[answer.status] += 1
        if answer.status >= 500 and answer.status != 501:
            self.troubles.append(f"{service} {route.method} {path[:120]} {what}: {answer.status} {answer.body[:160]!r}")

    def path(self, service: str, route: Route[Any], **others: str) -> str:
        """The path of a route with the ids of existing objects, except for the variables in `others`."""
        ids = self.ids() | {f"{service} {name}": value for name, value in others.items()}

        def filled(found: re.Match[str]) -> str:
            name = found[1]
            return quote(ids.get(f"{service} {name}", ids.get(name, NOBODY)), safe="")

        return re.sub(r"\{(\w+)\}", filled, route.path)

    def examples(self) -> Mapping[str, list[Any]]:
        """Bodies by route, where the smallest document of the schema does not suffice."""
        place = {"allocations": {self.shelf: {"resources": {"DISK_GB": 1, "CUSTOM_WHEAT": 1}}}, "project_id": "red"}
        place |= {"user_id": "alice", "consumer_generation": None, "consumer_type": "INSTANCE"}
        inventory = {"total": 8, "reserved": 0, "min_unit": 1, "max_unit": 8, "step_size": 1, "allocation_ratio": 1.0}
        inventories = {"resource_provider_generation": 1, "inventories": {"DISK_GB": inventory}}
        server = {"name": "vm", "imageRef": self.image, "flavorRef": "small", "networks": "none"}
        server |= {"min_count": 1, "max_count": 1, "metadata": {"a": "b"}}
        dates = {"name": "lease", "start_date": "2026-03-05 10:00", "end_date": "2026-03-05 12:00"}
        wishes = {
            "virtual:instance": {"vcpus": 1, "memory_mb": 1, "disk_gb": 1, "affinity": None, "resource_properties": ""},
            "flavor:instance": {"flavor_id": "small", "affinity": None, "resource_properties": ""},
            "resource:any": {"resources": {"VCPU": 1, "CUSTOM_WHEAT": 1}, "traits": {"CUSTOM_GOLD": "required"}},
            "physical:host": {"min": 1, "max": 1, "hypervisor_properties": "", "resource_properties": ""},
            "virtual:floatingip": {"network_id": "n", "required_floatingips": []},
        }
        reservations = [
            {"resource_type": name} | wish | ({} if name == "physical:host" else {"amount": 1})
            for name, wish in wishes.items()
        ]
        leases = [dates | {"reservations": [one]} for one in reservations]
        slots = [{"duration_minutes": 60, "reservations": [one]} for one in reservations]
        series = [{**lease, "every_days": 1, "count": 2} for lease in leases[:1]]
        bind = [{"op": "add", "path": "/hostname", "value": "compute-1"}]
        bind += [{"op": "add", "path": f"/{name}", "value": NOBODY} for name in ("device_rp_uuid", "instance_uuid")]
        tables = {
            "POST /resource_providers/{uuid}/inventories": [
                {"resource_class": "CUSTOM_WHEAT", **inventory, "resource_provider_generation": 2}
            ],
            "PUT /resource_providers/{uuid}/inventories": [inventories],
            "PUT /resource_providers/{uuid}/inventories/{resource_class}": [
                {**inventory, "resource_provider_generation": 2}
            ],
            "POST /resource_classes": [{"name": "CUSTOM_RYE"}],
            "PUT /resource_classes/{name}": [{"name": "CUSTOM_RYE"}],
            "PUT /allocations/{consumer_uuid}": [place],
            "POST /allocations": [{NOBODY: place}],
            "POST /reshaper": [{"inventories": {self.shelf: inventories}, "allocations": {NOBODY: place}}],
            "POST /v2.1/flavors": [
                {"flavor": {"name": "f", "id": "f", "ram": 1, "vcpus": 1, "disk": 1, "swap": 1, "rxtx_factor": 1.0}}
            ],
            "POST /v2.1/flavors/{flavor_id}/os-extra_specs": [
                {"extra_specs": {"resources:CUSTOM_WHEAT": "1", "hw:numa_nodes": "1", "accel:device_profile": "fp1"}}
            ],
            "PUT /v2.1/flavors/{flavor_id}/os-extra_specs/{key}": [{"resources:VCPU": "1"}],
            "POST /v2.1/flavors/{flavor_id}/action": [{"addTenantAccess": {"tenant": "red"}}],
            "POST /v2.1/servers": [
                {"server": server, "os:scheduler_hints": {"same_host": [self.server], "group": NOBODY}}
            ],
            "POST /v2.1/servers/{server_id}/action": [
                {"os-getConsoleOutput": {"length": 1}},
                {"createBackup": {"name": "b", "backup_type": "daily", "rotation": 1}},
                {"resize": {"flavorRef": "small"}},
                {"rebuild": {"imageRef": self.image}},
                {"evacuate": {"host": "compute-1"}},
                {"migrate": {"host": "compute-1"}},
                {"lock": {"locked_reason": "x"}},
            ],
            "PUT /v2.1/servers/{server_id}/metadata/{key}": [{"meta": {"a": "b"}}],
            "PUT /v2.1/os-aggregates/{aggregate_id}": [{"aggregate": {"name": "rack"}}],
            "POST /v2.1/os-aggregates/{aggregate_id}/action": [
                {"add_host": {"host": "compute-1"}},
                {"set_metadata": {"metadata": {"a": "1"}}},
            ],
            "POST /v2.1/os-server-groups": [
                {"server_group": {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 1}}}
            ],
            "PUT /agent/v1/hosts/{host}/servers/{server_id}/ports/{port_id}": [
                {"address": "0000:c1:00.2", "physical_network": "fast"}
            ],
            "PUT /agent/v1/hosts/{host}/domains": [{"domains": {NOBODY: {"mark": "1", "power": "running"}}}],
            "PATCH /v2/accelerator_requests": [{self.request: bind}],
            "PATCH /v2/accelerator_requests/{uuid}": [{self.request: bind}],
            "POST /v2/device_profiles": [
                [{"name": "fp2", "groups": [{"resources:FPGA": 1, "trait:CUSTOM_GOLD": "required"}]}]
            ],
            "PATCH /v2/deployables/{uuid}/program": [
                [{"path": "/program", "op": "replace", "wait_s": 0, "value": [{"image_uuid": self.image}]}]
            ],
            "POST /v2/attributes": [
                {"deployable_id": 1, "key": "a", "value": "b"},
                {"attribute": {"deployable_id": "1", "key": "a", "value": "b"}},
            ],
            "PUT /agent/v1/hosts/{host}/history": [{"records": []}],
            "POST /v1/leases": leases,
            "POST /v1/leases/dry-run": leases[:1],
            "POST /v1/leases/series": series,
            "POST /v1/leases/series/dry-run": series,
            "POST /v1/maintenance": [dates | {"hosts": ["compute-1"]}],
            "POST /v1/maintenance/dry-run": [dates | {"hosts": ["compute-1"]}],
            "PUT /v1/leases/{lease_id}": [{"end_date": "2026-03-05 12:00"}],
            "POST /v1/leases/{lease_id}/dry-run": [{"reservations": [{"id": self.reservation, "amount": 1}]}],
            "POST /v1/offers": slots,
            "POST /v1/holds": slots[:1],
            "PUT /v1/limits/{project_id}": [{"limits": {"now": {"VCPU": 1}, "hours": {"CUSTOM_WHEAT": 1}}}],
            "POST /v1/os-hosts": [{"name": "compute-1", "rack": "9"}],
            "PUT /v1/os-hosts/{host_id}": [{"rack": "9", "name": "compute-1"}],
            "POST /v2/images": [{"name": "i", "min_ram": 1, "tags": ["t"], "visibility": "private", "property": "x"}],
        }
        return tables | self.reported

    def ids(self) -> Mapping[str, str]:
        """Existing ids by the name of a path's variable."""
        return {
            "uuid": self.shelf, "resource_class": "DISK_GB", "consumer_uuid": CONSUMER, "flavor_id": "small",
            "server_id": self.server, "hypervisor_id": "1", "host": "compute-1", "project_id": "red", "lease_id": self.lease,
            "host_id": "1", "image_id": self.image, "name": "CUSTOM_WHEAT", "key": "1", "aggregate_id": "1",
            "service_id": self.a_service, "accelerator uuid": self.device, "accelerator name": "x", "name_or_uuid": "fp1", "request_id": NOBODY, "group_id": NOBODY,
        }  # fmt: skip


@pytest.fixture
def world(tmp_path, kind):  # noqa: F811 - pytest passes the imported fixture
    with ExitStack() as stack:
        urls = {name: stack.enter_context(temporary_database(kind, schema_of(name))) for name in SERVICES}
        services = "image,agent," + ",".join(SERVICES)
        yield World(stack.enter_context(InProcessPlane(tmp_path, services, database=urls, agent={"host": "compute-1"})))


@on_every_database
def test_no_value_of_a_field_is_answered_with_5xx(world):
    examples = world.examples()
    for service, route in routes():
        schema = schema_at(route, APIS[service])
        if schema is None:
            continue
        for example in examples.get(f"{route.method} {route.path}") or [smallest(schema.document)]:
            schema.validate(example, lambda error, route=route: f"{route.path} needs another example: {error.message}")
            for what, body in bodies(schema.document, example):
                world.ask(service, route, world.path(service, route), what, json.dumps(body).encode())
    assert world.troubles == []
    assert world.answers[400] > 1000


@on_every_database
def test_no_value_of_a_parameter_is_answered_with_5xx(world):
    for service, route in routes():
        if route.method != "GET":
            continue
        with asked_for() as names:
            world.ask(service, route, world.path(service, route), "")
        path = world.path(service, route)
        names |= OTHERS.get(route.path, set()) | published(service, route)
        for name, value in parameters(names):
            world.ask(service, route, f"{path}?{urlencode({name: value})}", "")
        for name in names:
            for value in REPEATED:
                world.ask(service, route, f"{path}?" + "&".join([urlencode({name: value})] * 3000), "")
    assert world.troubles == []


@on_every_database
def test_no_value_in_a_path_is_answered_with_5xx(world):
    for service, route in routes():
        for name in re.findall(r"\{(\w+)\}", route.path):
            for value in IN_PATHS:
                if route.method in ("GET", "DELETE"):
                    world.ask(service, route, world.path(service, route, **{name: value}), "")
    assert world.troubles == []


def test_no_operation_on_an_image_is_answered_with_5xx(tmp_path):
    """JSON patches have no schema: operations, paths and values are hostile in turn."""
    texts = [*TEXTS, *INTEGERS, None, True, [], {}, ["x"], [[]], {"a": {"b": []}}, "", "\0", "\ud800", [{"op": "add"}]]
    names = [
        *IMAGE_SCHEMA.document["properties"],
        "colour",
        "os_hash",
        "x" * 300,
        "\0",
        "\ud800",
        "a~1b",
        "a~2",
        "~",
        "..",
    ]
    paths = [f"/{name}" for name in names] + ["", "/", "//", "/tags/0", "name", "/name/", *texts]
    good = {"op": "add", "path": "/colour", "value": "red"}
    patches = [[{**good, "path": path, "op": op}] for path in paths for op in ("add", "replace", "remove")]
    patches += [[{**good, "path": f"/{name}", "value": value}] for name in names for value in texts]
    patches += [[{**good, "op": op}] for op in texts] + [[one] for one in texts] + texts
    patches += [[{name: good[name] for name in good if name != gone}] for gone in good] + [[good] * 5000]
    bodies = [json.dumps(patch).encode() for patch in patches]
    bodies += [
        b"",
        b"\xff",
        b"[" * 100_000,
        b'[{"op": "add", "path": "/colour", "value": NaN}]',
        b'[{"a": 1' + b"0" * 5000,
    ]
    answers: Counter[int] = Counter()
    troubles = []
    headers = {"x-auth-token": "root:admin", "x-roles": "admin", "accept": "application/json"}
    with InProcessPlane(tmp_path, "image") as plane:
        made = plane.client("image").request("POST", "/v2/images", json={"name": "i"})["id"]
        for body in bodies:
            answer = plane.transport().send(
                "PATCH", f"/image/v2/images/{made}", headers | {"content-type": PATCHES}, body
            )
            answers[answer.status] += 1
            if answer.status >= 500:
                troubles.append(f"{body[:120]!r}: {answer.status}")
        assert plane.transport().send("GET", f"/image/v2/images/{made}", headers).status == 200
        assert plane.transport().send("GET", "/image/v2/images", headers).status == 200
    assert troubles == []
    assert answers.keys() >= {200, 400, 403, 409}


@pytest.mark.parametrize("host", ["[::1", "]", "a/b", "a b", "[fe80::1%25en0]", "x" * 300, "a:b", "a:999999", "a@b"])
def test_an_invalid_host_header_is_400(tmp_path, host):
    """Links in answers contain the host, and parsing these links once caused a 500."""
    with InProcessPlane(tmp_path, "placement,image,compute") as plane:
        for path in ("/placement/resource_providers", "/compute/v2.1/flavors"):
            headers = {"host": host, "x-auth-token": "root:admin", "x-roles": "admin"}
            assert plane.transport().send("GET", path, headers).status == 400, path


@pytest.mark.parametrize("host", ["[::1]:8778", "localhost", "10.0.0.1:80", "cloud_1.example:"])
def test_a_valid_host_header_is_used_in_links(tmp_path, host):
    with InProcessPlane(tmp_path, "placement,image,compute") as plane:
        headers = {"host": host, "x-auth-token": "root:admin", "x-roles": "admin"}
        assert f"http://{host}/compute/".encode() in plane.transport().send("GET", "/compute/", headers).body


def published(service: str, route: Route[Any]) -> set[str]:
    """The query parameters that a schema declares; none without a schema."""
    same = (row for row in APIS[service].routes if (row.method, row.path) == (route.method, route.path))
    query = next((row.doc.query for row in same if row.doc), None)
    schema = query.for_version(None) if isinstance(query, VersionedSchema) else query
    return set(schema.document.get("properties", {})) if schema else set()


def routes() -> Iterator[tuple[str, Route[Any]]]:
    """All routes except those with the suffix ``.json``, which have the same handlers."""
    return ((service, route) for service, api in APIS.items() for route in api.routes if ".json" not in route.path)
