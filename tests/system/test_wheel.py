"""The wheel: built from the checkout, installed into an empty environment, it runs all services."""

import os
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.test_repository import pinned, wanted
from tests.ports import free_port
from tests.system.planes import PlaneProcess, until
from tools import install, wheel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"

#: {extra: the requirements file that pins its packages}. Those of runtime.txt are for the tests, and for `moorage up`
#: on other databases.
PINNED_BY = {
    "postgres": "runtime",
    "mysql": "runtime",
    "rabbit": "runtime",
    "keystone": "keystonemiddleware",
    "glance": "runtime",
    "libvirt": "libvirt",
    "nvidia": "nvidia",
    "otel": "otel",
    "signatures": "signatures",
    "oidc": "oidc",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return wheel.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def metadata(built):
    with zipfile.ZipFile(built) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def installed(built, metadata, tmp_path_factory):
    """The interpreter of an environment with the locked packages of a plain ``pip install moorage``."""
    environment = tmp_path_factory.mktemp("wheel") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    install.install(python, ["--require-hashes", f"--requirement={REQUIREMENTS / 'runtime.txt'}"], compiled=False)
    install.install(python, ["--no-deps", str(built)], compiled=False)
    of_extras = set(wanted(REQUIREMENTS / "runtime.in")) - plain(metadata)
    assert (
        pip(python, "uninstall", "-qq", "--yes", "psycopg-binary", *sorted(of_extras - {"setuptools"})).returncode == 0
    )
    return python


def pip(python, *words):
    """Runs this environment's pip on another environment, which has no pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def plain(metadata):
    """The names of the requirements that belong to no extra."""
    requirements = map(Requirement, metadata.get_all("Requires-Dist"))
    return {canonicalize_name(one.name) for one in requirements if one.marker is None}


def test_the_wheel_has_every_file_of_the_source_and_of_packaging_and_no_other(built, metadata):
    with zipfile.ZipFile(built) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    data = f"moorage-{metadata['Version']}.data/data/share/"
    shared = {name.removeprefix(data) for name in packed if name.startswith(data)}
    code = {name for name in packed if not name.startswith(data)}
    sources = wheel.sources()
    assert code == {name.removeprefix("src/") for name in sources if name.startswith("src/")}
    assert {name.partition("/")[0] for name in code} == {"moorage", "os_acc"}
    parts = [name.removeprefix("packaging/") for name in sources if name.startswith("packaging/")]
    assert shared == {
        ("man/man1/" if part.startswith("man/") else "moorage/") + part.removeprefix("man/") for part in parts
    }
    assert "man/man1/moorage.1" in shared


def test_the_metadata_name_the_licence_and_the_authors(built, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "Moorage contributors"
    assert "Operating System :: POSIX :: Linux" in metadata.get_all("Classifier")
    assert metadata.get_all("Project-URL") is None, "there is no address to name yet"
    (name,) = metadata.get_all("License-File")
    with zipfile.ZipFile(built) as archive:
        packed = archive.read(f"moorage-{metadata['Version']}.dist-info/licenses/{name}")
    assert packed == (ROOT / "LICENSE").read_bytes()


def test_a_plain_installation_has_all_requirements_and_none_of_an_extra(installed):
    check = pip(installed, "check")
    assert check.returncode == 0, check.stdout
    listed = pip(installed, "list", "--format=freeze").stdout.splitlines()
    names = {canonicalize_name(line.partition("==")[0]) for line in listed}
    assert "moorage" in names
    assert names & {"psycopg", "pymysql", "pika", "keystonemiddleware", "cryptography", "pip"} == set()


def test_all_services_run_from_the_installed_wheel(installed, tmp_path):
    program = installed.with_name("moorage")
    where = "import moorage.wiring, os_acc; print(moorage.wiring.__file__, os_acc.__file__)"
    found = subprocess.run([installed, "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert [Path(path).is_relative_to(installed.parents[1]) for path in found.split()] == [True, True]

    with PlaneProcess(tmp_path / "state" / "moorage.conf", "--port", str(free_port()), program=program) as plane:
        clients = plane.clients()
        for service in ("identity", "placement", "compute", "accelerator", "reservation", "image"):
            assert plane.transport(f"/{service}").send("GET", "/healthcheck", {}).status == 200
        server = clients.create_server(flavor=clients.create_fpga_flavor())
        assert clients.wait_for_status(server, "ACTIVE", "ERROR") == "ACTIVE"
        assert len(until(lambda: clients.accelerators_of(server))) == 1
        assert clients.allocations(server)["CUSTOM_ACCELERATOR_FPGA"] == 1
        # Files that are not Python: a sample, and the schema that validates it.
        own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MOORAGE_CONFIG": str(plane.config)}
        for words in ("sample", "validate"):
            command = [program, "provider-config", words]
            done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            if words == "sample":
                (tmp_path / "state" / "provider_config" / "10-sample.yaml").write_text(done.stdout)
        assert plane.stop() == 0


def test_every_extra_is_pinned_by_its_requirements_file(metadata):
    assert set(metadata.get_all("Provides-Extra")) == set(PINNED_BY)
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    for extra, lock in PINNED_BY.items():
        packages = pinned(REQUIREMENTS / f"{lock}.txt")
        for one in requirements:
            if one.marker and one.marker.evaluate({"extra": extra}):
                version, hashes = packages[canonicalize_name(one.name)]
                assert one.specifier.contains(version), f"{extra}: {one} is pinned as {version}"
                assert hashes
    for one in requirements:
        if one.marker is None:
            assert one.specifier.contains(pinned(REQUIREMENTS / "runtime.txt")[canonicalize_name(one.name)][0]), one


def test_requirements_files_of_extras_pin_the_same_versions():
    """Each file is installed together with the runtime's, so a package in two files must have one version."""
    runtime = pinned(REQUIREMENTS / "runtime.txt")
    for lock in set(PINNED_BY.values()):
        both = pinned(REQUIREMENTS / f"{lock}.txt")
        assert {name: both[name][0] for name in both if name in runtime} == {
            name: runtime[name][0] for name in both if name in runtime
        }
