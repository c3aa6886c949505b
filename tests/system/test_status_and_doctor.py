"""`moorage status` and `moorage doctor` beside a running plane, and beside a stopped one."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system.planes import PlaneProcess, moorage, until

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operations.md"
SERVICES = {"identity", "placement", "compute", "accelerator", "reservation", "image", "network"}


def commands():
    """The commands of the guide's first two parts."""
    parts = GUIDE.read_text().split("\n## ")[1:3]
    return [shlex.split(line)[1:] for part in parts for line in re.findall(r"^\$ (moorage .+)$", part, re.MULTILINE)]


def output_of(plane, *words):
    """(exit status, what it prints)"""
    done = moorage(*words, "--config", plane.config)
    assert not done.stderr
    return done.returncode, done.stdout


def test_status_and_doctor_report_a_running_and_a_stopped_plane(tmp_path):
    with PlaneProcess(tmp_path / "state" / "moorage.conf", "--port", str(free_port())) as plane:
        clients = plane.clients()
        until(lambda: json.loads(output_of(plane, "status", "--json")[1])["hosts"])
        code, text = output_of(plane, "status", "--json")
        status = json.loads(text)
        assert {service["name"]: service["state"] for service in status["services"]} == dict.fromkeys(SERVICES, "ok")
        assert {one["service"]: one["state"] for one in status["databases"]} == dict.fromkeys(
            ("identity", "placement", "compute", "accelerator", "reservation", "network"), "current"
        )
        assert all(one["at"] == one["head"] for one in status["databases"])
        assert status["hosts"] == [{"name": "compute-1", "is_up": True}]
        assert status["leases"] == {"due": 0, "late_s": 0.0, "failed": 0}
        assert {"placement-retention"} <= {task["name"] for task in status["duties"]}
        assert status["pid"] == plane.process.pid
        assert code == 0

        plane.slow_down(program=600)
        clients.create_server(flavor=clients.create_fpga_flavor())
        plane.wait_for_programming()
        (compute, *_) = json.loads(output_of(plane, "status", "--json")[1])["jobs"]
        assert (compute["service"], compute["claimed"]) == ("compute", 1)

        code, text = output_of(plane, "status")
        assert code == 0
        assert "hosts    1 up, 0 down" in text
        assert "jobs     compute: 0 waiting, 1 in progress" in text
        assert max(map(len, text.splitlines()[1:])) <= 100

        code, text = output_of(plane, "doctor", "--json")
        found = json.loads(text)
        # The state of this machine's disks must not change the result.
        worse = [
            one for one in found["findings"] if one["severity"] != "fine" and one["check"] not in ("disk", "images")
        ]
        assert worse == []
        assert (code == 0) is (found["worst"] == "fine")
        assert {one["check"].partition(":")[0] for one in found["findings"]} - {"images"} == {
            "python", "packages", "files", "provider-config", "disk", "policy", "database", "bus", "endpoint",
            "devices", "host",
        }  # fmt: skip
        (plane.state / "token.key").chmod(0o644)
        code, text = output_of(plane, "doctor")
        assert code == 3
        assert re.search(r"broken +files", text)
        assert "chmod 600" in text
        (plane.state / "token.key").chmod(0o600)

        for command in commands():
            code, text = output_of(plane, *command)
            assert code in (0, 1), (command, text)

        plane.kill()
        code, text = output_of(plane, "status")
        assert code == 3
        assert "not running here" in text
        assert "hosts    unknown" in text
        code, text = output_of(plane, "doctor")
        assert code >= 1
        assert "run `moorage up`" in text
