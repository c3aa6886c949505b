"""The agent of one host has no access to objects of another host or of users: tries every route of every service.

The routes come from the route tables, so a new one is included. A route of agents whose path has a variable that is not
in `Cloud.of_b`, or that names its host in its body, fails here until somebody adds the value for host B.
"""

import json
import re
from types import SimpleNamespace

import pytest

from moorage.accelerator.api.routes import API as ACCELERATOR
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.model.reports import AttachmentReport
from moorage.compute.api.routes import API as COMPUTE
from moorage.core.errors import NotFound
from moorage.identity.api.routes import API as IDENTITY
from moorage.identity.host_credential import HostTokens, enrol_host
from moorage.images.base import ProjectView, PublicView
from moorage.images.for_hosts import DiskImageUploads, HostImageSource
from moorage.images.routes import API as IMAGE
from moorage.jobs.contract import JobKind, OperatorOverridesJob
from moorage.jobs.job_api import HostJobsClient
from moorage.placement.api.routes import API as PLACEMENT
from moorage.reservation.api.routes import API as RESERVATION
from moorage.wire.client import ServiceClient
from tests.images import put_image
from tests.plane import HostBearer, InProcessPlane

A, B = "compute-1", "compute-2"
SERVICES = {
    "placement": PLACEMENT,
    "image": IMAGE,
    "compute": COMPUTE,
    "accelerator": ACCELERATOR,
    "reservation": RESERVATION,
}
NEWEST = {"placement": "1.39", "compute": "2.97", "reservation": "1.1"}
#: Bodies for routes that check the body before the caller, or decide by its content.
BODIES = {
    "PUT /agent/v1/jobs/{job_id}": {"epoch": 1, "state": "done", "result": {}},
    "POST /resource_providers": {"name": B},
    "PUT /resource_providers/{uuid}/inventories": {"resource_provider_generation": 0, "inventories": {}},
    "PUT /resource_providers/{uuid}/inventories/{resource_class}": {"resource_provider_generation": 0, "total": 1},
    "PUT /resource_providers/{uuid}/traits": {"resource_provider_generation": 0, "traits": []},
}
#: What every agent may do: create classes and traits before it uses them.
OPEN = {"PUT /traits/{name}", "PUT /resource_classes/{name}"}
#: Rules that allow every token, for functions that do not exist.
NOTHING_THERE = {"os_compute_api:moorage:absent"}


