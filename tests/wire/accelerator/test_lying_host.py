"""A host's agent with its own credential that lies in its reports: no other host, no project and no table suffers.

The liar is `gpu`, and its victim `gpu_2`: with an underscore between, a name of the liar's device could be the victim's.
"""

from dataclasses import asdict, replace

import pytest
from sqlalchemy import String

from moorage.accelerator.model.attach_state import AttachState
from moorage.accelerator.model.reports import check_device_reports, device_reports
from moorage.accelerator.store.tables import devices
from moorage.core.errors import Invalid
from moorage.core.ids import RandomIds
from tests.plane import InProcessPlane
from tests.unit.accelerator.rig import GPU, PROJECT, many_gpus, new_instance, rp

LIAR, VICTIM = "gpu", "gpu_2"
CARD = "0000:01:00.0"
PREFIX = "/accelerator/agent/v1"
SERVICE = {"who": "nova:service", "roles": "service"}


class Cloud(InProcessPlane):
    """The service with two hosts, which have a card each. Each host sends what a test says."""

    def __init__(self, directory) -> None:
        super().__init__(directory, "accelerator", ids=RandomIds(), endpoints={"compute": "http://nowhere"})
        for host in (LIAR, VICTIM):
            assert self.devices(host).status == 204

    def from_host(self, host, method, path, body):
        return self.send(method, f"{PREFIX}{path}", body, who=f"host:{host}", headers={"x-moorage-host": host})

    def devices(self, host, change=lambda _report: None, **position):
        """Reports the host's card after `change` of the document."""
        (card,) = many_gpus(1)
        held = AttachState(devices=(card,), rp_uuids={CARD: rp(f"{host} {CARD}")})
        (report,) = map(asdict, device_reports(held))
        change(report)
        return self.from_host(host, "PUT", f"/hosts/{host}/devices", {"devices": [report], **position})

    def attachments(self, host, *attachments, **position):
        body = {"attachments": list(attachments), **position}
        return self.from_host(host, "PUT", f"/hosts/{host}/attachments", body)

    def jobs(self, host):
        return self.from_host(host, "POST", f"/hosts/{host}/jobs", {"worker": "w"}).body["jobs"]

    def end(self, host, job, result):
        body = {"state": "done", "epoch": job["epoch"], "result": result}
        return self.from_host(host, "PUT", f"/jobs/{job['id']}", body).status

    def handles(self, host):
        rows = self.send("GET", f"/accelerator/moorage/v1/handles?host={host}").body["handles"]
        return {row["deployable"]: (row["handle"], row["state"]) for row in rows}

    def request(self) -> str:
        profile = [{"name": "card", "groups": [{"resources:CUSTOM_ACCELERATOR_GPU": "1"}]}]
        self.send("POST", "/accelerator/v2/device_profiles", profile)
        body = {"device_profile_name": "card"}
        made = self.send("POST", "/accelerator/v2/accelerator_requests", body, who=f"u:{PROJECT}", roles="member")
        return made.body["arqs"][0]["uuid"]

    def bind(self, host, uuid, instance):
        values = {"hostname": host, "device_rp_uuid": rp(f"{host} {CARD}"), "instance_uuid": instance}
        body = {uuid: [{"op": "add", "path": f"/{name}", "value": value} for name, value in values.items()]}
        return self.send("PATCH", "/accelerator/v2/accelerator_requests", body, **SERVICE)

    def bound(self, host, instance) -> str:
        uuid = self.request()
        assert self.bind(host, uuid, instance).status == 202
        (job,) = self.jobs(host)
        states = {CARD: {CARD: "attached"}}
        assert self.end(host, job, {"handles": {uuid: CARD}, "states": states}) == 200
        return uuid

    def of(self, instance):
        seen = self.send("GET", f"/accelerator/v2/accelerator_requests?instance={instance}", **SERVICE)
        return [(arq["uuid"], arq["hostname"], arq["state"]) for arq in seen.body["arqs"]]


@pytest.fixture
def cloud(tmp_path):
    with Cloud(tmp_path) as cloud:
        yield cloud


def attached(instance, **more):
    return {
        "instance_uuid": instance, "project_id": PROJECT, "device_rp_uuid": rp(CARD), "deployable": CARD, "group": 0,
        "pci_id": CARD,
    } | more  # fmt: skip


def test_a_devices_name_is_not_that_of_another_host(cloud):
    """The fault: ``gpu`` + ``_`` + ``2_0000:01:00.0`` was the victim's, whose own report then failed with a 500."""

    def named(report):
        report["deployables"][0]["name"] = f"2_{CARD}"

    seen = cloud.devices(LIAR, named)
    assert (seen.status, "does not begin with the address of its card" in str(seen.body)) == (400, True)
    for address in (f"2_{CARD}", "", "0" * 5000):
        assert cloud.devices(LIAR, lambda report, address=address: report.update(address=address)).status == 400
    assert cloud.devices(VICTIM).status == 204


