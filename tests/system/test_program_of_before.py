"""The previous release's program on databases that today's program has upgraded and used."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest

from tests.conftest import START
from tests.system.planes import VirtualPlane
from tests.system.previous_program import unpack_previous_program
from tests.system.test_tomorrows_schema import work

pytestmark = pytest.mark.slow

#: Runs in the previous release's program, with the names that its own tests had.
DAY = """
import sys
from datetime import datetime
from pathlib import Path
from tests.system.planes import VirtualPlane
from tests.system.test_tomorrows_schema import work

at = datetime.fromisoformat(sys.argv[2])
with VirtualPlane(Path(sys.argv[1]), at, seed=2) as plane:
    work(plane, at)
import moorage
print(Path(moorage.__file__))
"""


def test_the_previous_release_works_on_databases_that_this_release_has_used(tmp_path):
    release = unpack_previous_program(tmp_path)
    directory = tmp_path / "plane"
    with VirtualPlane(directory, START) as plane:
        plane.create_fpga_flavor()
        work(plane, START)
    later = START + timedelta(hours=6)
    done = subprocess.run(
        [sys.executable, "-c", DAY, directory, later.isoformat()],
        env=os.environ | {"PYTHONPATH": f"{release / 'src'}:{release}"},
        cwd=release, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(release / "src/moorage/__init__.py"), "it was that program and no other"
    later += timedelta(hours=6)
    with VirtualPlane(directory, later, seed=3) as plane:
        work(plane, later)
