"""A report of a host that arrives late changes nothing: a newer report, or the result of a job, counts.

Reports are sent beside jobs, so a report may have been made before a job's end and arrive after its result.
"""

from datetime import timedelta

import pytest

from moorage.accelerator.model.errors import NotReady
from moorage.accelerator.model.reports import Superseded
from moorage.core.errors import Unavailable
from moorage.wire.transports import ClientResponse
from tests.plane import Way
from tests.unit.accelerator.rig import GPU, HOST, Rig, gpu, new_instance, rp
from tests.wire.accelerator.conftest import Wire
from tests.wire.accelerator.test_binding import CARD, Plane

ATTACHMENTS, DEVICES = (f"PUT /agent/v1/hosts/{HOST}/{what}" for what in ("attachments", "devices"))


@pytest.fixture
def way() -> Way:
    return Way()


@pytest.fixture
def plane(tmp_path, process, way) -> Plane:
    plane = Plane(
        tmp_path, Wire(way.over(process.transport("/accelerator"))), process.engine("accelerator"), process.clock
    )
    plane.profile("card", CARD)
    return plane


def bound(plane, instance) -> str:
    (arq,) = plane.requests("card")
    assert plane.bind({arq["uuid"]: rp(GPU)}, instance).status == 202
    plane.run_host()
    return arq["uuid"]


def released(plane, instance) -> None:
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service").status == 204
    plane.run_host()


def at_the_next(way, what, act) -> list[ClientResponse]:
    """`act` happens after the next request `what` was made, and before it arrives. Returns the list of its answer."""
    answers = []

    def around(_request, send):
        act()
        answers.append(send())
        return answers[-1]

    way.on(what, around, times=1)
    return answers


def handle_states(plane) -> dict[str, str]:
    rows = plane.wire("GET", f"/moorage/v1/handles?host={HOST}").body["handles"]
    return {row["handle"]: row["state"] for row in rows if row["deployable"].endswith(GPU)}


def restarted(plane) -> None:
    """A new agent on the files of the old one."""
    plane.rig.agent.close()
    plane.rig.restart()
    plane.rig.agent._reports = plane.wire.client()


@pytest.mark.parametrize("kind", [ATTACHMENTS, DEVICES])
def test_a_late_report_does_not_add_an_attachment_again_that_was_released(plane, way, kind):
    """The fault: the report added a row for the handle, and the next binding of the handle failed with it."""
    first, second = new_instance(), new_instance()
    bound(plane, first)
    answers = at_the_next(way, kind, lambda: released(plane, first))
    plane.rig.agent.run_once()
    assert [one.status for one in answers] == [200]
    assert plane.of(first).body["arqs"] == []
    assert handle_states(plane) == {GPU: "free"}
    arq = bound(plane, second)
    assert plane.state_of(arq) == "Bound"


def attached(instance, handle=GPU) -> dict[str, object]:
    """An attachment as a host reports it."""
    return {
        "instance_uuid": instance, "project_id": "p", "device_rp_uuid": rp(GPU), "deployable": GPU, "group": 0,
        "pci_id": handle,
    }  # fmt: skip


def report(plane, *attachments):
    """A report of an agent of the release before, which has no place in an order."""
    body = {"attachments": list(attachments)}
    return plane.wire("PUT", f"/agent/v1/hosts/{HOST}/attachments", body=body)


def test_a_binding_succeeds_although_a_late_report_of_an_older_agent_has_the_handle(plane):
    """The result of the job is newer, and counts."""
    first, second = new_instance(), new_instance()
    bound(plane, first)
    released(plane, first)
    (arq,) = plane.requests("card")
    plane.bind({arq["uuid"]: rp(GPU)}, second)
    assert report(plane, attached(first)).status == 204
    plane.run_host()
    assert plane.state_of(arq["uuid"]) == "Bound"
    assert plane.of(first).body["arqs"] == []


