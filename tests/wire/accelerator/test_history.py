"""The history of devices: hosts report it exactly once, and only administrators read it, by API and command."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from moorage.accelerator.model.errors import CleanFailed
from moorage.cli.commands import accelerator as command
from moorage.core.errors import Unavailable
from tests.unit.accelerator.rig import AES, GPU, HOST, R1, TYPE_R1, Rig, fault, fpga, gpu, new_instance

PATH = "/moorage/v1/history"
HANDLE = "0000:3b:00.1"


class LossyClient:
    """Sends each request of the host, but raises instead of returning the answer to a report."""

    def __init__(self, client) -> None:
        self._client, self.loses = client, 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def report_history(self, host, records):
        self._client.report_history(host, records)
        if self.loses:
            self.loses -= 1
            raise Unavailable("the answer was lost")


@pytest.fixture
def rig(tmp_path, wire, clock) -> Rig:
    rig = Rig(tmp_path / "host", clock=clock)
    rig.agent._reports = wire.client()
    rig.image(region_uuid=TYPE_R1, function_uuid=AES)
    return rig


def use(rig, instance=None):
    """A server gets a region's function and releases it; returns the server."""
    instance = instance or new_instance()
    rig.plug(instance, fpga(function=AES), R1)
    rig.unplug(instance)
    return instance


def records(wire, query="", **options):
    seen = wire("GET", f"{PATH}{query}", **options)
    assert seen.status == 200, seen.body
    return seen.body["records"]


def test_the_history_lists_a_device_from_its_programming_to_its_cleaning(rig, wire):
    instance = use(rig)
    rig.agent.run_once()
    (card,) = (one for one in wire("GET", "/v2/devices").body["devices"] if one["model"] == "PAC Arria 10 GX")
    found = records(wire, f"?device={card['uuid']}")
    assert [one["event"] for one in found] == ["program", "attach", "detach", "clean"]
    (image,) = {part["bitstream_id"] for part in wire("GET", "/v2/deployables").body["deployables"]} - {None}
    assert found[1] | {"id": "", "sha512": ""} == {
        "id": "",
        "at": rig.clock.now().isoformat(),
        "event": "attach",
        "result": "done",
        "reason": None,
        "hostname": HOST,
        "device": "0000:3b:00.0",
        "deployable": R1,
        "handle": HANDLE,
        "instance_uuid": instance,
        "project_id": "1" * 32,
        "user_id": None,
        "image_id": image,
        "sha512": "",
    }
    assert len(found[1]["sha512"]) == 128
    assert rig.held.journal.pending == ()


def test_each_record_is_stored_once_despite_lost_answers_and_a_restart(rig, wire):
    reports = LossyClient(wire.client())
    for _ in range(3):
        use(rig)
        reports.loses = 1
        rig.agent._reports = reports
        with pytest.raises(Unavailable):
            rig.agent.run_once()
        rig.restart()  # the process dies before it records that the report was sent
        assert len(rig.held.journal.pending) > 0
    rig.agent._reports = reports
    rig.agent.run_once()
    assert [one["event"] for one in records(wire)] == ["program", *["attach", "detach", "clean"] * 3]
    assert rig.held.journal.pending == ()


def test_records_kept_while_the_service_was_down_are_reported_in_their_order(rig, wire):
    rig.agent._reports = None
    uses = [use(rig) for _ in range(80)]  # more than fits into one report
    rig.restart()
    rig.agent._reports = wire.client()
    rig.agent.run_once()
    found, after = [], ""
    while after is not None:
        page = wire("GET", f"{PATH}?limit=100{after and f'&after={after}'}").body
        found += page["records"]
        after = page["next"]
    attached = [one["instance_uuid"] for one in found if one["event"] == "attach"]
    assert (attached, len(found)) == (uses, 241)
    assert [one["id"] for one in found] == sorted({one["id"] for one in found})


@pytest.mark.parametrize(
    "query",
    [
        "?colour=red", "?event=stolen", "?instance=x", "?since=noon", "?since=2026-03-01", "?limit=0", "?limit=1001",
        "?limit=x", "?order=random", "?after=x", "?after=1", "?after=-1-", "?after=99999999999999999999-99999999999999999999999",
    ],
)  # fmt: skip
def test_an_invalid_query_is_refused(wire, query):
    assert wire("GET", f"{PATH}{query}").status == 400


@pytest.mark.parametrize("body", [{}, {"records": {}}, {"records": [1]}, {"records": [{"sequence": "x"}]}])
def test_a_malformed_report_of_history_is_refused(wire, body):
    assert wire("POST", "/agent/v1/hosts/h/history", role="service", body=body).status == 400


def test_the_history_of_a_removed_device_is_found_by_host_and_address(rig, wire):
    use(rig)
    rig.agent.run_once()
    wire.client().report_devices(HOST, [])
    seen = wire("GET", f"{PATH}?device=22222222-0000-4000-8000-000000000001")
    assert (seen.status, "by its host and address" in seen.fault) == (404, True)
    assert len(records(wire, f"?host={HOST}&address=0000:3b:00.0")) == 4


def test_the_command_prints_records_or_json(rig, wire, monkeypatch):
    instance = use(rig)
    rig.agent.run_once()
    monkeypatch.setattr(command, "endpoints", lambda path: SimpleNamespace(accelerator=wire.client("admin")))
    monkeypatch.setattr(command, "PAGE", 3)

    def run(*arguments):
        result = CliRunner().invoke(command.accelerator, ["history", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    lines = run("--json", "--instance", instance).splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["program", "attach", "detach", "clean"]
    lines = run("--handle", HANDLE, "--event", "attach").splitlines()
    assert lines[0] == f"2026-03-01T09:30:00Z  attach  {HOST} {HANDLE}"
    assert lines[1] == f"    for server {instance}, project {'1' * 32}"
    assert lines[2].startswith("    image ")
    assert len(lines) == 3


def test_the_order_newest_first_is_the_exact_reverse_also_in_pages(rig, wire):
    for _ in range(2):
        use(rig)
    rig.agent.run_once()
    found, after = [], ""
    while after is not None:
        page = wire("GET", f"{PATH}?order=newest&limit=2{after and f'&after={after}'}").body
        found += page["records"]
        after = page["next"]
    assert len(found) == 7
    assert found == records(wire)[::-1]


def test_handles_show_their_state_and_the_reason_of_a_quarantine(rig, wire):
    instance = new_instance()
    rig.plug(instance, gpu(), GPU)
    rig.agent.run_once()
    handles = f"/moorage/v1/handles?host={HOST}"
    (found,) = (one for one in wire("GET", handles).body["handles"] if one["handle"] == GPU)
    assert (found["state"], found["reason"], found["instance_uuid"]) == ("attached", None, instance)
    assert (found["project_id"], found["request_state"]) == ("1" * 32, "Bound")
    rig.order(fault("clean"))
    with pytest.raises(CleanFailed):
        rig.unplug(instance)
    rig.agent.run_once()
    (found,) = (one for one in wire("GET", handles).body["handles"] if one["handle"] == GPU)
    assert (found["state"], found["deployable"], found["device"]) == ("quarantined", f"{HOST}_{GPU}", GPU)
    assert found["instance_uuid"] is None
    assert found["reason"] == records(wire, "?event=quarantine")[0]["reason"]
    assert found["reason"]
    assert wire("GET", "/moorage/v1/handles").status == 400
    assert wire("GET", "/moorage/v1/handles?host=elsewhere").body == {"handles": []}
