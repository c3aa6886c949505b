"""``openstack accelerator ...`` of python-openstackclient and of python-cyborgclient, unmodified, over a socket."""

import json
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from moorage.agent.jobs.job_runner import AcceleratorRunner
from moorage.agent.jobs.job_task import HostQueue, JobsTask
from tests.processes import openstack
from tests.unit.accelerator.rig import GPU, HOST, PROJECT, R1, Rig, gpu, new_instance, rp

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.extended]  # .venv-cyborgclient

#: The commands of python-cyborgclient, which would be hidden by those of a newer python-openstackclient.
OLDER = ".venv-cyborgclient"


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


class AnonymousIsAdmin:
    """Does what OS_AUTH_TYPE=none does: a request with the client's header for it is an admin's and a service's."""

    def __init__(self, app) -> None:
        self._app = app

    def __call__(self, environ, start_response):
        environ["HTTP_X_AUTH_TOKEN"] = f"admin@{PROJECT}+service"
        return self._app(environ, start_response)


@pytest.fixture
def variables(process):
    with make_server("127.0.0.1", 0, AnonymousIsAdmin(process.plane.app), handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": f"http://127.0.0.1:{server.server_port}/accelerator/v2"}
        server.shutdown()


def jobs_of(rig, wire, clock):
    """A host's jobs for the service, one step per tick."""
    runner = AcceleratorRunner(rig.agent, keep_alive_period_s=10)
    return JobsTask(HostQueue(HOST, wire.client(), poll_period_s=1), 1, runner, clock)


def test_an_operator_lists_and_manages_devices_with_the_client(variables, wire, tmp_path):
    rig = Rig(tmp_path / "host")
    rig.agent._reports = wire.client()
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    rig.agent.run_once()
    json_form = ("-f", "json")
    devices, deployables, create, again, profiles, arqs, missing, delete = openstack(
        variables,
        ["accelerator", "device", "list", *json_form],
        ["accelerator", "deployable", "list", *json_form],
        [
            "accelerator",
            "device",
            "profile",
            "create",
            "fp1",
            "--group",
            "resources:FPGA=1,trait:CUSTOM_X=required",
            *json_form,
        ],
        ["accelerator", "device", "profile", "create", "fp1", "--group", "resources:FPGA=1"],
        ["accelerator", "device", "profile", "list", *json_form],
        ["accelerator", "arq", "list", *json_form],
        ["accelerator", "device", "show", new_instance()],
        ["accelerator", "device", "profile", "delete", "fp1"],
    )
    assert sorted(row["type"] for row in devices.document) == ["FPGA"] * 2 + ["GPU"] * 4
    shown = [json.loads(row["std_board_info"]) for row in devices.document]
    assert {row["health"] for row in shown} == {"ok"}
    assert all(row["health_since"] for row in shown)
    assert f"{HOST}_{R1}" in {row["name"] for row in deployables.document}
    assert create.document["groups"] == [{"resources:FPGA": "1", "trait:CUSTOM_X": "required"}]
    assert again.status != 0
    assert "already exists" in again.err
    assert [row["name"] for row in profiles.document] == ["fp1"]
    (arq,) = arqs.document
    assert (arq["state"], arq["instance_uuid"], arq["attach_handle_type"]) == ("Bound", instance, "PCI")
    assert missing.status != 0
    assert delete.status == 0, delete.err


def test_the_client_creates_binds_unbinds_and_deletes_requests(variables, wire, clock, tmp_path):
    rig = Rig(tmp_path / "host", clock=clock)
    rig.agent._reports = wire.client()
    rig.agent.run_once()
    jobs = jobs_of(rig, wire, clock)
    json_form = ("-f", "json")
    arq = ["accelerator", "arq"]
    profile = ["accelerator", "device", "profile", "create", "card", "--group", "resources:CUSTOM_ACCELERATOR_GPU=1"]
    _, made = openstack(variables, profile, [*arq, "create", "card", *json_form])
    uuid, instance = made.document["uuid"], new_instance()
    # The client's own `bind` first looks up the server in a compute service, which does not exist here.
    fields = {"hostname": HOST, "device_rp_uuid": rp(GPU), "instance_uuid": instance}
    operations = [{"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()]
    assert wire("PATCH", f"/v2/accelerator_requests/{uuid}", role="service", body={uuid: operations}).status == 202
    jobs.run_once()
    shown, unbind = openstack(variables, [*arq, "show", uuid, *json_form], [*arq, "unbind", uuid])
    assert (shown.document["state"], shown.document["instance_uuid"]) == ("Bound", instance)
    assert unbind.status == 0, unbind.err
    jobs.run_once()
    assert rig.agent.attach_state.attachments == {}
    delete, gone = openstack(variables, [*arq, "delete", uuid], [*arq, "show", uuid])
    assert (delete.status, gone.status != 0) == (0, True), delete.err


def test_every_command_of_the_older_client_succeeds(variables, wire, clock, tmp_path):
    """Except `device enable` and `disable`, which that openstacksdk lacks, and `deployable program`, which needs a
    Glance.

    """
    rig = Rig(tmp_path / "host", clock=clock)
    rig.agent._reports = wire.client()
    rig.agent.run_once()
    jobs = jobs_of(rig, wire, clock)

    def run(*commands):
        return openstack(variables, *(["accelerator", *command.split()] for command in commands), clients=OLDER)

    devices, deployables, profile, profiles, arq = run(
        "device list -f json",
        "deployable list -f json",
        'device profile create card [{"resources:CUSTOM_ACCELERATOR_GPU":"1"}] -f json',
        "device profile list -f json",
        "arq create card -f json",
    )
    assert sorted(row["type"] for row in devices.document) == ["FPGA"] * 2 + ["GPU"] * 4
    assert profile.document["groups"] == [{"resources:CUSTOM_ACCELERATOR_GPU": "1"}]
    assert [row["name"] for row in profiles.document] == ["card"]
    part, uuid, instance = deployables.document[0], arq.document["uuid"], new_instance()
    device, deployable, of_profile, arqs, attribute, bind = run(
        f"device show {devices.document[0]['uuid']} -f json",
        f"deployable show {part['uuid']} -f json",
        f"device profile show {profile.document['uuid']} -f json",
        "arq list -f json",
        f"device attribute create {part['device_id']} speed fast -f json",
        f"arq bind {uuid} {HOST} {instance} {rp(GPU)} {PROJECT} -f json",
    )
    assert device.document["uuid"] == devices.document[0]["uuid"]
    assert deployable.document["name"] == part["name"]
    assert of_profile.document["name"] == "card"
    assert [row["uuid"] for row in arqs.document] == [uuid]
    assert bind.status == 0, bind.err
    for _ in range(2):  # the attribute is sent to the host, then the request is bound
        jobs.run_once()
    shown, attributes, of_attribute, unbind = run(
        f"arq show {uuid} -f json",
        "device attribute list -f json",
        f"device attribute show {attribute.document['uuid']} -f json",
        f"arq unbind {uuid}",
    )
    assert (shown.document["state"], shown.document["instance_uuid"]) == ("Bound", instance)
    assert ("speed", "fast") in {(row["key"], row["value"]) for row in attributes.document}
    assert of_attribute.document["key"] == "speed"
    assert unbind.status == 0, unbind.err
    jobs.run_once()
    assert rig.agent.attach_state.attachments == {}
    gone = run(
        f"arq delete {uuid}",
        f"device attribute delete {attribute.document['uuid']}",
        "device profile delete card",
    )
    assert [one.status for one in gone] == [0, 0, 0], gone
    assert [one.document for one in run("arq list -f json", "device profile list -f json")] == [[], []]