class Cloud:
    """Two hosts, and for host B a server, jobs in progress, devices, providers and an image."""

    def __init__(self, directory):
        self.plane = InProcessPlane(directory, "placement,image,compute,accelerator,reservation")
        self.hosts = {name: self.plane.beside(name, "agent", agent={"host": name}) for name in (A, B)}
        self.plane.settle()
        image = put_image(self.plane.client("image"), self.plane.ids.uuid())
        self.admin = self.plane.client("compute", "root:admin", "admin", version="2.96")
        flavor = {"name": "small", "vcpus": 1, "ram": 64, "disk": 1}
        flavor_id = self.admin.request("POST", "/v2.1/flavors", json={"flavor": flavor})["flavor"]["id"]
        servers = [self._server(name, flavor_id, image) for name in ("b", "c")]
        self.plane.settle()
        for server in servers:
            assert self.admin.get(f"/v2.1/servers/{server}")["server"]["status"] == "ACTIVE"
        listed = self.plane.send("GET", f"/placement/resource_providers?name={B}", version="1.39").body
        self.provider = listed["resource_providers"][0]["uuid"]
        self.image, server = image, servers[0]
        self.bitstream = put_image(
            self.plane.client("image"), self.plane.ids.uuid(), "aes", properties={"region_uuid": "r"}
        )
        # One image for each of the two requests that change it.
        self.disk_image, self.other_disk_image = (self._ordered_image(one) for one in servers)
        #: {service: {variable in the path of a route: value}}
        shared = {"host": B, "server_id": server, "port_id": server, "uuid": self.provider, "consumer_uuid": server}
        self.of_b = {
            "compute": shared | {"job_id": self._job("compute")},
            "accelerator": shared | {"job_id": self._job("accelerator")},
        }
        self.shared = shared

    def _server(self, name, flavor, image):
        zone = {"availability_zone": f"nova:{B}"}
        body = {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"} | zone
        return self.admin.request("POST", "/v2.1/servers", json={"server": body})["server"]["id"]

    def _ordered_image(self, server):
        """Creates an image of the server's disk that a job of B will fill."""
        body = {"createImage": {"name": "disk"}}
        return json.loads(self.admin.request_raw("POST", f"/v2.1/servers/{server}/action", json=body).body)["image_id"]

    def _job(self, service):
        """The id of a job that B has claimed."""
        if service == "compute":
            path = f"/compute/moorage/v1/hosts/{B}/provider-config"
            assert self.plane.send("POST", path, {"do": "show"}).status == 202
        else:
            jobs = self.plane.service("accelerator").jobs
            with self.plane.engine("accelerator").begin() as connection:
                jobs.enqueue(connection, B, JobKind.OPERATOR_OVERRIDES, f"wishes of {B}", OperatorOverridesJob())
        claimed = HostJobsClient(self.client(service, B)).claim_jobs(B, "worker of b", 10)
        assert {job.epoch for job in claimed} == {1}
        return claimed[-1].id

    def client(self, service, host):
        return ServiceClient(
            self.plane.transport(f"/{service}"),
            service_type=service,
            credentials=HostBearer(host),
            clock=self.plane.clock,
        )

    def status(self, service, route, host, variables):
        """The status of a request by this host's agent."""
        image = {"PUT": self.disk_image, "DELETE": self.other_disk_image}.get(route.method, self.bitstream)
        variables = variables | {"image_id": image}
        path = re.sub(r"{(\w+)}", lambda name: variables[name[1]], route.path)
        body = BODIES.get(f"{route.method} {route.path}", {}) if route.method in ("POST", "PUT", "PATCH") else None
        version = str(route.until) if route.until else NEWEST.get(service)
        headers = dict(HostBearer(host).headers())
        return self.plane.send(
            route.method, f"/{service}{path}", body, who=None, roles=None, version=version, headers=headers
        ).status

    def state(self):
        """The state of all objects of host B."""
        ask = [
            f"/placement/moorage/v1/trees/{self.provider}",
            f"/compute/v2.1/servers/{self.shared['server_id']}",
            f"/compute/v2.1/os-services?host={B}",
            f"/accelerator/v2/devices?hostname={B}",
            "/accelerator/v2/deployables",
            f"/accelerator/moorage/v1/history?host={B}",
        ]
        answers = [self.plane.send("GET", path, version=NEWEST.get(path.split("/")[1])) for path in ask]
        answers.append(self.plane.send("GET", f"/image/v2/images/{self.disk_image}"))
        assert [answer.status for answer in answers[: len(ask)]] == [200] * len(ask)
        return [answer.body for answer in answers]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    made = Cloud(tmp_path_factory.mktemp("hosts"))
    with made.plane:
        yield made


def routes(*, of_agents):
    return [
        pytest.param(service, route, id=f"{service} {route.method} {route.path} {route.until or ''}".strip())
        for service, api in SERVICES.items()
        for route in api.routes
        if route.rule is not None and route.path.startswith("/agent/") is of_agents
    ]


@pytest.mark.parametrize(("service", "route"), routes(of_agents=True))
def test_an_agent_is_refused_on_routes_of_another_host(cloud, service, route):
    before = cloud.state()
    assert cloud.status(service, route, A, cloud.of_b[service]) in (403, 404)
    assert cloud.state() == before
    # The same request of B's agent is allowed: it is answered, or its body is refused.
    assert cloud.status(service, route, B, cloud.of_b[service]) not in (401, 403, 404)


def test_both_services_have_routes_for_agents():
    found = [param.values[0] for param in routes(of_agents=True)]
    assert (found.count("compute"), found.count("accelerator")) >= (7, 5)


def test_agents_are_refused_on_routes_for_users_operators_and_services(cloud):
    before = cloud.state()
    for param in routes(of_agents=False):
        service, route = param.values
        name = f"{route.method} {route.path}"
        if (service == "placement" and name in OPEN) or route.rule in NOTHING_THERE:
            continue
        variables = {
            name: ({"resource_class": "VCPU"} | cloud.shared).get(name, "1")
            for name in re.findall(r"{(\w+)}", route.path)
        }
        assert cloud.status(service, route, A, variables) == 403, name
    assert cloud.state() == before


# ----------------------------------------------------------------------------------------------- placement


@pytest.fixture
def placement(cloud):
    """Requests of A's agent to Placement: (status, document)."""

    def send(method, path, body=None, host=A, version="1.39"):
        headers = dict(HostBearer(host).headers())
        answer = cloud.plane.send(
            method, f"/placement{path}", body, who=None, roles=None, version=version, headers=headers
        )
        return answer.status, answer.body

    return send


def provider_of(placement, host):
    return placement("GET", f"/resource_providers?name={host}", host=host)[1]["resource_providers"][0]


def test_an_agent_can_list_only_its_own_tree(cloud, placement):
    own = provider_of(placement, A)["uuid"]
    status, listed = placement("GET", f"/resource_providers?in_tree={own}")
    assert status == 200
    assert {row["root_provider_uuid"] for row in listed["resource_providers"]} == {own}
    for query in (
        "", f"?name={B}", f"?in_tree={cloud.provider}", f"?in_tree={cloud.provider.upper()}", f"?uuid={cloud.provider}",
        f"?name={A}&in_tree={cloud.provider}", f"?name={A}&name={B}", "?resources=VCPU:1", "?name=", "?in_tree=",
    ):  # fmt: skip
        assert placement("GET", f"/resource_providers{query}")[0] in (400, 403), query


def test_an_agent_cannot_create_a_provider_for_another_host(cloud, placement):
    own = provider_of(placement, A)["uuid"]
    for name, parent in (
        ("compute-3", None), (f"{A}_x", None), (f"{B}_x", own), ("x", own), (A + "0", own), (f"{A}_x", cloud.provider),
        (f"blazar_{A}", own),
    ):  # fmt: skip
        body = {"name": name} | ({} if parent is None else {"parent_provider_uuid": parent})
        assert placement("POST", "/resource_providers", body)[0] == 403, name
    body = {"name": f"{A}_mine", "parent_provider_uuid": own}
    status, made = placement("POST", "/resource_providers", body)
    assert status == 200
    assert placement("DELETE", f"/resource_providers/{made['uuid']}", host=B)[0] == 403
    assert placement("DELETE", f"/resource_providers/{made['uuid']}")[0] == 204


def test_an_agent_cannot_rename_move_or_delete_its_root_provider(placement):
    own = provider_of(placement, A)["uuid"]
    assert placement("PUT", f"/resource_providers/{own}", {"name": B})[0] == 403
    assert placement("PUT", f"/resource_providers/{own}", {"name": A, "parent_provider_uuid": None})[0] == 403
    assert placement("DELETE", f"/resource_providers/{own}")[0] == 403


@pytest.mark.parametrize("what", ["inventories", "traits"])
def test_an_agent_can_write_only_its_own_providers(cloud, placement, what):
    for host, uuid, expected in ((A, cloud.provider, 403), (B, cloud.provider, 200)):
        path = f"/resource_providers/{uuid}/{what}"
        document = cloud.plane.send("GET", f"/placement{path}", version="1.39").body
        assert placement("GET", path, host=host)[0] == expected
        assert placement("PUT", path, document, host=host)[0] == expected
        generation = {"resource_provider_generation": 99}
        assert placement("PUT", path, document | generation, host=host)[0] == (403 if expected == 403 else 409)


def test_an_agent_cannot_change_traits_and_inventories_of_operators_and_reservations(cloud, placement):
    own, told = provider_of(placement, A)["uuid"], ["CUSTOM_RESERVATION_HOST", "COMPUTE_STATUS_DISABLED"]
    path, reserved = f"/placement/resource_providers/{own}", "CUSTOM_RESERVATION_X"

    def admin(method, path, body=None):
        answer = cloud.plane.send(method, path, body, version="1.39")
        assert answer.status < 300, answer
        return answer.body

    admin("PUT", f"/placement/resource_classes/{reserved}")
    admin("PUT", f"/placement/traits/{told[0]}")
    traits, offered = admin("GET", f"{path}/traits"), admin("GET", f"{path}/inventories")
    record = {"total": 4, "reserved": 0, "min_unit": 1, "max_unit": 4, "step_size": 1, "allocation_ratio": 1.0}
    with_reserved = offered["inventories"] | {reserved: record}
    # It can neither set these traits and inventories ...
    for trait in told:
        assert (
            placement("PUT", f"/resource_providers/{own}/traits", traits | {"traits": [*traits["traits"], trait]})[0]
            == 403
        )
    assert (
        placement("PUT", f"/resource_providers/{own}/inventories", offered | {"inventories": with_reserved})[0] == 403
    )
    # ... nor delete them.
    marked = admin("PUT", f"{path}/traits", traits | {"traits": [*traits["traits"], *told]})
    offered["resource_provider_generation"] = marked["resource_provider_generation"]
    taken = admin("PUT", f"{path}/inventories", offered | {"inventories": with_reserved})
    now = {"resource_provider_generation": taken["resource_provider_generation"]}
    assert placement("PUT", f"/resource_providers/{own}/traits", traits | now)[0] == 403
    assert placement("PUT", f"/resource_providers/{own}/inventories", offered | now)[0] == 403
    less = {reserved: record | {"total": 5}}
    assert placement("PUT", f"/resource_providers/{own}/inventories", offered | now | {"inventories": less})[0] == 403
    # Its generation is outdated, which it can correct; then it can write everything else.
    assert placement("PUT", f"/resource_providers/{own}/traits", traits)[0] == 409
    more = with_reserved | {"MEMORY_MB": record | {"total": 8}}
    assert placement("PUT", f"/resource_providers/{own}/inventories", now | {"inventories": more})[0] == 200


def test_an_agent_can_create_classes_and_traits_except_those_of_reservations(placement):
    assert placement("PUT", "/traits/CUSTOM_MINE")[0] == 201
    assert placement("PUT", "/resource_classes/CUSTOM_MINE")[0] == 201
    for kind in ("traits", "resource_classes"):
        assert placement("PUT", f"/{kind}/CUSTOM_RESERVATION_MINE")[0] == 403
        assert placement("DELETE", f"/{kind}/CUSTOM_MINE")[0] == 403
    renamed = {"name": "CUSTOM_OTHER"}
    assert placement("PUT", "/resource_classes/CUSTOM_MINE", renamed, version="1.6")[0] == 403


# ----------------------------------------------------------------------------------------------- compute, accelerator


def test_a_host_can_register_only_its_own_provider(cloud):
    own = {
        "hypervisor_type": "x", "vcpus": 1, "memory_mb": 1, "local_gb": 1, "provider_uuid": cloud.provider
    }  # fmt: skip
    headers = dict(HostBearer("compute-9").headers())
    for provider in (cloud.provider, "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"):
        answer = cloud.plane.send(
            "PUT", "/compute/agent/v1/hosts/compute-9", own | {"provider_uuid": provider}, who=None, roles=None,
            headers=headers,
        )  # fmt: skip
        assert answer.status == 409, answer


@pytest.mark.parametrize("service", ["compute", "accelerator"])
@pytest.mark.parametrize("queue", ["audit", "compute-build", "compute-events", "compute-moves"])
def test_an_agent_cannot_claim_jobs_of_a_services_queue(cloud, service, queue):
    for headers in (dict(HostBearer(queue).headers()), {"x-auth-token": "moorage:service", "x-roles": "service"}):
        answer = cloud.plane.send(
            "POST", f"/{service}/agent/v1/hosts/{queue}/jobs", {"worker": "w"}, who=None, roles=None, headers=headers
        )
        assert (answer.status, "is the name of a job queue" in str(answer.body)) == (400, True)


def test_the_list_of_reserved_queue_names_is_complete():
    from moorage.accelerator.service.host_jobs import EVENTS_QUEUE
    from moorage.audit.audit_task import QUEUE
    from moorage.compute.model.servers import BUILD_QUEUE, MOVE_QUEUE
    from moorage.core.names import QUEUES

    assert {EVENTS_QUEUE, QUEUE, BUILD_QUEUE, MOVE_QUEUE} == QUEUES


# ----------------------------------------------------------------------------------------------- images


@pytest.fixture
def images(cloud):
    """Images as a host's agent gets them, from compute and then from the accelerator service."""
    return lambda host: HostImageSource(host, [cloud.client("compute", host), cloud.client("accelerator", host)])


@pytest.fixture
def put(cloud):
    def put(**options):
        return put_image(cloud.plane.client("image"), cloud.plane.ids.uuid(), **options)

    return put


#: The project of B's server, and a project without servers.
OWN, OTHER = ProjectView("admin"), ProjectView("blue")


def test_a_host_can_read_only_boot_images_and_bitstreams_of_its_servers_projects(cloud, images, put):
    private = {"owner": "admin", "visibility": "private"}
    kernel, secret = put(name="kernel", **private), put(name="secret", **private)
    own = put(name="own aes", properties={"region_uuid": "own"}, **private)
    foreign = put(name="foreign aes", owner="blue", visibility="private", properties={"region_uuid": "own"})
    patch = json.dumps([{"op": "add", "path": "/kernel_id", "value": kernel}]).encode()
    media = {"content-type": "application/openstack-images-v2.1-json-patch"}
    assert cloud.plane.send("PATCH", f"/image/v2/images/{cloud.image}", patch, headers=media).status == 200
    source = images(B)
    for image in (cloud.image, kernel, own, cloud.bitstream):
        assert source.get(OWN, image).id == image
        with source.open(OWN, image) as chunks:
            assert b"".join(chunks) == b"tiny"
    for image in (secret, foreign, "4d17d41a-830d-47b2-91c7-4f9fc0ae611e", "..", ""):
        assert source.get(OWN, image) is None
        with pytest.raises(NotFound), source.open(OWN, image):
            pass
    assert [image.id for image in source.find(OWN, {"region_uuid": "own"})] == [own]
    assert {image.id for image in source.find(OWN, {})} >= {cloud.bitstream, own}
    assert {cloud.image, kernel, secret, foreign}.isdisjoint(image.id for image in source.find(OWN, {}))


def test_a_host_cannot_read_images_of_a_project_without_work_on_it(cloud, images, put):
    theirs = put(owner="blue", visibility="private", properties={"region_uuid": "theirs"})
    for host, view, image in ((B, OTHER, theirs), (A, OWN, cloud.image), (A, OTHER, theirs)):
        assert images(host).get(view, image) is None
        assert images(host).find(view, {"region_uuid": "theirs"}) == []
        path = f"/compute/agent/v1/hosts/{host}/images/{image}?project={view.project_id}"
        assert (
            cloud.plane.send("GET", path, who=None, roles=None, headers=dict(HostBearer(host).headers())).status == 403
        )


def test_a_host_cannot_gain_access_to_a_project_by_its_reports(cloud, images, put):
    theirs = put(owner="blue", visibility="private", properties={"region_uuid": "theirs"})
    instance = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
    told = AttachmentReport(instance, "blue", cloud.provider, "x", 0, "0000:01:00.0")
    AcceleratorClient(cloud.client("accelerator", A)).report_attachments(A, [told])
    assert images(A).get(OTHER, theirs) is None
    AcceleratorClient(cloud.client("accelerator", A)).report_attachments(A, [])


def test_a_host_without_a_project_can_read_public_bitstreams(cloud, images, put):
    hidden = put(owner="admin", visibility="private", properties={"region_uuid": "hidden"})
    for host in (A, B):
        assert images(host).get(PublicView(), cloud.bitstream).id == cloud.bitstream
        assert images(host).get(PublicView(), hidden) is None
        assert images(host).get(PublicView(), cloud.image) is None


def test_a_host_can_upload_only_to_the_image_of_its_job(cloud, put):
    whole = {"disk_format": "raw", "properties": {"hw_disk_bus": "virtio"}, "size_bytes": 4}
    queued = put(owner="admin", visibility="private", data=None)
    for host, image in ((B, queued), (B, cloud.image), (A, cloud.disk_image)):
        with pytest.raises(NotFound):
            DiskImageUploads(host, cloud.client("compute", host)).upload_disk_image(
                image, **whole, chunks=iter((b"evil",))
            )
        DiskImageUploads(host, cloud.client("compute", host)).withdraw_disk_image(image)
    assert cloud.plane.send("GET", f"/image/v2/images/{queued}").body["status"] == "queued"
    DiskImageUploads(B, cloud.client("compute", B)).upload_disk_image(
        cloud.disk_image, **whole, chunks=iter((b"disk",))
    )
    made = cloud.plane.send("GET", f"/image/v2/images/{cloud.disk_image}").body
    expected = {"status": "active", "owner": "admin", "visibility": "private", "hw_disk_bus": "virtio"}
    assert {name: made[name] for name in expected} == expected


# ----------------------------------------------------------------------------------------------- identity


def test_an_agent_can_validate_only_its_own_token(tmp_path):
    with InProcessPlane(tmp_path, "identity", authenticator=None) as plane:
        registry, way = plane.service("identity").hosts, plane.transport("/identity")
        path = tmp_path / "credential.json"
        enrol_host(path, A, registry.invite_host(A)[0], way, plane.clock)
        registry.invite_host(B)
        headers = dict(HostTokens(path, A, way, plane.clock).headers())
        answers = SimpleNamespace(allowed=set(), refused=set())
        for route in IDENTITY.routes:
            if route.rule is None:
                continue
            name = f"{route.method} {route.path}"
            path = re.sub(r"{(\w+)}", lambda name: {"host": B}.get(name[1], "1"), route.path)
            status = plane.send(route.method, f"/identity{path}", {}, who=None, roles=None, headers=headers).status
            (answers.refused if status in (401, 403, 404) else answers.allowed).add((name, status))
        # 400: the request lacks the header that names a token. 200: the lists are empty, since a host has no projects.
        assert answers.allowed == {
            ("GET /v3/auth/tokens", 400), ("HEAD /v3/auth/tokens", 400), ("DELETE /v3/auth/tokens", 400),
            ("GET /v3/auth/projects", 200), ("GET /v3/auth/domains", 200), ("GET /v3/auth/system", 200),
        }  # fmt: skip
        assert (
            plane.send("GET", "/identity/v3/auth/projects", who=None, roles=None, headers=headers).body["projects"]
            == []
        )
