"""SIGKILL while a region is being programmed: the next agent knows, mends it, and serves the same plug."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import os_acc
from moorage.accelerator.checkpoint import Checkpoint
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from os_acc import exception
from tests.unit.accelerator.rig import AES, HOST, R1, TYPE_R1, Rig, fpga, new_instance, rp

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@contextmanager
def agent_process(directory):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("agent_process.py"), directory], cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(condition, what, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)


def test_an_agent_killed_while_programming(tmp_path):
    """R27, R31 and the tour's last step: nothing is double-allocated, no device is lost, the retry succeeds."""
    here = Rig(tmp_path, clock=SystemClock())
    here.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    neighbour, instance = ({"uuid": new_instance(), "name": name, "project_id": "1" * 32} for name in ("old", "new"))
    held = here.plug(neighbour["uuid"], fpga(), "0000:3b:00.0_R2")
    here.order(program=60.0)
    here.agent.close()
    os_acc.configure(str(tmp_path / "acc.sock"), contact_timeout_s=60)
    outcome = []

    def plug():
        try:
            outcome.append(os_acc.plug(instance, {"": [rp(R1)]}, fpga(function=AES)))
        except exception.OsAccException as error:
            outcome.append(error)

    with agent_process(tmp_path) as first:
        os_acc.initialize()
        with pytest.raises(StartError, match="another process works with"):  # R31: two agents
            Checkpoint(tmp_path / "agent" / "checkpoint.json", HOST)
        caller = threading.Thread(target=plug)
        caller.start()
        devices = tmp_path / "sim" / "devices.json"
        until(lambda: devices.exists() and b'"programming"' in devices.read_bytes(), "programming")
        os.kill(first.pid, signal.SIGKILL)
        caller.join(30)
    assert isinstance(outcome[0], exception.CyborgAgentUnavailable)
    here.order(program=0.0)
    with agent_process(tmp_path):
        os_acc.initialize()
        plug()
        assert outcome[1] == [{"pci_id": "0000:3b:00.1"}]
        both = [os_acc.plug(one, {"": [rp(R1)]}, fpga(function=AES)) for one in (instance, {"uuid": new_instance()})]
        assert both == [[{"pci_id": "0000:3b:00.1"}], [{"pci_id": "0000:3b:00.2"}]]
        assert os_acc.unplug(neighbour) == len(held) == 1
