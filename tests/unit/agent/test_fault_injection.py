"""Faults and latencies of a simulated host, which a control file sets."""

import json

import pytest

from moorage.agent.virt.driver import VirtError
from moorage.agent.virt.fault_injection import FaultInjection


@pytest.fixture
def control(tmp_path):
    return tmp_path / "control.json"


def write(control, **what):
    """Replaces the file by a new one, because a changed file may have the same modification time."""
    draft = control.with_name("new")
    draft.write_text(json.dumps(what))
    draft.replace(control)


def test_without_a_control_file_there_are_no_faults_and_no_latencies(control):
    injection = FaultInjection(control=control)
    injection.check("spawn", "web")
    assert injection.operation_latency_s("spawn") == 0.0


def test_the_control_file_may_be_created_changed_and_removed_at_any_time(control):
    injection = FaultInjection({"stop": 1.0}, control)
    write(control, latency_s={"spawn": 2.5})
    assert [injection.operation_latency_s(operation) for operation in ("spawn", "stop", "start")] == [2.5, 1.0, 0.0]
    write(control, latency_s={"stop": 3.0})
    assert [injection.operation_latency_s(operation) for operation in ("spawn", "stop")] == [0.0, 3.0]
    control.unlink()
    assert injection.operation_latency_s("stop") == 1.0


def test_a_fault_happens_as_often_as_set_and_only_to_the_named_server(control):
    injection = FaultInjection(control=control)
    write(control, faults=[{"operation": "spawn", "message": "no space left", "times": 2, "name": "web"}])
    injection.check("spawn", "db")
    injection.check("stop", "web")
    for _ in range(2):
        with pytest.raises(VirtError, match="no space left"):
            injection.check("spawn", "web")
    injection.check("spawn", "web")
    write(control, faults=[{"operation": "spawn", "message": "no space left", "times": 1}])
    with pytest.raises(VirtError, match="no space left"):
        injection.check("spawn", "anybody")


def test_a_fault_without_a_number_happens_every_time(control):
    injection = FaultInjection(control=control)
    write(control, faults=[{"operation": "spawn", "message": "no space left"}])
    for _ in range(5):
        with pytest.raises(VirtError, match="no space left"):
            injection.check("spawn", "web")


def test_a_control_file_that_cannot_be_read_fails_the_operation_and_is_named(control):
    injection = FaultInjection(control=control)
    control.write_text('{"fault": []}')
    with pytest.raises(VirtError, match=r"control\.json: a simulated host cannot read this file: .*fault"):
        injection.check("spawn", "web")
