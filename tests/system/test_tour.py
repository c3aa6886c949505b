"""The tour of `make demo`: the whole plane, walked with the unmodified clients; and the README that shows it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import Clients

ROOT = Path(__file__).parents[2]

#: What differs from run to run: ids (the README shortens them), the port, a moment.
_VARYING = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}…"), "ID"),
    (re.compile(r"[0-9A-F]{8}(_[0-9A-F]{4}){3}_[0-9A-F]{12}|[0-9A-F]{8}…"), "ID"),
    (re.compile(r"--port \d+"), "--port PORT"),
    (re.compile(r'"\d{4}-\d\d-\d\d \d\d:\d\d"'), "MOMENT"),
]


def steps(text: str) -> list[str]:
    """The titles, commands and checks in `text`, without what varies."""
    text = re.sub(r" \\\n +", " ", text)
    found = []
    for line in text.splitlines():
        if line.startswith(("== ", "$ ", "   ok: ")):
            found.append(_alike(line))
    return found


def _alike(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line


@pytest.mark.slow
@pytest.mark.clients
def test_the_tour_holds_and_is_what_the_readme_shows():
    with Clients() as clients:
        done = subprocess.run(
            [sys.executable, "tools/demo.py", "--clients", str(clients.directory)],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith(("OS_", "MOORAGE_"))},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "The tour is done" in done.stdout
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme[readme.index("## The tour") : readme.index("## Use it")]
    assert steps(shown) == steps(done.stdout)
