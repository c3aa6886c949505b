"""The Debian package: built from the checkout, it is installed with apt on a copy of this machine, runs, and goes."""

import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.servers import installed_program
from tools import deb

#: Why the package cannot be installed here, or None.
MISSING = next(
    (
        f"this machine has no {name}: the package is for Debian, and is tried in namespaces of root"
        for name in ("dpkg-deb", "apt-get", "unshare", "setpriv", "ip")
        if shutil.which(name) is None
    ),
    None if os.geteuid() == 0 else "only root can install a package",
)
pytestmark = [pytest.mark.slow, pytest.mark.extended, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

TIMEOUT_S = 300


class Machine:
    """A copy of this machine's files: changes go to a directory of their own, and its network is its loopback."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("upper", "work", "root"):
            (directory / name).mkdir()
            (directory / name).chmod(0o755)  # `upper` becomes the machine's /, whatever the umask of the tests is

    def run(self, script: str, status: int = 0) -> str:
        """Runs a shell script as root in the machine; returns its output. Its processes end with it."""
        options = ",".join(["lowerdir=/", f"upperdir={self.upper}", f"workdir={self._directory / 'work'}"])
        root = self._directory / "root"
        mounts = f"""
            set -e
            mount -t overlay overlay -o {options} {root}
            mount -t proc proc {root}/proc
            mount --rbind /dev {root}/dev
            mount -t tmpfs tmpfs {root}/run
            ip link set lo up
            exec chroot {root} sh -ec "$SCRIPT"
        """
        command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", mounts]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            "SCRIPT": textwrap.dedent(script),
        }
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    @property
    def upper(self) -> Path:
        """What differs from this machine's files."""
        return self._directory / "upper"

    def put(self, path: Path) -> None:
        """Copies a file into the machine's /srv."""
        (self.upper / "srv").mkdir(exist_ok=True)
        shutil.copy(path, self.upper / "srv")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return deb.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def machine(package, tmp_path_factory):
    made = Machine(tmp_path_factory.mktemp("machine"))
    made.put(package)
    return made


def test_lintian_finds_nothing(package):
    done = subprocess.run(
        [installed_program("lintian"), "--fail-on=error,warning", "--info", "--allow-root", package],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_installed_plane_starts_with_the_packages_configuration_and_its_state_outlives_the_package(
    machine, package
):
    machine.run(f"apt-get install -y --no-install-recommends /srv/{package.name}")
    shown = machine.run(
        "getent passwd moorage; /usr/bin/moorage --version; ls /lib/systemd/system/moorage*; which moorage"
    )
    assert "/var/lib/moorage" in shown
    assert "moorage-agent.service" in shown

    # As systemd does with StateDirectory= and User=.
    answers = machine.run("""
        install -d -m 0700 -o moorage -g moorage /var/lib/moorage
        setpriv --reuid moorage --regid moorage --init-groups --no-new-privs \
            moorage up --config /etc/moorage/moorage.conf > /srv/log 2>&1 & plane=$!
        for _ in $(seq 120); do
            python3 - <<'END' && break
        import urllib.request
        for name in ("identity", "placement", "compute", "accelerator", "reservation", "network", "image"):
            address = f"http://127.0.0.1:8778/{name}/healthcheck"
            print(name, urllib.request.urlopen(address).status)
        END
            sleep 0.5
        done
        setpriv --reuid moorage --regid moorage --init-groups moorage status --config /etc/moorage/moorage.conf
        cat /srv/log
        kill -TERM $plane; wait $plane
        stat -c '%U %a' /var/lib/moorage/placement.db
    """)
    assert "network 200\nimage 200" in answers, answers
    assert "moorage 600" in answers

    machine.run("apt-get remove -y moorage; test ! -e /usr/lib/moorage; test -e /etc/moorage/moorage.conf")
    purged = machine.run("apt-get purge -y moorage; test ! -e /etc/moorage; test -e /var/lib/moorage/placement.db")
    assert "/var/lib/moorage stays" in purged


def test_the_programs_of_the_package_import_only_the_packages_own_modules(machine, package):
    machine.run(f"apt-get install -y --no-install-recommends /srv/{package.name}")
    found = machine.run("""
        cd /
        /usr/lib/moorage/bin/python -c '
        import cryptography, keystonemiddleware, moorage, msgspec, opentelemetry, os_acc, pika, psycopg, pymysql, pynvml, sys
        for module in (cryptography, keystonemiddleware, moorage, msgspec, os_acc, pika, psycopg, pymysql, pynvml):
            print(module.__file__)
        '
    """)
    assert {line.startswith("/usr/lib/moorage/lib/python3") for line in found.splitlines()} == {True}, found
