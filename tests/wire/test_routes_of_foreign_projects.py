"""Every route of every service, called by members of another project: the answers reveal nothing of red's objects.

alice creates objects of each kind in project red, with `MARK` in each name, description and value. Then bob of project
blue sends a request to each route of the route tables, as reader, member and manager: with red's ids in the path if it
takes one, and otherwise with red's ids, names, project and user in each query parameter. `World.naming_red` has the
bodies and queries that name red's objects and are refused. `World.of_red` and `World.of_operators` name the owner of
each part of a path; a route with another part fails until one of them has it.

Not here: which role may use which route (`test_routes_by_roles`), the agents of hosts (`test_hosts_apart`), and hints
that name others' servers (`compute.test_hints_of_others`).
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import pytest

from moorage.accelerator.api.routes import API as ACCELERATOR
from moorage.compute.api.handlers.server_actions import ACTIONS
from moorage.compute.api.routes import API as COMPUTE
from moorage.compute.api.schemas.actions import ARGUMENTS
from moorage.compute.api.schemas.queries import SERVERS
from moorage.core.ids import SeededIds
from moorage.identity.api.routes import API as IDENTITY
from moorage.identity.client import PasswordTokens
from moorage.identity.tokens.passwords import hash_password
from moorage.images.routes import API as IMAGE
from moorage.placement.api.routes import API as PLACEMENT
from moorage.reservation.api.routes import API as RESERVATION
from moorage.wire.app import ServiceApi
from moorage.wire.http import Route
from moorage.wire.microversion import Version
from tests.images import put_image
from tests.plane import InProcessPlane, Seen
from tests.wire.hostile import asked_for, schema_at, smallest

SERVICES: Mapping[str, ServiceApi[Any]] = {
    "identity": IDENTITY,
    "placement": PLACEMENT,
    "image": IMAGE,
    "compute": COMPUTE,
    "accelerator": ACCELERATOR,
    "reservation": RESERVATION,
}
GPU = "CUSTOM_ACCELERATOR_GPU"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq58IlCWeEZskehFJsXerpeqXANAIKO2SOIJWaMJ2VT"
INSTANCE = {
    "resource_type": "virtual:instance",
    "vcpus": 1,
    "memory_mb": 64,
    "disk_gb": 1,
    "amount": 1,
    "affinity": "None",
    "resource_properties": "",
}

RED, ALICE, BLUE = "project-of-alice", "alice-of-red", "blue"
ROLES = ("reader", "member", "manager")
#: In each name, description and value that alice creates, followed by the kind of the object.
MARK = "secret-of-red"
#: Red's limits: numbers that occur nowhere else.
QUOTA, LIMIT = 47114711, 47124712
RED_NAME, ALICE_NAME, PASSWORD = f"{MARK}-project", f"{MARK}-user", "of-all-of-them"
#: Users in the format of `TestTokens`.
ALICE_OF_RED, BOB_OF_BLUE, ROOT = f"{ALICE}:{RED}", f"bob:{BLUE}", "root:admin"
PATCH = "application/openstack-images-v2.1-json-patch"
#: Rules that allow every token, for functions that do not exist: 410 and 501.
NOTHING_THERE = {"os_compute_api:moorage:absent"}

#: Routes that answer red's ids with another status than 403 and 404, and why that reveals nothing.
OTHERWISE = {
    "identity POST /v3/users/{user_id}/password": (401, "the password in the body says who asks"),
    "compute GET /v2.1/os-quota-sets/{project_id}/defaults": (
        200,
        "the same for every project id, known or not",
    ),
}

#: Routes that do not find red's object for alice or an operator either.
FINDS_NOTHING = {
    "reservation GET /v1/calendar-feeds/{feed_id}/leases.ics": "only with the feed's secret: test_calendar_feeds",
    "compute GET /v2.1/servers/{server_id}/ips/{label}": "there is no network service",
    "compute GET /v2.1/servers/{server_id}/os-interface/{key}": "there is no network service",
    "compute GET /v2.1/servers/{server_id}/os-volume_attachments/{key}": "there is no volume service",
    "compute GET /v2.1/servers/{server_id}/shares/{key}": "there is no service of shares",
    "compute GET /v2.1/servers/{server_id}/migrations/{migration_id}": "only of moves that go on",
    "compute GET /agent/v1/hosts/{host}/images/{image_id}": "agents only: test_hosts_apart",
    "compute GET /agent/v1/hosts/{host}/images/{image_id}/file": "agents only: test_hosts_apart",
    "accelerator GET /agent/v1/hosts/{host}/images/{image_id}": "agents only: test_hosts_apart",
    "accelerator GET /agent/v1/hosts/{host}/images/{image_id}/file": "agents only: test_hosts_apart",
}

#: Sent as parameters of each list, in addition to those that its handler reads.
FILTERS = frozenset(
    {
        "all_projects", "all_tenants", "deleted", "id", "instance", "marker", "member_status", "name", "owner",
        "project_id", "tag", "tags", "tenant_id", "user_id", "uuid", "visibility",
    }
)  # fmt: skip
#: Parameters that have an effect only together.
TOGETHER = (
    f"all_tenants=1&project_id={RED}",
    "all_tenants=1&deleted=1",
    f"owner={RED}&visibility=all",
    f"owner={RED}&visibility=shared&member_status=all",
    f"owner={RED}&visibility=private",
    "visibility=all",
    "visibility=shared",
)
#: The parameters for the next page of a list: all of red's ids are tried for them.
MARKERS = frozenset({"after", "marker"})
#: The lists that show alice her objects, which prove that the objects hidden from bob exist.
TELL_ALICE = {
    "accelerator GET /moorage/v1/accelerator_requests",
    "accelerator GET /v2/accelerator_requests",
    "compute GET /v2.1/flavors",
    "compute GET /v2.1/flavors/detail",
    "compute GET /v2.1/images",
    "compute GET /v2.1/images/detail",
    "compute GET /v2.1/limits",
    "compute GET /v2.1/os-keypairs",
    "compute GET /v2.1/os-server-groups",
    "compute GET /v2.1/servers",
    "compute GET /v2.1/servers/detail",
    "identity GET /v3/auth/projects",
    "image GET /v2/images",
    "reservation GET /v1/calendar",
    "reservation GET /v1/calendar.ics",
    "reservation GET /v1/calendar-feeds",
    "reservation GET /v1/deleted-leases",
    "reservation GET /v1/holds",
    "reservation GET /v1/leases",
    "reservation GET /v1/leases.json",
    "reservation GET /v1/limits",
    "reservation GET /v1/user-limits",
}


@dataclass(frozen=True)
class Ask:
    """A request without its sender."""

    service: str
    route: Route[Any]
    path: str  #: below the service
    body: object = None
    version: Version | None = None  #: None: the newest

    @property
    def name(self) -> str:
        """The name of the route in the tables of this module."""
        action = f" {next(iter(self.body))}" if self.route.path.endswith("{server_id}/action") else ""
        return f"{self.service} {self.route.method} {self.route.path}{action}"


class World:
    def __init__(self, directory: Path) -> None:
        self.identity = self._identity(directory)
        self.tokens = {role: self._log_in(f"bob-{role}", BLUE) for role in (*ROLES, "admin")}
        self.alices_token = self._log_in(ALICE_NAME, RED_NAME)
        self.friends, self.credential = self._alices_accounts()
        self.plane = InProcessPlane(directory / "plane", ",".join(SERVICES.keys() - {"identity"}))
        for host in ("compute-1", "compute-2", "compute-3"):
            self.plane.beside(host, "agent", agent={"host": host})
        self.plane.settle()
        self._operators()
        self._alices()
        body = {"name": "own", "flavorRef": "small", "imageRef": self.public_image, "networks": "none"}
        made = self._made("POST", "/compute/v2.1/servers", {"server": body}, BOB_OF_BLUE, "member")
        self.bobs_server = made["server"]["id"]
        self.plane.settle()
        self.secrets = self._secrets()
        self.examples = self._examples()

    def _operators(self) -> None:
        """Objects that belong to nobody, or to red by an operator's decision."""
        self.public_image = put_image(self.plane.client("image"), self.plane.ids.uuid(), owner="operators")
        for name, is_public in (("small", True), (f"{MARK}-flavor", False)):
            flavor = {"name": name, "id": name, "vcpus": 1, "ram": 64, "disk": 1}
            flavor["os-flavor-access:is_public"] = is_public
            self.root("POST", "/compute/v2.1/flavors", {"flavor": flavor})
        path = f"/compute/v2.1/flavors/{MARK}-flavor"
        self.root("POST", f"{path}/action", {"addTenantAccess": {"tenant": RED}})
        self.root("POST", f"{path}/os-extra_specs", {"extra_specs": {"note": f"{MARK}-spec"}})
        self.root("POST", "/accelerator/v2/device_profiles", [{"name": "gpu", "groups": [{f"resources:{GPU}": "1"}]}])
        flavor = {"name": "with-gpu", "id": "with-gpu", "vcpus": 1, "ram": 64, "disk": 1}
        self.root("POST", "/compute/v2.1/flavors", {"flavor": flavor})
        path = "/compute/v2.1/flavors/with-gpu/os-extra_specs"
        self.root("POST", path, {"extra_specs": {"accel:device_profile": "gpu"}})
        self.root("PUT", f"/compute/v2.1/os-quota-sets/{RED}", {"quota_set": {"cores": QUOTA}})
        self.root("PUT", f"/reservation/v1/limits/{RED}", {"limits": {"now": {"VCPU": LIMIT}}})
        self.root("PUT", f"/reservation/v1/user-limits/{ALICE}", {"limits": {"now": {"VCPU": LIMIT}}})
        self.root("POST", "/reservation/v1/os-hosts", {"name": "compute-3"})

    def _alices(self) -> None:
        self.image = self._image("private")
        self.shared_image = self._image("shared")
        self.alice("POST", f"/image/v2/images/{self.shared_image}/members", {"member": f"{MARK}-friends"})
        self.key = f"{MARK}-key"
        self.alice("POST", "/compute/v2.1/os-keypairs", {"keypair": {"name": self.key, "public_key": PUBLIC_KEY}})
        group = {"name": f"{MARK}-group", "policy": "soft-anti-affinity"}
        self.group = self.alice("POST", "/compute/v2.1/os-server-groups", {"server_group": group})["server_group"]["id"]
        self.server = self._server("server", f"{MARK}-flavor")
        self.server_with_gpu = self._server("gpu-server", "with-gpu")
        self.plane.settle()
        for server in (self.server, self.server_with_gpu):
            shown = self.root("GET", f"/compute/v2.1/servers/{server}")["server"]
            assert shown["status"] == "ACTIVE", shown
        self._act({"createImage": {"name": f"{MARK}-snapshot", "metadata": {"note": f"{MARK}-snapshot-note"}}})
        self.root("POST", f"/compute/v2.1/servers/{self.server}/action", {"migrate": None})
        self.plane.settle()
        self._act({"confirmResize": None})
        self.plane.settle()
        self._act({"lock": {"locked_reason": f"{MARK}-lock"}})
        actions = self.alice("GET", f"/compute/v2.1/servers/{self.server}/os-instance-actions")["instanceActions"]
        self.action = actions[-1]["request_id"]
        (migration,) = self.root("GET", f"/compute/v2.1/os-migrations?instance_uuid={self.server}")["migrations"]
        self.migration = str(migration["id"])
        body = {"device_profile_name": "gpu"}
        self.request = self.alice("POST", "/accelerator/v2/accelerator_requests", body)["arqs"][0]["uuid"]
        (bound,) = self.root("GET", f"/accelerator/v2/accelerator_requests?instance={self.server_with_gpu}")["arqs"]
        assert bound["state"] == "Bound"
        self.bound_request = bound["uuid"]
        fields = {"hostname": "compute-1", "device_rp_uuid": self.group, "instance_uuid": self.server}
        self.binding = [{"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()]
        body = {"name": f"{MARK}-lease", **self._dates(minutes=1), "reservations": [INSTANCE]}
        self.lease = self.alice("POST", "/reservation/v1/leases", body)["lease"]["id"]
        self.plane.run_for(180)
        lease = self.alice("GET", f"/reservation/v1/leases/{self.lease}")["lease"]
        assert lease["status"] == "ACTIVE", lease
        self.reservation = lease["reservations"][0]["id"]
        body = {"name": f"{MARK}-deleted", **self._dates(minutes=30), "reservations": [INSTANCE]}
        self.deleted_lease = self.alice("POST", "/reservation/v1/leases", body)["lease"]["id"]
        self.alice("DELETE", f"/reservation/v1/leases/{self.deleted_lease}")
        self.feed = self.alice("POST", "/reservation/v1/calendar-feeds", {"name": f"{MARK}-feed"})["feed"]["id"]
        body = {"duration_minutes": 30, "reservations": [INSTANCE]}
        self.hold = self.alice("POST", "/reservation/v1/holds", body)["hold"]["id"]

    def _image(self, visibility: str) -> str:
        body = {"name": f"{MARK}-{visibility}", "visibility": visibility, "note": f"{MARK}-{visibility}-note"}
        body[f"{MARK}-server-key"] = f"{MARK}-value"  # as in the server's metadata
        body |= {"tags": [f"{MARK}-{visibility}-tag"], "disk_format": "raw", "container_format": "bare"}
        image: str = self.alice("POST", "/image/v2/images", body)["id"]
        path = f"/image/v2/images/{image}/file"
        headers = {"content-type": "application/octet-stream"}
        data = f"{MARK}-{visibility}-data".encode()
        who = {"who": ALICE_OF_RED, "roles": "member"}
        assert self.plane.send("PUT", path, data, headers=headers, **who).status == 204
        return image

    def _server(self, name: str, flavor: str) -> str:
        server = {"name": f"{MARK}-{name}", "flavorRef": flavor, "imageRef": self.image, "networks": "none"}
        server |= {"metadata": {f"{MARK}-{name}-key": f"{MARK}-{name}-value"}, "tags": [f"{MARK}-{name}-tag"]}
        server |= {"description": f"{MARK}-{name}-description", "key_name": self.key}
        body = {"server": server, "os:scheduler_hints": {"group": self.group}}
        made: str = self.alice("POST", "/compute/v2.1/servers", body)["server"]["id"]
        return made

    def _act(self, body: object) -> None:
        self.alice("POST", f"/compute/v2.1/servers/{self.server}/action", body)
        self.plane.settle()

    def _identity(self, directory: Path) -> InProcessPlane:
        """Identity reads its own tokens, so it has a separate plane."""
        password = hash_password(PASSWORD, 4)
        projects = {RED_NAME: {"id": RED, "description": f"{MARK}-project-description"}, BLUE: {"id": BLUE}}
        users = {ALICE_NAME: {"id": ALICE, "password": password, "roles": {RED_NAME: ["member"]}}}
        for role in (*ROLES, "admin"):
            users[f"bob-{role}"] = {"id": f"bob-{role}", "password": password, "roles": {BLUE: [role]}}
        self.users = directory / "users.yaml"
        self.users.write_text(json.dumps({"projects": projects, "users": users}))  # JSON is YAML
        self.users.chmod(0o600)
        return InProcessPlane(
            # Other ids than the plane's own.
            directory / "identity",
            "identity",
            ids=SeededIds(2),
            authenticator=None,
            identity={"users_file": str(self.users)},
        )

    def _alices_accounts(self) -> tuple[str, str]:
        """(a group of hers, an application credential of hers)"""

        def sent(token: str, method: str, path: str, body: object = None) -> Any:
            seen = self.identity.send(
                method, f"/identity{path}", body, who=None, roles=None, headers={"x-auth-token": token}
            )
            assert seen.status < 300, (method, path, seen)
            return seen.body

        root, group = self.tokens["admin"], {"name": f"{MARK}-group"}
        friends = sent(root, "POST", "/v3/groups", {"group": group})["group"]["id"]
        sent(root, "PUT", f"/v3/groups/{friends}/users/{ALICE}")
        sent(root, "PUT", f"/v3/projects/{RED}/groups/{friends}/roles/reader")
        credential = {"application_credential": {"name": f"{MARK}-credential"}}
        path = f"/v3/users/{ALICE}/application_credentials"
        made = sent(self.alices_token, "POST", path, credential)["application_credential"]
        return friends, made["id"]

    def _log_in(self, name: str, project: str) -> str:
        tokens = PasswordTokens(
            self.identity.transport("/identity"),
            username=name,
            password=PASSWORD,
            project=project,
            clock=self.identity.clock,
        )
        return tokens.headers()["x-auth-token"]

    def _examples(self) -> Mapping[str, object]:
        """{service and route: body}, for handlers that refuse the smallest body of their schema at once."""
        server = {"name": "another", "flavorRef": "small", "imageRef": self.public_image, "networks": "none"}
        slot = {"duration_minutes": 30, "reservations": [INSTANCE]}
        lease = {"name": "own", **self._dates(days=2), "reservations": [INSTANCE]}
        series = lease | {"every_days": 2, "count": 2}
        return {
            "image PATCH /v2/images/{image_id}": [{"op": "replace", "path": "/name", "value": "taken"}],
            "compute PUT /v2.1/servers/{server_id}/metadata/{key}": {"meta": {f"{MARK}-server-key": "taken"}},
            "compute POST /v2.1/servers": {"server": server},
            "compute POST /v2.1/os-keypairs": {"keypair": {"name": "own", "public_key": PUBLIC_KEY}},
            "compute POST /moorage/v1/explain-server": {"server": {"flavorRef": "small"}},
            "accelerator POST /v2/accelerator_requests": {"device_profile_name": "gpu"},
            "reservation POST /v1/leases": lease,
            "reservation POST /v1/leases/dry-run": lease,
            "reservation POST /v1/leases/series": series,
            "reservation POST /v1/leases/series/dry-run": series,
            "reservation POST /v1/offers": slot,
            "reservation POST /v1/holds": slot,
        }

    def _dates(self, **after: int) -> Mapping[str, str]:
        start = self.plane.clock.now() + timedelta(**after)
        return {"start_date": f"{start:%Y-%m-%d %H:%M}", "end_date": f"{start + timedelta(days=1):%Y-%m-%d %H:%M}"}

    def _secrets(self) -> frozenset[str]:
        own = (
            self.image, self.shared_image, self.group, self.server, self.server_with_gpu, self.action, self.request,
            self.bound_request, self.lease, self.reservation, self.hold, self.friends, self.credential,
        )  # fmt: skip
        return frozenset({RED, ALICE, MARK, str(QUOTA), str(LIMIT), *own})

    def alice(self, method: str, path: str, body: object = None) -> Any:
        return self._made(method, path, body, ALICE_OF_RED, "member")

    def root(self, method: str, path: str, body: object = None) -> Any:
        return self._made(method, path, body, ROOT, "admin")

    def _made(self, method: str, path: str, body: object, who: str, roles: str) -> Any:
        version = newest(path.split("/")[1])
        seen = self.plane.send(method, path, body, who=who, roles=roles, version=version and str(version))
        assert seen.status < 300, (method, path, seen)
        return seen.body

    def of_red(self) -> Mapping[str, tuple[str, ...]]:
        """Red's parts of paths: {service part of a path: alice's object}."""
        servers, images = (self.server, self.server_with_gpu), (self.image, self.shared_image)
        return {
            "identity projects/{project_id}": (RED,),
            "identity users/{user_id}": (ALICE,),
            "identity groups/{group_id}": (self.friends,),
            "identity application_credentials/{credential_id}": (self.credential,),
            "placement allocations/{consumer_uuid}": servers,
            "placement consumers/{consumer_uuid}": servers,
            "image images/{image_id}": images,
            "image tags/{tag}": (f"{MARK}-shared-tag",),
            "image members/{member_id}": (f"{MARK}-friends",),
            "compute flavors/{flavor_id}": (f"{MARK}-flavor", self.reservation),
            "compute os-extra_specs/{key}": ("note",),
            "compute servers/{server_id}": servers,
            "compute metadata/{key}": (f"{MARK}-server-key",),
            "compute tags/{tag}": (f"{MARK}-server-tag",),
            "compute ips/{label}": ("private",),
            "compute os-interface/{key}": (self.server,),
            "compute ports/{port_id}": (self.server,),
            "compute os-volume_attachments/{key}": (self.server,),
            "compute shares/{key}": (self.server,),
            "compute migrations/{migration_id}": (self.migration,),
            "compute os-instance-actions/{request_id}": (self.action,),
            "compute os-keypairs/{name}": (self.key,),
            "compute os-quota-sets/{project_id}": (RED,),
            "compute os-simple-tenant-usage/{project_id}": (RED,),
            "compute os-server-groups/{group_id}": (self.group,),
            "compute images/{image_id}": images,
            "accelerator accelerator_requests/{uuid}": (self.request, self.bound_request),
            "accelerator images/{image_id}": images,
            "reservation leases/{lease_id}": (self.lease,),
            "reservation holds/{hold_id}": (self.hold,),
            "reservation calendar-feeds/{feed_id}": (self.feed,),
            "reservation deleted-leases/{lease_id}": (self.deleted_lease,),
            "reservation limits/{project_id}": (RED,),
            "reservation user-limits/{user_id}": (ALICE,),
        }

    def of_operators(self) -> Mapping[str, str]:
        """Parts of paths that belong to no project: {service part of a path: object}."""
        nothing = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"

        def first(service: str, kind: str, name: str = "uuid") -> str:
            found: str = self.root("GET", f"/{service}/{kind}")[kind.rpartition("/")[2].removeprefix("os-")][0][name]
            return found

        provider = first("placement", "resource_providers")
        return {
            "identity roles/{role_id}": "member",
            "identity domains/{domain_id}": "default",
            "identity implies/{implied_id}": "reader",
            "identity regions/{region_id}": "RegionOne",
            "identity services/{service_id}": "compute",
            "identity endpoints/{endpoint_id}": "compute-public",
            "identity hosts/{host}": "compute-1",
            "placement resource_providers/{uuid}": provider,
            "placement trees/{uuid}": provider,
            "placement providers/{uuid}": provider,
            "placement resource_classes/{name}": "CUSTOM_WHEAT",
            "placement inventories/{resource_class}": "VCPU",
            "placement traits/{name}": "CUSTOM_GOLD",
            "compute os-hypervisors/{hypervisor_id}": first("compute", "v2.1/os-hypervisors", "id"),
            "compute os-services/{service_id}": first("compute", "v2.1/os-services", "id"),
            "compute os-hosts/{host}": "compute-1",
            "compute os-aggregates/{aggregate_id}": "1",
            "compute os-quota-class-sets/{name}": "default",
            "compute extensions/{alias}": "os-keypairs",
            "compute hosts/{host}": "compute-1",
            "compute jobs/{job_id}": nothing,
            "compute provider-config/{order_id}": nothing,
            "accelerator devices/{uuid}": first("accelerator", "v2/devices"),
            "accelerator deployables/{uuid}": first("accelerator", "v2/deployables"),
            "accelerator device_profiles/{name_or_uuid}": "gpu",
            "accelerator attributes/{uuid}": nothing,
            "accelerator hosts/{host}": "compute-1",
            "accelerator jobs/{job_id}": nothing,
            "reservation properties/{name}": "rack",
            "reservation os-hosts/{host_id}": "1",
            "reservation floatingips/{floatingip_id}": nothing,
        }

    # --------------------------------------------------------------------------------- requests

    def asks(self) -> Iterator[tuple[Ask, bool]]:
        """(request, whether its path names what is red's): of each route, with each of red's objects that its path
        takes.
        """
        of_red, of_operators = self.of_red(), self.of_operators()
        for service, api in SERVICES.items():
            for route in api.routes:
                if route.rule in NOTHING_THERE:
                    continue
                parts = [f"{service} {part}" for part in re.findall(r"[^/]+/{\w+}", route.path)]
                for part in parts:
                    assert (part in of_red) != (part in of_operators), f"{part}: say in World whose it is"
                choices = [of_red.get(part) or (of_operators[part],) for part in parts]
                for values in itertools.product(*choices):
                    first, *others = re.split(r"{\w+}", route.path)
                    path = first + "".join(
                        quote(value, safe="") + part for value, part in zip(values, others, strict=True)
                    )
                    for body, version in itertools.product(
                        self._bodies(service, route, values), versions(service, route)
                    ):
                        yield Ask(service, route, path, body, version), any(part in of_red for part in parts)

    def _bodies(self, service: str, route: Route[Any], values: tuple[str, ...]) -> list[object]:
        """Bodies for the route's schema, so that the handler runs."""
        name = f"{service} {route.method} {route.path.removesuffix('.json')}"
        if name == "compute POST /v2.1/servers/{server_id}/action":
            schemas = {
                action: ARGUMENTS[action].for_version(newest(service)) if action in ARGUMENTS else None
                for action in ACTIONS
            }
            return [{action: smallest(schema.document) if schema else None} for action, schema in schemas.items()]
        if name == "accelerator PATCH /v2/accelerator_requests/{uuid}":
            return [{values[0]: self.binding}]
        if name in self.examples:
            return [self.examples[name]]
        if route.method in ("GET", "HEAD", "DELETE") or route.reads == "none":
            return [None]
        schema = schema_at(route, SERVICES[service])
        return [{} if schema is None else smallest(schema.document)]

    # ------------------------------------------------------------------------------------- senders

    def send(self, ask: Ask, who: str, role: str, query: str = "") -> Seen:
        version = ask.version or newest(ask.service)
        headers = {"x-subject-token": self.alices_token}
        if ask.route.reads in ("raw", "stream"):
            headers["content-type"] = PATCH if ask.route.reads == "raw" else "application/octet-stream"
        path = f"/{ask.service}{ask.path}" + (f"?{query}" if query else "")
        if ask.service == "identity":
            headers["x-auth-token"] = self.alices_token if who == ALICE_OF_RED else self.tokens[role]
            return self.identity.send(ask.route.method, path, ask.body, who=None, roles=None, headers=headers)
        return self.plane.send(
            ask.route.method,
            path,
            ask.body,
            who=who,
            roles=role,
            version=version and str(version),
            headers=headers,
        )

    def bob(self, ask: Ask, role: str, query: str = "") -> tuple[int, set[str]]:
        """(status, red's texts in the answer that the request did not contain)"""
        asked = {*ask.path.split("/"), *(value for _, value in parse_qsl(query)), *_texts(ask.body)}
        seen = self.send(ask, BOB_OF_BLUE, role, query)
        return seen.status, self.told(seen, asked)

    def told(self, seen: Seen, asked: set[str]) -> set[str]:
        """Red's texts in the body or the headers of an answer, except those of its request."""
        body = seen.body.decode(errors="replace") if isinstance(seen.body, bytes) else json.dumps(seen.body)
        text = f"{body} {dict(seen.headers)}"
        for value in sorted(asked, key=len, reverse=True):
            if any(secret in value for secret in self.secrets):
                text = text.replace(value, "")
        return {secret for secret in self.secrets if secret in text}

    def naming_red(self) -> Iterator[tuple[tuple[str, str], tuple[object, int]]]:
        """((service, request), (body, status)) that names red's object outside of the path."""
        own = {"name": "own", "flavorRef": "small", "imageRef": self.public_image, "networks": "none"}
        for change, status in (
            ({"key_name": self.key}, 400),
            ({"imageRef": self.image}, 400),
            ({"imageRef": self.shared_image}, 400),
            ({"flavorRef": f"{MARK}-flavor"}, 400),
            ({"flavorRef": self.reservation}, 400),
        ):
            yield ("compute", "POST /v2.1/servers"), ({"server": own | change}, status)
        hints = {"os:scheduler_hints": {"group": self.group}}
        yield ("compute", "POST /v2.1/servers"), ({"server": own, **hints}, 403)
        yield ("compute", "POST /moorage/v1/explain-server"), ({"server": {"flavorRef": "small"}, **hints}, 403)
        for flavor in (f"{MARK}-flavor", self.reservation):
            yield ("compute", "POST /moorage/v1/explain-server"), ({"server": {"flavorRef": flavor}}, 400)
        body = {"server": {"flavorRef": "small", "imageRef": self.image}}
        yield ("compute", "POST /moorage/v1/explain-server"), (body, 400)
        action = f"POST /v2.1/servers/{self.bobs_server}/action"
        for body, status in (
            ({"rebuild": {"imageRef": self.image}}, 400),
            ({"rebuild": {"imageRef": self.public_image, "key_name": self.key}}, 400),
            ({"resize": {"flavorRef": f"{MARK}-flavor"}}, 400),
            ({"resize": {"flavorRef": self.reservation}}, 400),
            ({"rescue": {"rescue_image_ref": self.image}}, 400),
        ):
            yield ("compute", action), (body, status)
        key = {"name": "theirs", "public_key": PUBLIC_KEY, "user_id": ALICE}
        yield ("compute", "POST /v2.1/os-keypairs"), ({"keypair": key}, 403)
        for query in (f"os-keypairs?user_id={ALICE}", f"limits?tenant_id={RED}", "servers?all_tenants=1"):
            yield ("compute", f"GET /v2.1/{query}"), (None, 403)
        yield ("image", "POST /v2/images"), ({"name": "theirs", "owner": RED}, 403)
        # All projects share one namespace of image ids, as in Glance, so a used id is a conflict.
        yield ("image", "POST /v2/images"), ({"name": "theirs", "id": self.image}, 409)
        yield ("placement", f"GET /usages?project_id={RED}"), (None, 403)
        requests = "/v2/accelerator_requests"
        for request in (self.request, self.bound_request):
            yield ("accelerator", f"PATCH {requests}"), ({request: self.binding}, 403)
            yield ("accelerator", f"DELETE {requests}?arqs={request}"), (None, 404)
        yield ("accelerator", f"DELETE {requests}?instance={self.server_with_gpu}"), (None, 403)
        yield ("reservation", "POST /v1/leases"), ({"name": "theirs", "hold_id": self.hold}, 404)
        yield ("reservation", f"GET /v1/leases?project_id={RED}"), (None, 403)
        wish = {"resource_type": "flavor:instance", "flavor_id": f"{MARK}-flavor", "amount": 1, "affinity": None}
        slot = {"duration_minutes": 30, "reservations": [wish]}
        lease = {"name": "theirs", **self._dates(days=2), "reservations": [wish]}
        for path, body in (("offers", slot), ("holds", slot), ("leases", lease), ("leases/dry-run", lease)):
            yield ("reservation", f"POST /v1/{path}"), (body, 404)
        for method in ("GET", "HEAD", "DELETE"):  # alice's token is the subject
            yield ("identity", f"{method} /v3/auth/tokens"), (None, 403)

    def picture(self) -> dict[str, object]:
        """The rows of each database that belong to red and do not name bob, and red's images."""
        found: dict[str, object] = {}
        for service in ("identity", "placement", "compute", "accelerator", "reservation"):
            plane = self.identity if service == "identity" else self.plane
            with plane.engine(service).connect() as connection:
                tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
                for table in tables.scalars().all():
                    rows = [repr(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table}")]
                    told = [row for row in rows if any(secret in row for secret in self.secrets)]
                    found[f"{service} {table}"] = sorted(row for row in told if "bob" not in row and BLUE not in row)
        for image in self.root("GET", f"/image/v2/images?owner={RED}")["images"]:
            path = f"/image/v2/images/{image['id']}"
            found[image["id"]] = (image, self.root("GET", f"{path}/file"))
            if image["visibility"] == "shared":
                found[f"members of {image['id']}"] = self.root("GET", f"{path}/members")
        return found


def newest(service: str) -> Version | None:
    """The newest microversion of a service; None if it has none."""
    range_of = SERVICES[service].versions
    return range_of and range_of.maximum


def versions(service: str, route: Route[Any]) -> list[Version | None]:
    """The newest microversion that has the route; for GET also the oldest, which ignores unknown parameters."""
    range_of = SERVICES[service].versions
    if range_of is None:
        return [None]
    last, first = route.until or range_of.maximum, route.since or range_of.minimum
    return [last, first] if route.method == "GET" and first != last else [last]


def _texts(document: object) -> Iterator[str]:
    match document:
        case dict():
            for name, value in document.items():
                yield name
                yield from _texts(value)
        case list():
            for value in document:
                yield from _texts(value)
        case str():
            yield document


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("foreign"))
    with made.identity, made.plane:
        yield made


@pytest.fixture(autouse=True)
def _what_is_reds_stays_as_it_is(world):
    before = world.picture()
    yield
    after = world.picture()
    assert {what for what in before if before[what] != after[what]} == set()
    headers = {"x-auth-token": world.alices_token}
    answer = world.identity.send("GET", "/identity/v3/auth/projects", who=None, roles=None, headers=headers)
    assert answer.status == 200, "the token is in force"


def test_a_route_that_names_an_object_of_another_project_refuses(world):
    troubles, otherwise = [], set()
    for ask, is_of_red in world.asks():
        if not is_of_red:
            continue
        expected, _why = OTHERWISE.get(ask.name, (None, ""))
        for role in ROLES:
            status, told = world.bob(ask, role)
            if status == expected:
                otherwise.add(ask.name)
            elif status not in (403, 404):
                troubles.append((ask.name, ask.path, role, status))
            if told:
                troubles.append((ask.name, ask.path, role, told))
    assert troubles == []
    assert otherwise == OTHERWISE.keys()


def test_the_own_project_or_an_operator_finds_the_objects_of_the_paths(world):
    """This shows that the ids are right, and that the objects that bob may not see exist."""
    found: dict[str, set[int]] = {}
    for ask, is_of_red in world.asks():
        if is_of_red and ask.route.method == "GET":
            statuses = {world.send(ask, who, role).status for who, role in ((ALICE_OF_RED, "reader"), (ROOT, "admin"))}
            found.setdefault(ask.name, set()).update(statuses)
    assert {name for name, statuses in found.items() if not statuses & {200, 204}} == FINDS_NOTHING.keys()


def test_no_other_route_reveals_objects_of_another_project(world):
    """The queries contain each known filter, with red's ids and names as values."""
    troubles, tells_alice = [], set()
    for ask, is_of_red in world.asks():
        if is_of_red:
            continue
        with asked_for() as names:
            answers = [(role, *world.bob(ask, role)) for role in ROLES]
        if ask.route.method == "GET" and ask.route.rule and any(status < 400 for _, status, _ in answers):
            answers += [(query, *world.bob(ask, "manager", query)) for query in queries(world, ask, names)]
            if world.told(world.send(ask, ALICE_OF_RED, "reader"), set()):
                tells_alice.add(ask.name)
        if ask.name in world.examples:
            assert {status for role, status, _ in answers if role != "reader"} <= {200, 201, 202, 409}, (ask, answers)
        troubles += [(ask.name, *answer) for answer in answers if answer[1] >= 500 or answer[2]]
    assert troubles == []
    assert tells_alice == TELL_ALICE


def queries(world: World, ask: Ask, asked: set[str]) -> Iterator[str]:
    """Queries for the parameters `asked`, which the handler reads from a request without any, and for `FILTERS`.

    Yields nothing for routes with the suffix ``.json``, which have the same handlers.
    """
    if ask.route.path.endswith(".json"):
        return
    if ask.route.path.startswith("/v2.1/servers"):
        asked = asked | SERVERS.names
    for name in sorted(asked | FILTERS):
        for value in ("1", RED, ALICE, f"{MARK}-server", world.server):
            yield urlencode({name: value})
    for name, secret in itertools.product(sorted(asked & MARKERS), sorted(world.secrets)):
        yield urlencode({name: secret})
    yield from TOGETHER


def test_a_body_or_a_query_that_names_an_object_of_another_project_is_refused(world):
    troubles = []
    for (service, request), (body, expected) in world.naming_red():
        method, path = request.split()
        path, _, query = path.partition("?")
        route = Route(method, path, lambda: None, None)
        for role in ("member", "manager"):
            status, told = world.bob(Ask(service, route, path, body), role, query)
            if status != expected or told:
                troubles.append((service, request, body, role, status, told))
    assert troubles == []
