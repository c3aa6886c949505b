"""The tour leaves nothing behind when it is stopped half-way. (`make demo` runs the tour itself.)"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.system.planes import until

pytestmark = pytest.mark.slow


def plane_processes(directory):
    """Processes with a file below `directory` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(directory).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_stopped_tour_stops_its_plane(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the directory of the plane's state, by which its processes are found
    waits = tmp_path / "openstack"
    waits.write_text("#!/bin/sh\nexec sleep 60\n")
    waits.chmod(0o700)
    log = tmp_path / "log"
    with log.open("w") as out:
        tour = subprocess.Popen(
            [sys.executable, ROOT / "tools" / "demo.py", "--clients", tmp_path], stdout=out, stderr=out
        )
    until(lambda: "ready after" in log.read_text() or tour.poll() is not None, timeout_s=120)
    tour.send_signal(signal.SIGTERM)
    assert tour.wait(20) == 128 + signal.SIGTERM, log.read_text()
    assert not plane_processes(tmp_path)
    assert not list(tmp_path.glob("moorage-tour-*"))
    assert "Traceback" not in log.read_text()
