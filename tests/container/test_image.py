"""The image of packaging/container: built with buildah from Debian's packages, it runs as compose.yaml runs it.

Runs only with ``make test-container``: the Debian below the image is fetched and built first, which takes minutes.
No image is pulled, so PostgreSQL is this machine's, and a chroot in a network of its own stands for the container's
runtime: what podman itself does is not tested.
"""

import json
import os
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.servers import program
from tools import deb

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "packaging" / "container"
TOOLS = ("buildah", "mmdebstrap", "unshare", "setpriv", "ip", "dpkg-deb")
MISSING = [name for name in TOOLS if shutil.which(name) is None] + (["root"] if os.geteuid() else [])

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("MOORAGE_TEST_CONTAINER" not in os.environ, reason="opt-in: make test-container"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: apt-get install buildah mmdebstrap"),
]

TIMEOUT_S = 600
PASSWORD = "0123456789abcdef"


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=TIMEOUT_S, **options
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    """Calls buildah with a storage of its own."""
    place = tmp_path_factory.mktemp("storage")

    def call(*words):
        return run("buildah", "--storage-driver=vfs", f"--root={place}/root", f"--runroot={place}/run", *words)

    yield call
    call("rm", "--all")
    call("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def base(buildah, tmp_path_factory):
    """An image of this machine's Debian."""
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    codename = next(line.partition("=")[2] for line in release.splitlines() if line.startswith("VERSION_CODENAME="))
    archive = tmp_path_factory.mktemp("base") / "base.tar"
    run("mmdebstrap", "--variant=minbase", codename, archive)
    empty = buildah("from", "scratch")
    buildah("add", empty, archive, "/")
    buildah("commit", empty, "debian-base")
    return "localhost/debian-base"


@pytest.fixture(scope="module")
def image(buildah, base, tmp_path_factory):
    context = tmp_path_factory.mktemp("context")
    deb.build(context / "dist")
    shutil.copytree(CONTAINER, context / "packaging" / "container")
    buildah(
        "build", "--isolation=chroot", f"--build-arg=BASE={base}", "--tag=moorage",
        f"--file={context}/packaging/container/Containerfile", context,
    )  # fmt: skip
    return "localhost/moorage"


@pytest.fixture(scope="module")
def settings(buildah, image):
    """The image's own settings, by OCI's names."""
    return json.loads(buildah("inspect", "--type=image", image))["OCIv1"]["config"]


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((CONTAINER / "compose.yaml").read_text(encoding="utf-8"))["services"]


def test_the_image_runs_as_moorage_and_contains_the_plane(buildah, image, settings):
    assert (settings["User"], settings["Volumes"], settings["StopSignal"]) == (
        "moorage",
        {"/var/lib/moorage": {}},
        "SIGTERM",
    )
    made = buildah("from", image)
    shown = buildah("run", "--isolation=chroot", made, "--", *settings["Entrypoint"], "--version")
    assert shown.startswith("moorage")
    owner = buildah("run", "--isolation=chroot", made, "--", "stat", "-c", "%U %a", "/var/lib/moorage")
    assert owner == "moorage 700"


@pytest.fixture
def place():
    """A directory that the user postgres may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


def test_the_services_of_compose_answer_and_stop_on_sigterm(buildah, image, settings, compose, place):
    """PostgreSQL wants the password; its databases are those of databases.sql and compose.yaml."""
    assert compose["moorage"]["volumes"] == [
        "state:/var/lib/moorage",
        "./compose.conf:/etc/moorage/moorage.conf:ro",
    ]
    database = compose["database"]["environment"]
    root = Path(buildah("mount", buildah("from", image)))
    shutil.copy(CONTAINER / "compose.conf", root / "etc" / "moorage" / "moorage.conf")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost database\n", encoding="ascii")
    server, data = Path(program("initdb")).parent, place / "data"
    data.mkdir()
    shutil.chown(data, "postgres")
    (place / "password").write_text(PASSWORD, encoding="ascii")
    command = " ".join([*settings["Entrypoint"], *settings["Cmd"]])
    script = f"""
        ip link set lo up
        as_postgres() {{ setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }}
        as_postgres {server}/initdb -D {data} -U {database["POSTGRES_USER"]} -A scram-sha-256 --pwfile={place}/password -E UTF8 >&2
        as_postgres {server}/pg_ctl -D {data} -w -l {data}/log -o "-c unix_socket_directories=''" start >&2
        export PGPASSWORD={PASSWORD} PGHOST=127.0.0.1 PGUSER={database["POSTGRES_USER"]}
        createdb {database["POSTGRES_DB"]}
        psql -q -d postgres -v ON_ERROR_STOP=1 -f {CONTAINER}/databases.sql
        unset PGHOST PGUSER
        mount -t proc proc {root}/proc
        mount --rbind /dev {root}/dev
        chroot --userspec=moorage:moorage {root} {command} & plane=$!
        for _ in $(seq 240); do
            kill -0 $plane
            python3 - 2> {place}/last-error <<'END' && break
        import urllib.request
        for name in ("identity", "placement", "compute", "accelerator", "reservation", "network", "image"):
            print(name, urllib.request.urlopen(f"http://127.0.0.1:8778/{{name}}/healthcheck").status)
        END
            sleep 0.5
        done
        psql -h 127.0.0.1 -U {database["POSTGRES_USER"]} -d moorage_identity -Atc "SELECT 'users', count(*) > 0 FROM users"
        kill -TERM $plane
        wait $plane
        echo stopped $?
        as_postgres {server}/pg_ctl -D {data} -m immediate stop >&2
    """
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec", textwrap.dedent(script)],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert "network 200\nimage 200" in done.stdout, done.stdout + done.stderr
    assert done.stdout.endswith("users|t\nstopped 0\n"), done.stdout + done.stderr
    assert list((root / "var/lib/moorage").glob("*.db")) == [], "everything is in PostgreSQL"