@pytest.mark.parametrize("kind", ["bind", "unbind"])
def test_the_result_of_a_job_does_not_change_the_handles_of_another_host(cloud, kind):
    """The fault: the states were stored under a name that the host had chosen."""
    before = cloud.handles(VICTIM)
    instance, lie = new_instance(), {f"2_{CARD}": {CARD: "quarantined"}}
    uuid = cloud.request()
    assert cloud.bind(LIAR, uuid, instance).status == 202
    (job,) = cloud.jobs(LIAR)
    assert cloud.end(LIAR, job, {"handles": {uuid: CARD}, "states": lie if kind == "bind" else {}}) == 200
    cloud.send("DELETE", f"/accelerator/v2/accelerator_requests?instance={instance}", **SERVICE)
    (job,) = cloud.jobs(LIAR)
    assert cloud.end(LIAR, job, {"states": lie}) == 200
    assert cloud.handles(VICTIM) == before


def test_an_instance_bound_on_one_host_gets_no_handle_from_another(cloud):
    """The fault: Nova reads an instance's requests, and gave its guest the victim host's device at the address that the
    liar had named.
    """
    instance = new_instance()
    uuid = cloud.bound(VICTIM, instance)
    assert cloud.attachments(LIAR, attached(instance)).status == 204
    assert cloud.of(instance) == [(uuid, VICTIM, "Bound")]


def test_a_report_about_an_instance_does_not_prevent_its_binding_on_another_host(cloud):
    """The fault: "Instance … already has accelerator requests", for any instance that a host names."""
    instance = new_instance()
    assert cloud.attachments(LIAR, attached(instance)).status == 204
    uuid = cloud.bound(VICTIM, instance)
    assert cloud.of(instance) == [(uuid, VICTIM, "Bound")]
    assert cloud.bind(VICTIM, cloud.request(), instance).status == 400  # a second time on its own host


def test_a_host_cannot_report_the_result_of_another_hosts_job_nor_act_for_it(cloud):
    uuid, instance = cloud.request(), new_instance()
    assert cloud.bind(VICTIM, uuid, instance).status == 202
    (job,) = cloud.jobs(VICTIM)
    assert cloud.end(LIAR, job, {"handles": {uuid: GPU}, "states": {}}) in (403, 404)
    for method, path, body in (
        ("POST", "epoch", {}), ("PUT", "devices", {"devices": []}), ("PUT", "attachments", {"attachments": []}),
        ("POST", "history", {"records": []}), ("POST", "jobs", {"worker": "w"}),
    ):  # fmt: skip
        assert cloud.from_host(LIAR, method, f"/hosts/{VICTIM}/{path}", body).status == 403
    assert cloud.of(instance) == [(uuid, VICTIM, "BindStarted")]


def test_the_provider_of_another_hosts_device_is_not_bound_on_the_liar(cloud):
    def stolen(report):
        report["deployables"][0]["rp_uuid"] = rp(f"{VICTIM} {CARD}")

    assert cloud.devices(LIAR, stolen).status == 204
    uuid, instance = cloud.request(), new_instance()
    assert cloud.bind(VICTIM, uuid, instance).status == 202
    assert [job["payload"]["instance_uuid"] for job in cloud.jobs(VICTIM)] == [instance]
    assert cloud.jobs(LIAR) == []


HUGE = 1 << 40


@pytest.mark.parametrize(
    "lie",
    [
        {"group": 1 << 31}, {"group": -1}, {"group": 1 << 80}, {"instance_uuid": "x"}, {"instance_uuid": ""},
        {"device_rp_uuid": "x" * 99}, {"project_id": "p" * 256}, {"pci_id": "0" * 999}, {"pci_id": ""},
        {"pci_id": f"{CARD}_{'t' * 90}_1"},
    ],
)  # fmt: skip
def test_an_attachment_that_no_table_can_hold_is_refused(cloud, lie):
    assert cloud.attachments(LIAR, attached(new_instance(), **lie)).status == 400
    assert cloud.send("GET", "/accelerator/v2/accelerator_requests").body["arqs"] == []