def test_a_report_does_not_take_the_handle_of_a_bound_request(plane):
    first = new_instance()
    arq = bound(plane, first)
    assert report(plane, attached(new_instance())).status == 204
    assert [one["uuid"] for one in plane.wire("GET", "/v2/accelerator_requests").body["arqs"]] == [arq]


def test_a_report_of_a_new_holder_counts_although_the_release_by_the_old_one_is_not_reported_yet(plane):
    """The host has released the handle and given it to a server of `os_acc`; the result of the first job is missing."""
    first, second = new_instance(), new_instance()
    bound(plane, first)
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={first}", role="service").status == 204
    (job,) = plane.wire.client().claim_jobs(HOST, "worker")
    states = plane.rig.agent.unbind_instance(first)
    plane.rig.plug(second, gpu(), GPU)
    plane.rig.agent.run_once()
    assert [one["attach_handle_info"]["bus"] for one in plane.of(second).body["arqs"]] == ["17"]
    plane.wire.client().report_job(job.id, job.epoch, "done", {"states": states})
    assert [one["state"] for one in plane.of(second).body["arqs"]] == ["Bound"]


def test_a_handle_that_a_report_names_twice_is_refused(plane):
    twice = report(plane, attached(new_instance()), attached(new_instance()))
    assert (twice.status, GPU in twice.fault) == (400, True)
    assert plane.wire("GET", "/v2/accelerator_requests").body["arqs"] == []


@pytest.mark.parametrize("handles", [["nonsense", "0000:19:00.0"], [GPU, GPU], ["0" * 10_000, GPU]])
def test_the_result_of_a_binding_with_wrong_handles_fails_the_binding(plane, handles):
    plane.profile("two", CARD, CARD)
    first, second = plane.requests("two")
    assert plane.bind({first["uuid"]: rp(GPU), second["uuid"]: rp("0000:65:00.0")}, new_instance()).status == 202
    (job,) = plane.wire.client().claim_jobs(HOST, "worker")
    named = dict(zip((first["uuid"], second["uuid"]), handles, strict=True))
    plane.wire.client().report_job(job.id, job.epoch, "done", {"handles": named})
    assert [plane.state_of(one["uuid"]) for one in (first, second)] == ["BindFailed"] * 2


def test_an_answer_that_is_lost_makes_the_agent_report_again(plane, way):
    """The service stored the report, so the repetition is older than what it has; the agent makes a new one."""

    def lose(_request, send):
        send()
        raise Unavailable("the answer was lost")

    way.on(ATTACHMENTS, lose, times=1)
    instance = new_instance()
    plane.rig.plug(instance, gpu(), GPU)
    plane.rig.agent.run_once()
    assert len(plane.of(instance).body["arqs"]) == 1
    assert handle_states(plane) == {GPU: "attached"}


def test_a_report_of_an_agent_that_was_restarted_meanwhile_changes_nothing(plane, way):
    """The next agent has a higher epoch, although its clock is an hour behind."""
    instance = new_instance()
    plane.rig.plug(instance, gpu(), GPU)
    plane.rig.agent.run_once()

    def restart():
        plane.clock.sleep(-3600)
        restarted(plane)
        plane.rig.unplug(instance)
        plane.rig.agent.run_once()

    old = plane.rig.agent
    answers = at_the_next(way, ATTACHMENTS, restart)
    old.run_once()
    with pytest.raises(Superseded):
        old.check_counts()
    assert [one.status for one in answers] == [409]
    assert plane.of(instance).body["arqs"] == []
    assert handle_states(plane) == {GPU: "free"}


