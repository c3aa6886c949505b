"""systemd accepts the units, and the server sends the notifications that they need."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system.planes import DEADLINE_S, MOORAGE, PlaneProcess

pytestmark = pytest.mark.slow

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
#: Maximum exposure by `systemd-analyze security`: 0 is fully restricted, 100 a unit without restrictions.
EXPOSURE = {"moorage.service": 20, "moorage@.service": 20, "moorage-agent.service": 60}


@pytest.fixture(scope="module")
def analyze():
    """`systemd-analyze`, installed if necessary; it needs no running systemd."""
    if not shutil.which("systemd-analyze"):
        if os.geteuid() or not shutil.which("apt-get"):
            pytest.fail("systemd-analyze is not here; install systemd (Debian: apt-get install systemd)", pytrace=False)
        subprocess.run(["apt-get", "update", "-qq"], check=False, stdout=subprocess.DEVNULL)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "systemd"],
            check=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return shutil.which("systemd-analyze")


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    """The units, with the `moorage` of this environment, because systemd checks that the program exists."""
    directory = tmp_path_factory.mktemp("units")
    for path in UNITS.glob("*.service"):
        (directory / path.name).write_text(path.read_text().replace("/usr/bin/moorage", str(MOORAGE)))
    return directory


def test_every_unit_has_a_limit_for_its_exposure():
    assert set(EXPOSURE) == {path.name for path in UNITS.glob("*.service")}


@pytest.mark.parametrize("name", sorted(EXPOSURE))
def test_systemd_accepts_each_unit(analyze, units, name):
    unit = name.replace("@.", "@placement.")
    (units / unit).write_text((units / name).read_text())
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(units / unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(("name", "bound"), sorted(EXPOSURE.items()))
def test_the_exposure_of_each_unit_is_below_its_limit(analyze, units, name, bound):
    unit = units / name.replace("@.", "@placement.")
    unit.write_text((units / name).read_text())
    done = subprocess.run(
        [analyze, "security", "--offline=yes", f"--threshold={bound}", "--no-pager", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_the_server_notifies_systemd_when_it_is_ready_and_when_it_stops(tmp_path, monkeypatch):
    """``Type=notify``, with ``NotifyAccess=all``, because the worker notifies."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        config = tmp_path / "state" / "moorage.conf"
        with PlaneProcess(config, "--port", str(free_port())).launch() as plane:
            assert manager.recv(100) == b"READY=1"
            assert plane.transport("/placement").send("GET", "/healthcheck", {}).status == 200
            plane.process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert plane.process.wait(DEADLINE_S) == 0
