"""An agent is killed with SIGKILL: the next one finishes or undoes interrupted steps, and answers the same plug."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

import os_acc
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from os_acc import exception
from tests.unit.accelerator.rig import AES, HOST, PROJECT, R1, R2, TYPE_R1, Rig, fpga, new_instance, rp

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@contextmanager
def agent_process(directory, *point):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("agent_process.py"), directory, *point], cwd=ROOT, env=environment
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


def test_a_plug_interrupted_by_the_death_of_the_agent_succeeds_when_it_is_repeated(tmp_path):
    """R27, R31: the tour's last step: no device is allocated twice or lost, and the retry succeeds."""
    here = Rig(tmp_path, clock=SystemClock())
    here.image("aes", region_uuid=TYPE_R1, function_uuid=AES)
    neighbour, instance = ({"uuid": new_instance(), "name": name, "project_id": "1" * 32} for name in ("old", "new"))
    held = here.plug(neighbour["uuid"], fpga(), R2)
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
        with pytest.raises(StartError, match="another process uses"):  # R31: two agents
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


# ---------------------------------------------------------------------------------------- at each named point

PRIVATE = {"visibility": "private", "region_uuid": TYPE_R1, "function_uuid": AES}


def a_host(directory):
    """A host with an image and a device in another region that is in use; no agent is running."""
    rig = Rig(directory, clock=SystemClock())
    rig.image("aes", **PRIVATE)
    rig.order(program=0.0)
    rig.plug(NEIGHBOUR["uuid"], fpga(), R2)
    rig.agent.close()
    return rig


NEIGHBOUR, INSTANCE = (
    {"uuid": f"00000000-0000-4000-8000-00000000000{number}", "name": "vm", "project_id": PROJECT} for number in (1, 2)
)


def points():
    """All points of an agent: its start, a plug that programs, and an unplug that writes the blank bitstream."""
    with tempfile.TemporaryDirectory(prefix="moorage-") as directory:
        rig = a_host(Path(directory))
        rig.watch.arm(None)
        rig.restart()
        rig.plug(INSTANCE["uuid"], fpga(function=AES), R1)
        rig.unplug(INSTANCE["uuid"])
        rig.agent.close()
        return list(rig.watch.points)


def test_every_step_of_an_agent_is_a_named_point():
    kinds = {point.rpartition(" ")[0] for point in points()}
    verbs = [f"simulated {verb} 0000:3b:00.1" for verb in ("prepare", "release", "clean")]
    verbs += [
        f"simulated program {R1}",
        "simulated prepare 0000:3b:00.3",
    ]  # for the neighbour's device, after a restart
    assert kinds == {f"{when} {what}" for when in ("before", "after") for what in ("checkpoint", "fetch", *verbs)}


def test_an_agent_killed_at_any_named_point_leaves_a_consistent_state(tmp_path):
    """No handle has two users; no region is programmed unverified, used while dirty, or stuck. All points with
    `EXPLORE=1`, otherwise three, the same in each run.
    """
    found = points()
    for number, point in enumerate(found if os.environ.get("EXPLORE") else Random(5).sample(found, 3)):
        killed_at(point, tmp_path / str(number))


def killed_at(point, directory):
    here = a_host(directory)
    os_acc.configure(str(directory / "acc.sock"))
    with agent_process(directory, point) as first:
        socket = directory / "acc.sock"
        until(lambda: socket.exists() or first.poll() is not None, "a socket, or its end")
        with contextlib.suppress(exception.CyborgAgentUnavailable):
            os_acc.plug(INSTANCE, {"": [rp(R1)]}, fpga(function=AES))
            os_acc.unplug(INSTANCE)
        assert first.wait(30) == -signal.SIGKILL, f"it passed {point}"
    with agent_process(directory):
        os_acc.initialize()
        assert os_acc.plug(INSTANCE, {"": [rp(R1)]}, fpga(function=AES)) == [{"pci_id": "0000:3b:00.1"}], point
        with pytest.raises(exception.NoCapacity):  # the neighbour uses that region
            os_acc.plug(INSTANCE | {"uuid": new_instance()}, {"": [rp(R2)]}, fpga())
        assert (os_acc.unplug(INSTANCE), os_acc.unplug(NEIGHBOUR)) == (1, 1), point
    here.restart()
    here.check()
    assert here.held.handles == here.held.attachments == {}, point
    assert here.carries(R1) == "", point
    here.agent.close()