def test_of_two_agents_of_a_host_the_older_one_loses_and_says_so(tmp_path, plane, caplog):
    older, newer = plane.rig, Rig(tmp_path / "other directory", clock=plane.clock)
    newer.agent._reports = plane.wire.client()
    older.agent.run_once()
    newer.agent.run_once()
    older.agent.run_once()
    (message,) = [record.why for record in caplog.records if record.levelname == "ERROR"]
    assert "another accelerator agent" in message
    assert f"host {HOST}" in message
    assert "which started after this one, has reported since" in message
    with pytest.raises(NotReady, match="another accelerator agent"):
        older.plug(new_instance(), gpu(), GPU)
    with pytest.raises(Superseded):
        older.agent.check_counts()
    newer.plug(new_instance(), gpu(), GPU)
    newer.agent.run_once()
    assert handle_states(plane) == {GPU: "attached"}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_late_request_for_an_epoch_does_not_end_that_of_the_agent_that_reports(plane, way, is_restarted):
    """The fault: its agent had asked again, or had been started again, and was refused from then on."""
    late = []

    def delay(_request, send):
        late.append(send)
        raise Unavailable("no answer in time")

    restarted(plane)
    way.on(f"POST /agent/v1/hosts/{HOST}/epoch", delay, times=1)
    plane.rig.agent.run_once()
    if is_restarted:
        restarted(plane)
        plane.rig.agent.run_once()
    assert late[0]().status == 200
    instance = new_instance()
    plane.rig.plug(instance, gpu(), GPU)
    plane.rig.agent.run_once()
    plane.rig.agent.check_counts()
    assert len(plane.of(instance).body["arqs"]) == 1


def test_a_late_first_report_of_a_dead_agent_does_not_end_the_epoch_of_the_next(plane, way):
    old, new = new_instance(), new_instance()
    plane.rig.plug(old, gpu(), GPU)
    restarted(plane)

    def restart():
        restarted(plane)
        plane.rig.unplug(old)
        plane.rig.plug(new, gpu(), GPU)
        plane.rig.agent.run_once()

    dead = plane.rig.agent
    answers = at_the_next(way, ATTACHMENTS, restart)
    dead.run_once()
    assert [one.status for one in answers] == [409]
    plane.rig.agent.run_once()
    plane.rig.agent.check_counts()
    assert (plane.of(old).body["arqs"], len(plane.of(new).body["arqs"])) == ([], 1)


def test_an_agent_keeps_its_epoch_if_the_service_is_restored_from_a_backup(plane, process):
    """The table then has an epoch of before, or none."""
    instance = new_instance()
    plane.rig.plug(instance, gpu(), GPU)
    plane.rig.agent.run_once()
    with process.engine("accelerator").begin() as connection:
        connection.exec_driver_sql("DELETE FROM host_reports")
    plane.rig.unplug(instance)
    plane.rig.agent.run_once()
    assert plane.of(instance).body["arqs"] == []
    plane.rig.agent.check_counts()


def test_an_agent_reports_to_a_service_of_the_release_before(plane, way):
    """It has no epochs; and when it is upgraded, the same agent gets one."""
    way.clear()
    way.on(f"POST /agent/v1/hosts/{HOST}/epoch", lambda _request, _send: ClientResponse(404, {}, b"{}"))
    restarted(plane)
    instance = new_instance()
    plane.rig.plug(instance, gpu(), GPU)
    plane.rig.agent.run_once()
    assert len(plane.of(instance).body["arqs"]) == 1
    assert [b"epoch" in one.body for one in way.requests if one.method == "PUT"] == [False, False]
    way.clear()
    plane.rig.unplug(instance)
    plane.rig.agent.run_once()
    assert plane.of(instance).body["arqs"] == []
    assert [b"epoch" in one.body for one in way.requests if one.method == "PUT"] == [True, True]


def test_a_report_is_made_again_after_each_job_and_at_last_put_off(plane, way):
    """Jobs that end during each report must not keep the agent in a loop."""
    now = plane.clock.now()

    def busy(_request, send):
        instance = new_instance()
        bound(plane, instance)
        released(plane, instance)
        return send()

    way.on(ATTACHMENTS, busy)
    assert plane.rig.agent.run_once() == now + timedelta(seconds=1)
    way.clear()
    assert plane.rig.agent.run_once() == now + timedelta(seconds=30)
