"""Binding without a free handle is refused at once with the reason, unless another server is just releasing one.

Spec: docs/evidence/specs/accelerator-attach.md
"""

import pytest

from tests.unit.accelerator.rig import GPU, HOST, fault, gpu, new_instance, rp
from tests.wire.accelerator.test_binding import CARD, Plane


@pytest.fixture
def plane(tmp_path, wire, process, clock):
    return Plane(tmp_path, wire, process.engine("accelerator"), clock)


def test_binding_without_a_free_handle_is_refused_at_once_with_the_reason(plane):
    plane.profile("card", CARD)
    (first,), (second,) = plane.requests("card"), plane.requests("card")
    plane.bind({first["uuid"]: rp(GPU)}, new_instance())
    for _ in range(2):  # while the first one is being bound, and afterwards
        refused = plane.bind({second["uuid"]: rp(GPU)}, new_instance())
        assert refused.status == 409
        assert (
            refused.fault
            == f"{HOST}_{GPU} has 0 free of 1 accelerators (1 bound or being bound, 0 quarantined); 1 are requested."
        )
        plane.run_host()
    assert plane.state_of(second["uuid"]) == "Initial"
    plane.rig.order(fault("clean"))
    plane.wire("DELETE", f"/v2/accelerator_requests/{first['uuid']}", role="service")
    plane.run_host()
    plane.rig.agent.run_once()
    refused = plane.bind({second["uuid"]: rp(GPU)}, new_instance())
    assert (refused.status, "(0 bound or being bound, 1 quarantined)" in refused.fault) == (409, True)
    plane.rig.order()
    plane.rig.agent.release_quarantined(GPU)
    plane.rig.agent.run_once()
    assert plane.bind({second["uuid"]: rp(GPU)}, new_instance()).status == 202
    plane.run_host()
    assert plane.state_of(second["uuid"]) == "Bound"


def test_binding_waits_for_a_device_that_is_being_released(plane):
    """Nova schedules the next server as soon as the requests of the previous one are deleted, while the host cleans."""
    plane.profile("card", CARD)
    (first,), (second,) = plane.requests("card"), plane.requests("card")
    plane.bind({first["uuid"]: rp(GPU)}, new_instance())
    plane.run_host()
    plane.wire("DELETE", f"/v2/accelerator_requests/{first['uuid']}", role="service")
    (cleaning,) = plane.wire.client().claim_jobs(HOST, "the worker that cleans")
    assert plane.bind({second["uuid"]: rp(GPU)}, new_instance()).status == 202
    plane.run_host()
    assert plane.state_of(second["uuid"]) == "BindStarted"
    states = plane.rig.agent.unbind_instance(cleaning.payload["instance_uuid"])
    plane.wire.client().report_job(cleaning.id, cleaning.epoch, "done", {"states": states})
    plane.clock.sleep(2)
    plane.run_host()
    assert plane.state_of(second["uuid"]) == "Bound"
    assert plane.send_events() == [(second["uuid"], "completed")]


def test_a_binding_whose_own_request_was_deleted_does_not_wait_for_itself(plane):
    """It would be repeated ten times, and the bindings behind it would wait."""
    plane.profile("card", CARD)
    (arq,) = plane.requests("card")
    instance = new_instance()
    assert plane.bind({arq["uuid"]: rp(GPU)}, instance).status == 202
    plane.rig.plug(new_instance(), gpu(), GPU)  # the host's last handle; the service does not know yet
    assert plane.wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service").status == 204
    plane.run_host()
    plane.clock.sleep(3)
    assert plane.wire.client().claim_jobs(HOST, "worker") == [], "a job is left"
