"""A start imports only the modules that it needs, because imports take most of the time of `moorage up`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import moorage

#: Modules that Placement alone does not need: of other services, databases, interfaces and commands.
NOT_NEEDED = {
    "alembic",
    "bcrypt",
    "jinja2",
    "jsonschema",
    "keystoneauth1",
    "keystonemiddleware",
    "libvirt",
    "moorage.accelerator",
    "moorage.agent",
    "moorage.audit",
    "moorage.compute",
    "moorage.dashboard",
    "moorage.identity.embedded",
    "moorage.images",
    "moorage.placement.importing.importer",
    "moorage.reservation",
    "moorage.scheduler",
    "pika",
    "psycopg",
    "pymysql",
    "rich",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
    "yaml",
}

START = """
import sys
from pathlib import Path
import moorage.cli.commands.up, moorage.cli.serve
from moorage.config import load_config
from moorage.wiring import build_plane
from moorage.wire.transports import InProcessTransport

plane = build_plane(load_config(Path(sys.argv[1])))
plane.start()
answer = InProcessTransport(plane.app, "/placement").send("GET", "/resource_providers", {}, None)
assert answer.status == 200, answer
plane.stop()
"""


def loaded(script, *arguments):
    """Names of the modules that are loaded after the script."""
    script += "\nimport sys; print('\\n'.join(sys.modules))"
    env = os.environ | {"PYTHONPATH": str(Path(moorage.__file__).parent.parent)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_option_version_imports_neither_a_server_nor_a_database():
    names = loaded("from moorage.cli.main import cli\ncli(['--version'], standalone_mode=False)")
    assert not names & {"falcon", "numpy", "orjson", "rich", "sqlalchemy", "yaml", "moorage.config"}


def test_the_supervisor_process_imports_neither_services_nor_a_database():
    """The supervisor starts first; its worker imports the modules of the services."""
    names = loaded("import moorage.cli.commands.up")
    assert not names & {"falcon", "numpy", "sqlalchemy", "moorage.placement", "moorage.wire", "moorage.wiring"}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "moorage.conf"
    path.write_text("[plane]\nservices = placement\nstate_path = .\n[identity]\nmode = none\n")
    loaded(START, path)  # runs the migrations, for which it imports more modules
    return path


def test_placement_alone_starts_and_answers_without_modules_of_other_services(config):
    names = loaded(START, config)
    assert "moorage.placement.forest.forest" in names
    assert sorted(names & NOT_NEEDED) == []
