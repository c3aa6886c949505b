"""Every route of the Accelerator API with every kind of caller: the answer is right and reveals nothing.

CVE-2026-40213: in Cyborg any valid token could read and change devices, deployables and attributes.
CVE-2026-40214: in Cyborg any project could list, show and delete accelerator requests of others, and bind its own.

The rows are compared with the app's route table: a route without a row fails.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import select

from moorage.accelerator.api.routes import API
from moorage.accelerator.store import tables
from moorage.agent.jobs.job_runner import AcceleratorRunner
from moorage.agent.jobs.job_task import HostQueue, JobsTask
from tests.unit.accelerator.rig import GPU, HOST, PROJECT, R1, R2, SHA, TYPE_R1, TYPE_R2, Rig, fpga, new_instance, rp
from tests.wire.accelerator.conftest import RecordedHints, Wire, process_in

OTHER = "2" * 32
FREE_GPU = "0000:65:00.0"
LATEST = "accelerator 2.3"

#: Callers, by the token of `ByRole`. All objects belong to `PROJECT`.
CALLERS = {
    "nobody": None,
    "of no project": "admin@none",
    "for the whole system": "admin@system",
    "without a role": "nothing",
    "reader": "reader",
    "member": "member",
    "manager": "manager",
    "reader elsewhere": f"reader@{OTHER}",
    "member elsewhere": f"member@{OTHER}",
    "manager elsewhere": f"manager@{OTHER}",
    "reader by a service": "reader+service",
    "member by a service": "member+service",
    "member elsewhere by a service": f"member@{OTHER}+service",
    "admin": f"admin@{OTHER}",
    "service": "service@services",
}
OWN = ("reader", "member", "manager", "reader by a service", "member by a service")
ELSEWHERE = ("reader elsewhere", "member elsewhere", "manager elsewhere", "member elsewhere by a service")
TRUSTED = ("admin", "service")
READERS = (*OWN, *ELSEWHERE, *TRUSTED)
WRITERS = tuple(caller for caller in READERS if not caller.startswith("reader"))
LOOKERS = ("manager", "manager elsewhere", *TRUSTED)
#: Callers with a service's token beside the user's, and services (CVE-2026-40214); not an administrator, as in Cyborg.
SERVICES = ("member by a service", "member elsewhere by a service", "service")
#: Those who may delete bound requests: an administrator, too, as `moorage audit` needs.
DELETERS = (*SERVICES, "admin")


@dataclass(frozen=True)
class Ask:
    path: str
    body: object = None
    named: str = ""  #: the uuid in the request that belongs to `PROJECT`
    end: Callable[[], object] = lambda: None


class World:
    """A host with a private bitstream, and a project with requests and devices there."""

    def __init__(self, process, hints) -> None:
        """`process` serves the images of the host's directory, too."""
        self.engine, self.ids = process.engine("accelerator"), process.ids
        clock = process.clock
        self.rig = Rig(process.directory, clock=clock)
        self.wire = Wire(process.transport("/accelerator"))
        self.rig.agent._reports = self.wire.client()
        self.rig.agent.run_once()
        runner = AcceleratorRunner(self.rig.agent, keep_alive_period_s=10)
        jobs = JobsTask(HostQueue(HOST, self.wire.client(), poll_period_s=1), 1, runner, clock)
        hints.heard = lambda: all(jobs.run_once() <= clock.now() for _ in range(9))

        self.private = self.rig.image("secret", visibility="private", region_uuid=TYPE_R1, function_uuid=SHA)
        self.public = self.rig.image("aes", region_uuid=TYPE_R2, function_uuid=new_instance())
        self.plugged = new_instance()
        self.rig.plug(self.plugged, fpga(bitstream=self.private), R1)
        self.rig.agent.run_once()
        self.profile = self.new_profile("card")
        self.initial = self.new_request()
        self.bound, self.instance = self.new_request(), new_instance()
        assert (
            self(
                "PATCH", "/v2/accelerator_requests", self.binding(self.bound, self.instance, GPU), role="service"
            ).status
            == 202
        )
        assert self("GET", f"/v2/accelerator_requests/{self.bound}").body["state"] == "Bound"
        self.device = self._named("devices", lambda row: GPU in row["std_board_info"])["uuid"]
        self.deployable = self._named("deployables", lambda row: row["name"].endswith(R2))
        self.private_region = self._named("deployables", lambda row: row["name"].endswith(R1))["uuid"]
        self.attribute = self.new_attribute()
        #: Texts that only the project may read, texts about the hardware, and texts that only operators may read.
        self.tenants = {PROJECT, self.initial, self.bound, self.instance, self.plugged}
        self.hardware = {HOST, GPU, "0000:3b:00.0", rp(GPU), rp(R1), self.device, self.attribute}
        self.secret = {self.private, SHA}

    def __call__(self, method, path, body=None, *, role="admin"):
        return self.wire(method, path, role=role, body=body, version=LATEST)

    def _named(self, kind, matches):
        (row,) = [row for row in self("GET", f"/v2/{kind}").body[kind] if matches(row)]
        return row

    def new_profile(self, name=None):
        body = [{"name": name or f"p-{self.ids.uuid()}", "groups": [{"resources:CUSTOM_ACCELERATOR_GPU": "1"}]}]
        return self("POST", "/v2/device_profiles", body).body["uuid"]

    def new_request(self):
        seen = self("POST", "/v2/accelerator_requests", {"device_profile_name": "card"}, role="member")
        return seen.body["arqs"][0]["uuid"]

    def new_attribute(self):
        body = {"deployable_id": self.deployable["root_id"], "key": "rack", "value": "7"}
        return self("POST", "/v2/attributes", body).body["uuid"]

    def binding(self, request, instance, gpu=FREE_GPU):
        fields = {"hostname": HOST, "device_rp_uuid": rp(gpu), "instance_uuid": instance}
        return {request: [{"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()]}

    def new_bound(self):
        """Creates a bound request on a card of its own; returns its uuid and its instance's."""
        request, instance = self.new_request(), new_instance()
        assert self("PATCH", "/v2/accelerator_requests", self.binding(request, instance), role="service").status == 202
        return request, instance

    def drop(self, request):
        return lambda: self("DELETE", f"/v2/accelerator_requests/{request}", role="service")

    def picture(self):
        with self.engine.connect() as connection:
            return [connection.execute(select(table)).all() for table in tables.metadata.sorted_tables]


# ---------------------------------------------------------------------------------------- the requests


def an_initial_request(form: str):
    def ask(world: World) -> Ask:
        uuid = world.new_request()
        return Ask(form.format(uuid), named=uuid, end=world.drop(uuid))

    return ask


def a_bound_request(form: str):
    def ask(world: World) -> Ask:
        uuid, _ = world.new_bound()
        return Ask(form.format(uuid), named=uuid, end=world.drop(uuid))

    return ask


def an_instances_requests(world: World) -> Ask:
    uuid, instance = world.new_bound()
    return Ask(f"/v2/accelerator_requests?instance={instance}", named=instance, end=world.drop(uuid))


def a_binding(form: str):
    def ask(world: World) -> Ask:
        uuid = world.new_request()
        return Ask(form.format(uuid), world.binding(uuid, new_instance()), named=uuid, end=world.drop(uuid))

    return ask


def a_new_profile(form: str):
    def ask(world: World) -> Ask:
        uuid = world.new_profile()
        return Ask(form.format(uuid), named=uuid)

    return ask


def a_new_attribute(world: World) -> Ask:
    uuid = world.new_attribute()
    return Ask(f"/v2/attributes/{uuid}", named=uuid)


def a_profile_to_make(world: World) -> Ask:
    groups = [{"resources:CUSTOM_ACCELERATOR_GPU": "1"}]
    return Ask("/v2/device_profiles", [{"name": f"p-{new_instance()}", "groups": groups}])


def an_attribute_to_make(world: World) -> Ask:
    return Ask("/v2/attributes", {"deployable_id": world.deployable["root_id"], "key": "k", "value": "v"})


def a_region_to_program(world: World) -> Ask:
    body = [{"path": "/program", "op": "replace", "value": [{"image_uuid": world.public}]}]
    return Ask(f"/v2/deployables/{world.deployable['uuid']}/program", body, named=world.deployable["uuid"])


def fixed(form: str, attribute: str = "", body: object = None):
    """`form` with the world's uuid for `attribute`."""

    def ask(world: World) -> Ask:
        named = getattr(world, attribute) if attribute else ""
        return Ask(form.format(named), body, named=named)

    return ask


# ----------------------------------------------------------------------------------------- the answers


def answers(status: int, callers, **others: int) -> dict[str, int]:
    """`status` for `callers`, `others` for the groups of callers below by name, 403 for the rest, 401 without a
    token.
    """
    groups = {"elsewhere": ELSEWHERE[:3], "own": OWN}
    known = {caller: 401 if caller == "nobody" else 403 for caller in CALLERS}
    for group, refused in others.items():
        known |= {caller: refused for caller in groups[group] if not caller.startswith("reader") or status == 200}
    return known | dict.fromkeys(callers, status)


PUBLIC = dict.fromkeys(CALLERS, 200)
NAMED = ("member by a service", "reader by a service", "member elsewhere by a service")

ARQS = "/v2/accelerator_requests"
OWN_ARQS = "/moorage/v1/accelerator_requests"
#: The requests, with the answer by caller.
ROWS: dict[tuple[str, str], list[tuple[Callable[[World], Ask], dict[str, int]]]] = {
    ("GET", "/"): [(fixed("/"), PUBLIC)],
    ("GET", "/v2"): [(fixed("/v2"), PUBLIC)],
    ("GET", "/v2/"): [(fixed("/v2/"), PUBLIC)],
    ("GET", "/v2/devices"): [(fixed("/v2/devices"), answers(200, LOOKERS))],
    ("GET", "/v2/devices/{uuid}"): [(fixed("/v2/devices/{}", "device"), answers(200, LOOKERS))],
    ("GET", "/v2/deployables"): [(fixed("/v2/deployables"), answers(200, LOOKERS))],
    ("GET", "/v2/deployables/{uuid}"): [(fixed("/v2/deployables/{}", "private_region"), answers(200, LOOKERS))],
    ("POST", "/v2/devices/{uuid}/enable"): [(fixed("/v2/devices/{}/enable", "device"), answers(204, ["admin"]))],
    ("POST", "/v2/devices/{uuid}/disable"): [(fixed("/v2/devices/{}/disable", "device"), answers(204, ["admin"]))],
    ("PATCH", "/v2/deployables/{uuid}/program"): [(a_region_to_program, answers(200, ["admin"]))],
    ("GET", "/v2/attributes"): [(fixed("/v2/attributes"), answers(200, LOOKERS))],
    ("GET", "/v2/attributes/{uuid}"): [(fixed("/v2/attributes/{}", "attribute"), answers(200, LOOKERS))],
    ("POST", "/v2/attributes"): [(an_attribute_to_make, answers(201, ["admin"]))],
    ("DELETE", "/v2/attributes/{uuid}"): [(a_new_attribute, answers(204, ["admin"]))],
    ("GET", "/v2/device_profiles"): [(fixed("/v2/device_profiles"), answers(200, READERS))],
    ("GET", "/v2/device_profiles/{name_or_uuid}"): [
        (fixed("/v2/device_profiles/{}", "profile"), answers(200, READERS)),
        (fixed("/v2/device_profiles/card"), answers(200, READERS)),
    ],
    ("POST", "/v2/device_profiles"): [(a_profile_to_make, answers(201, ["admin"]))],
    ("DELETE", "/v2/device_profiles"): [(a_new_profile("/v2/device_profiles?value={}"), answers(204, ["admin"]))],
    ("DELETE", "/v2/device_profiles/{name_or_uuid}"): [
        (a_new_profile("/v2/device_profiles/{}"), answers(204, ["admin"])),
    ],
    ("GET", ARQS): [
        (fixed(ARQS), answers(200, READERS)),
        (fixed(f"{ARQS}?bind_state=resolved"), answers(200, ELSEWHERE) | dict.fromkeys((*OWN, *TRUSTED), 423)),
        (fixed(ARQS + "?instance={}", "instance"), answers(200, READERS)),
        (fixed(ARQS + "?instance={}&bind_state=resolved", "plugged"), answers(200, READERS)),
    ],
    ("GET", ARQS + "/{uuid}"): [
        (fixed(ARQS + "/{}", one), answers(200, (*OWN, *NAMED, *TRUSTED), elsewhere=404))
        for one in ("initial", "bound")
    ],
    ("POST", ARQS): [(fixed(ARQS, body={"device_profile_name": "card"}), answers(201, WRITERS))],
    ("PATCH", ARQS): [(a_binding(ARQS), answers(202, SERVICES))],
    ("PATCH", ARQS + "/{uuid}"): [(a_binding(ARQS + "/{}"), answers(202, SERVICES))],
    ("DELETE", ARQS): [
        (an_initial_request(ARQS + "?arqs={}"), answers(204, ("member", "manager", *DELETERS), elsewhere=404)),
        (a_bound_request(ARQS + "?arqs={}"), answers(204, DELETERS, elsewhere=404)),
        (an_instances_requests, answers(204, DELETERS)),
    ],
    ("DELETE", ARQS + "/{uuid}"): [
        (an_initial_request(ARQS + "/{}"), answers(204, ("member", "manager", *DELETERS), elsewhere=404)),
        (a_bound_request(ARQS + "/{}"), answers(204, DELETERS, elsewhere=404)),
    ],
    ("POST", "/agent/v1/hosts/{host}/epoch"): [
        (fixed("/agent/v1/hosts/elsewhere/epoch"), answers(200, TRUSTED)),
    ],
    ("PUT", "/agent/v1/hosts/{host}/devices"): [
        (fixed("/agent/v1/hosts/elsewhere/devices", body={"devices": []}), answers(204, TRUSTED)),
    ],
    ("PUT", "/agent/v1/hosts/{host}/attachments"): [
        (fixed("/agent/v1/hosts/elsewhere/attachments", body={"attachments": []}), answers(204, TRUSTED)),
    ],
    ("GET", "/moorage/v1/history"): [
        (fixed("/moorage/v1/history"), answers(200, ["admin"])),
        (fixed("/moorage/v1/history?device={}", "device"), answers(200, ["admin"])),
        (fixed("/moorage/v1/history?instance={}", "plugged"), answers(200, ["admin"])),
    ],
    ("GET", "/moorage/v1/handles"): [(fixed(f"/moorage/v1/handles?host={HOST}"), answers(200, ["admin"]))],
    ("POST", "/moorage/v1/handles/release"): [
        (
            fixed("/moorage/v1/handles/release", body={"host": "elsewhere", "handle": GPU, "reason": "why"}),
            answers(404, ["admin"]),
        )
    ],
    ("GET", "/moorage/v1/bitstreams"): [
        (fixed("/moorage/v1/bitstreams?image_uuid={}&project_id=" + PROJECT, "private"), answers(200, ["admin"])),
    ],
    ("GET", OWN_ARQS): [
        (fixed(OWN_ARQS), answers(200, READERS)),
        (fixed(OWN_ARQS + "?after={}", "initial"), answers(200, (*OWN, *TRUSTED), elsewhere=400) | {ELSEWHERE[3]: 400}),
    ],
    ("POST", "/agent/v1/hosts/{host}/history"): [
        (fixed("/agent/v1/hosts/elsewhere/history", body={"records": []}), answers(204, TRUSTED)),
    ],
    ("POST", "/agent/v1/hosts/{host}/jobs"): [
        (fixed(f"/agent/v1/hosts/{HOST}/jobs", body={"worker": "w"}), answers(200, TRUSTED)),
    ],
    ("GET", "/agent/v1/hosts/{host}/images"): [
        (fixed("/agent/v1/hosts/elsewhere/images?region_uuid=r"), answers(200, TRUSTED)),
    ],
    ("GET", "/agent/v1/hosts/{host}/images/{image_id}"): [
        (fixed(f"/agent/v1/hosts/elsewhere/images/{new_instance()}"), answers(404, TRUSTED)),
    ],
    ("GET", "/agent/v1/hosts/{host}/images/{image_id}/file"): [
        (fixed(f"/agent/v1/hosts/elsewhere/images/{new_instance()}/file"), answers(404, TRUSTED)),
    ],
    ("PUT", "/agent/v1/jobs/{job_id}"): [
        (
            fixed(f"/agent/v1/jobs/{new_instance()}", body={"state": "running", "epoch": 1}),
            answers(404, TRUSTED),
        ),
    ],
}


# ------------------------------------------------------------------------------------------- the matrix


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    hints = RecordedHints()
    with process_in(tmp_path_factory.mktemp("tenants"), hints, "accelerator,image") as process:
        yield World(process, hints)


def test_every_route_has_a_row():
    assert sorted(ROWS) == sorted((route.method, route.path) for route in API.routes)


@pytest.mark.parametrize("route", ROWS, ids=" ".join)
def test_each_caller_gets_only_what_its_role_and_project_allow(world, route):
    """CVE-2026-40213, CVE-2026-40214"""
    for make, expected in ROWS[route]:
        ask = None
        for caller, status in expected.items():
            ask = ask or make(world)
            before = world.picture()
            seen = world(route[0], ask.path, ask.body, role=CALLERS[caller])
            assert seen.status == status, (caller, ask.path, seen.body)
            if status >= 400:
                assert world.picture() == before, f"{caller} was refused and has changed something"
                if not _knows(caller, ask):
                    _is_refused_like_a_missing_object(world, route[0], ask, caller, seen)
            said = json.dumps([ask.path, ask.body])
            told = {text for text in _hidden(world, caller, ask) if text in seen.raw.decode() and text not in said}
            assert told == set(), f"{caller} is told {told} by {route}"
            if status < 400:
                ask.end()
                ask = None


def _is_refused_like_a_missing_object(world, method, ask, caller, seen):
    """The refusal must equal that for an object that never existed."""
    if not ask.named:
        return
    never = new_instance()
    body = json.loads(json.dumps(ask.body).replace(ask.named, never))
    ghost = world(method, ask.path.replace(ask.named, never), body, role=CALLERS[caller])
    assert (ghost.status, ghost.raw.decode().replace(never, ask.named)) == (seen.status, seen.raw.decode())


def _knows(caller, ask) -> bool:
    """Whether `caller` may know the object: it is their project's, or their service has to name it."""
    vouched = caller.endswith("by a service") and bool(ask.named)
    return caller in TRUSTED or (ask.path.startswith((ARQS, OWN_ARQS)) and (caller in OWN or vouched))


def _hidden(world, caller, ask) -> set[str]:
    """The texts that must not appear in an answer to `caller`."""
    if caller in TRUSTED:
        return set()
    hidden = world.secret if _knows(caller, ask) else world.secret | world.tenants
    return hidden if _knows(caller, ask) or caller in LOOKERS else hidden | world.hardware


# ------------------------------------------------------------------------------------ other properties


def _uuids(seen):
    return {row["uuid"] for row in seen.body["arqs"]}


def test_a_list_has_only_the_users_project_also_with_a_service_token(world):
    """CVE-2026-40214: a service's token gives access to objects that it names, but to no other project's list."""
    mine = {world.initial, world.bound}
    assert mine <= _uuids(world("GET", ARQS, role="reader"))
    assert mine <= _uuids(world("GET", ARQS, role="service"))
    for token in (f"reader@{OTHER}", f"member@{OTHER}+service"):
        assert mine.isdisjoint(_uuids(world("GET", ARQS, role=token)))
    assert _uuids(world("GET", f"{ARQS}?instance={world.instance}", role=f"reader@{OTHER}")) == set()
    vouched = world("GET", f"{ARQS}?instance={world.instance}", role=f"member@{OTHER}+service")
    assert _uuids(vouched) == {world.bound}


def test_another_projects_request_is_refused_like_a_missing_one(world):
    """CVE-2026-40214: a deletion that names both gets the same refusal."""
    refusals = []
    for foreign in (world.bound, never := new_instance()):
        seen = world("POST", ARQS, {"device_profile_name": "card"}, role=f"member@{OTHER}")
        (own,) = _uuids(seen)
        refused = world("DELETE", f"{ARQS}?arqs={own},{foreign}", role=f"member@{OTHER}")
        assert refused.status == 404
        refusals.append(refused.fault.replace(foreign, "X"))
        assert world("GET", f"{ARQS}/{own}").status == 404, "what is there is deleted"
    assert refusals[0] == refusals[1]
    assert never not in refusals[0]
    assert world("GET", f"{ARQS}/{world.bound}").body["state"] == "Bound"


@pytest.mark.parametrize("role", ["manager", f"manager@{OTHER}"])
def test_readers_of_devices_do_not_see_private_bitstreams(world, role):
    """A12: only operators see its id, its name and its function."""
    path = f"/v2/deployables/{world.private_region}"
    assert world("GET", path).body["bitstream_id"] == world.private
    assert world("GET", path, role=role).body == world("GET", path).body | {"bitstream_id": None}


def test_a_request_belongs_to_the_callers_project_and_only_an_operator_can_change_it(world):
    """CVE-2026-40214: in Cyborg a request belonged to no project."""
    uuid = world.new_request()
    shown = world("GET", f"{ARQS}/{uuid}").body
    assert shown["project_id"] == PROJECT
    body = world.binding(uuid, new_instance())
    body[uuid].append({"op": "add", "path": "/project_id", "value": OTHER})
    assert world("PATCH", ARQS, body, role="member+service").status == 403
    assert world("GET", f"{ARQS}/{uuid}").body == shown
    world.drop(uuid)()
