"""``openstack accelerator ...`` of python-openstackclient, unmodified, over a socket."""

import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from moorage.agent.accelerator_jobs import AcceleratorRunner
from moorage.agent.jobs_duty import JobsDuty
from tests.processes import openstack
from tests.unit.accelerator.rig import GPU, HOST, PROJECT, R1, Rig, gpu, new_instance, rp

pytestmark = [pytest.mark.slow, pytest.mark.clients]


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


class AnonymousIsAdmin:
    """What OS_AUTH_TYPE=none amounts to; the header is the client's own."""

    def __init__(self, app) -> None:
        self._app = app

    def __call__(self, environ, start_response):
        environ["HTTP_X_AUTH_TOKEN"] = f"admin@{PROJECT}"
        return self._app(environ, start_response)


@pytest.fixture
def variables(app):
    with make_server("127.0.0.1", 0, AnonymousIsAdmin(app), handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": f"http://127.0.0.1:{server.server_port}/accelerator/v2"}
        server.shutdown()


def test_the_commands_an_operator_types(variables, wire, tmp_path):
    rig = Rig(tmp_path / "host")
    rig.agent._reports = wire.client()
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    rig.agent.tick()
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
    assert f"{HOST}_{R1}" in {row["name"] for row in deployables.document}
    assert create.document["groups"] == [{"resources:FPGA": "1", "trait:CUSTOM_X": "required"}]
    assert again.status != 0
    assert "already exists" in again.err
    assert [row["name"] for row in profiles.document] == ["fp1"]
    (arq,) = arqs.document
    assert (arq["state"], arq["instance_uuid"], arq["attach_handle_type"]) == ("Bound", instance, "PCI")
    assert missing.status != 0
    assert delete.status == 0, delete.err


def test_requests_are_made_bound_unbound_and_deleted(variables, wire, clock, tmp_path):
    rig = Rig(tmp_path / "host", clock=clock)
    rig.agent._reports = wire.client()
    rig.agent.tick()
    jobs = JobsDuty(
        host=HOST,
        number=1,
        service=wire.client(),
        runner=AcceleratorRunner(rig.agent, keep_alive_period_s=10),
        clock=clock,
        poll_period_s=1,
    )
    json_form = ("-f", "json")
    arq = ["accelerator", "arq"]
    profile = ["accelerator", "device", "profile", "create", "card", "--group", "resources:CUSTOM_ACCELERATOR_GPU=1"]
    _, made = openstack(variables, profile, [*arq, "create", "card", *json_form])
    uuid, instance = made.document["uuid"], new_instance()
    # The client's own `bind` looks the server up in a compute service first; here is none.
    fields = {"hostname": HOST, "device_rp_uuid": rp(GPU), "instance_uuid": instance}
    operations = [{"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()]
    assert wire("PATCH", f"/v2/accelerator_requests/{uuid}", body={uuid: operations}).status == 202
    jobs.tick()
    shown, unbind = openstack(variables, [*arq, "show", uuid, *json_form], [*arq, "unbind", uuid])
    assert (shown.document["state"], shown.document["instance_uuid"]) == ("Bound", instance)
    assert unbind.status == 0, unbind.err
    jobs.tick()
    assert rig.agent.holdings.attachments == {}
    delete, gone = openstack(variables, [*arq, "delete", uuid], [*arq, "show", uuid])
    assert (delete.status, gone.status != 0) == (0, True), delete.err
