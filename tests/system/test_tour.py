"""The tour of `make demo`: the whole plane with the unmodified clients; and the page that shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import python_of
from tests.programs import moorage_server
from tests.system.planes import COMMAND, first_config, furnish, without_ours

pytestmark = [pytest.mark.slow, pytest.mark.clients]

ROOT = Path(__file__).parents[2]

#: What differs from run to run: ids (the page shortens them), the port, a time.
_VARYING = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}…"), "ID"),
    (re.compile(r"[0-9A-F]{8}(_[0-9A-F]{4}){3}_[0-9A-F]{12}|[0-9A-F]{8}…"), "ID"),
    (re.compile(r"--port \d+"), "--port PORT"),
    (re.compile(r'"\d{4}-\d\d-\d\d \d\d:\d\d"'), "MOMENT"),
]


def steps(text: str) -> list[str]:
    """The titles, commands and checks in `text`, without the parts that differ."""
    text = re.sub(r" \\\n +", " ", text)
    found = []
    for line in text.splitlines():
        if line.startswith(("== ", "$ ", "   ok: ")):
            found.append(_without_varying_parts(line))
    return found


def _without_varying_parts(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line


def tour(*options: object) -> str:
    """The output of the tour, which must succeed."""
    done = subprocess.run(
        [sys.executable, "tools/demo.py", "--clients", python_of(".venv-clients").parent, *options],
        cwd=ROOT, env=without_ours(), capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "The tour is done" in done.stdout
    return done.stdout


def test_the_tour_succeeds_and_the_page_shows_its_output():
    said = tour()
    assert said.startswith("The tour of Moorage, in two minutes.")
    assert "What to try next:" in said
    assert "3 starts of the client" in said, "one client process runs the commands between two starts of the plane"
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    assert steps(page) == steps(said)


@pytest.mark.core
def test_the_short_tour_succeeds(tmp_path):
    """Providers, a custom class, a programmed FPGA, and a lease that starts and ends, by the stock clients."""
    furnish(first_config(tmp_path / "moorage.conf"))
    said = tour("--short", "--state", tmp_path, "--moorage", moorage_server().executable("moorage", COMMAND))
    for command in (
        "resource provider list",
        "server create llc-1",
        "server create crypto-1",
        "lease create",
        "advance",
    ):
        assert f"{command} " in said