@pytest.mark.parametrize(
    "lie",
    [
        {"type": "T" * 31}, {"vendor": "v" * 256}, {"model": "m" * 256}, {"driver": "d" * 256}, {"health": "h" * 99},
        {"health": "fine"}, {"numa_node": 1 << 80}, {"name": f"{CARD}_{'R' * 99}"}, {"rp_uuid": "x"},
        {"bitstream_id": "b" * 256}, {"handles": [{"pci_id": "x", "state": "free"}]},
        {"handles": [{"pci_id": CARD, "state": "mine"}]}, {"details": [["physical_network", "n" * 256]]},
    ],
)  # fmt: skip
def test_a_device_that_no_table_can_hold_is_refused(cloud, lie):
    def lying(report):
        for name, value in lie.items():
            (report if name in report else report["deployables"][0])[name] = value

    before = cloud.send("GET", "/accelerator/v2/devices").body
    assert cloud.devices(LIAR, lying).status == 400
    assert cloud.send("GET", "/accelerator/v2/devices").body == before


def test_a_text_that_is_too_long_for_its_column_of_devices_is_refused():
    """Also of a column that is added later: PostgreSQL would refuse it with a 500, and SQLite store it."""
    (report,) = device_reports(AttachState(devices=many_gpus(1), rp_uuids={}))
    check_device_reports(LIAR, [report])
    columns = {column.name: column.type for column in devices.columns}
    texts = [name for name, kind in columns.items() if isinstance(kind, String) and hasattr(report, name)]
    assert set(texts) >= {"address", "type", "vendor", "model", "health"}
    for name in texts:
        with pytest.raises(Invalid):
            check_device_reports(LIAR, [replace(report, **{name: "x" * (columns[name].length + 1)})])


def test_a_device_or_a_deployable_twice_in_one_report_is_refused(cloud):
    def twice(report):
        report["deployables"] = [*report["deployables"], replace_name(report["deployables"][0])]

    def replace_name(part):
        return part | {"handles": []}

    assert cloud.devices(LIAR, twice).status == 400


def test_a_binding_to_a_handle_that_no_table_can_hold_fails(cloud):
    uuid, instance = cloud.request(), new_instance()
    assert cloud.bind(LIAR, uuid, instance).status == 202
    (job,) = cloud.jobs(LIAR)
    assert cloud.end(LIAR, job, {"handles": {uuid: f"{CARD}_{'t' * 90}_1"}, "states": {}}) == 200
    assert cloud.send("GET", f"/accelerator/v2/accelerator_requests/{uuid}").body["state"] == "BindFailed"


def test_the_result_of_programming_with_an_endless_id_is_refused(cloud):
    parts = cloud.send("GET", "/accelerator/v2/deployables").body["deployables"]
    part = next(one["uuid"] for one in parts if one["name"] == f"{LIAR}_{CARD}")
    wanted = [{"path": "/program", "op": "replace", "value": [{"image_uuid": new_instance()}], "wait_s": 0}]
    assert cloud.send("PATCH", f"/accelerator/v2/deployables/{part}/program", wanted).status == 200
    (job,) = cloud.jobs(LIAR)
    assert cloud.end(LIAR, job, {"bitstream_id": "b" * 256}) == 400
    assert cloud.end(LIAR, job, {"bitstream_id": "b" * 255}) == 200


@pytest.mark.parametrize(
    "at", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
def test_a_record_of_an_impossible_time_is_refused(cloud, at):
    """The fault: a 500, where the time had no equal in UTC."""
    record = {"sequence": 1, "at": at, "what": {"event": "attach", "deployable": CARD, "handle": CARD}}
    seen = cloud.from_host(LIAR, "POST", f"/hosts/{LIAR}/history", {"records": [record]})
    assert (seen.status, "year" in str(seen.body)) == (400, True)


@pytest.mark.parametrize("huge", [HUGE + 1, 1 << 62])
def test_a_host_cannot_take_the_epochs_of_its_next_agents(cloud, huge):
    """The fault: after one report with the highest epoch, each agent of the host got one that the API refuses."""
    assert cloud.devices(LIAR, epoch=huge, number=1).status == 400
    position = cloud.from_host(LIAR, "POST", f"/hosts/{LIAR}/epoch", {}).body
    assert cloud.devices(LIAR, epoch=position["epoch"], number=huge).body["is_stored"] is False
    assert cloud.devices(LIAR, epoch=huge, number=huge).status == 400
    assert cloud.devices(LIAR, **position).body["is_stored"] is True


def test_a_host_that_believes_in_the_highest_allowed_epoch_still_starts(cloud):
    assert cloud.devices(LIAR, epoch=HUGE, number=HUGE).body["is_stored"] is False
    position = cloud.from_host(LIAR, "POST", f"/hosts/{LIAR}/epoch", {}).body
    assert position["epoch"] == HUGE + 1
    assert cloud.devices(LIAR, **position).body["is_stored"] is True
    other = cloud.from_host(VICTIM, "POST", f"/hosts/{VICTIM}/epoch", {}).body
    assert other == {"epoch": 1, "number": 1}
