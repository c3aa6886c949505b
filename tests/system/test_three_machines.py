"""`docs/guides/three-machines.md`: its files and commands, on three machines that are network namespaces.

Each machine has its own network, its own processes, and its own changes to this machine's files (an overlay). It has
the Debian package of this checkout, installed by apt, and what the other packages of the page's apt commands bring.
What is not as on the page's machines: `tests/system/systemctl.py` stands in for systemd; Debian's packages are this
machine's or unpacked; there is no KVM; libvirtd runs QEMU as root and without cgroups; the image has no system in it; files go from
machine to machine without SSH.
"""

import base64
import contextlib
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.debian import unpacked
from tests.pages.blocks import Block, blocks
from tests.pages.runner import Shell, agrees
from tests.servers import ServerMissing, installed_program, program
from tests.system import systemctl
from tests.system.libvirt import guest, host
from tests.system.test_deb import MISSING
from tests.system.test_deb import Machine as AptMachine
from tools import deb

pytestmark = [
    pytest.mark.slow, pytest.mark.postgresql, pytest.mark.clients,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]  # fmt: skip

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "three-machines.md"
SERVICES, HOSTS = "services", ("host-1", "host-2")
ADDRESSES = {SERVICES: "192.0.2.10", "host-1": "192.0.2.21", "host-2": "192.0.2.22"}
#: {heading of the page, of the second level: the machines where its commands are typed}
PLACES = {
    "On every machine": (SERVICES, *HOSTS),
    "On the machine of the services": (SERVICES,),
    "On the first host": HOSTS[:1],
    "On the second host": HOSTS[1:],
    "On both hosts": HOSTS,
    "The first host's configuration": HOSTS[:1],
    "Back on the machine of the services": (SERVICES,),
    "As the person": (SERVICES,),
}
IMAGE = "debian-12-genericcloud-amd64.qcow2"
#: Packages of the page that are unpacked, because the machine of the tests need not have them.
UNPACKED = ("ifupdown", "bridge-utils", "python3-libvirt")
#: Brings the configuration and the units of libvirt, whose part of this is `host.py`'s.
STOOD_IN = {"libvirt-daemon-system"}

PROGRAMS = ("libvirtd", "qemu-system-x86_64", "qemu-img", "genisoimage", "pg_createcluster", "nsenter", "curl")

#: Becomes the machine in the directory $1, without KVM, which need not work here. $2: the changes that all machines have
#: in common; $3: the place of the test servers, which has what is unpacked. Its first process adopts those that others
#: leave behind.
BECOME = """
set -e
mount -t overlay overlay -o lowerdir=$2:/,upperdir=$1/upper,workdir=$1/work $1/root
cd $1/root
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/net dev/pts dev/shm
for name in null zero full random urandom tty net/tun; do cp -a /dev/$name dev/$name; done
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${number%:*} dev/${number#*:}; done
for path in run etc/postgresql var/lib/postgresql; do mount -t tmpfs -o mode=755 tmpfs $path; done
chown postgres etc/postgresql var/lib/postgresql
mkdir -p run/systemd/system run/libvirt var/cache/libvirt .$3
mount --bind $3 .$3
mount --bind $3/libvirt-cache-without-kvm var/cache/libvirt
exec chroot . /usr/bin/python3 -c '
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
'
"""

LIBVIRTD_CONF = """
auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
log_outputs = "3:file:/var/log/libvirtd.log"
"""


class Machine:
    """A network namespace `namespace` with the interface eth0, and everything that runs on it."""

    def __init__(self, directory: Path, layer: Path, namespace: str) -> None:
        for name in ("upper", "work", "root"):
            (directory / name).mkdir(parents=True)
            (directory / name).chmod(0o755)
        self._directory, place = directory, servers.place()
        (place / "libvirt-cache-without-kvm").mkdir(exist_ok=True)
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", BECOME, "sh"]
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *command, directory, layer, place], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "ready\n"
        pid = self._process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        enter = ["nsenter", f"--target={child}", "--mount", "--net", "--pid", "--root", "--wd"]
        self.shell = Shell(Path("/"), ENVIRONMENT, before=enter)

    def run(self, script: str) -> str:
        code, printed = self.shell.run(script)
        assert code == 0, f"{script}\nexit code {code}\n{printed}"
        return printed

    def end(self) -> None:
        for path in sorted((self._directory / "upper/var/log").glob("*.log")):  # pytest shows it if the test fails
            print(f"{self._directory.name}: {path.name}:\n{path.read_text(errors='replace')[-4000:]}")
        self.shell.close()
        self._process.kill()
        self._process.wait()


ENVIRONMENT = {
    "PATH": f"{Path(__file__).parents[2] / '.venv-clients' / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "NO_COLOR": "1",
    "PYTHONWARNINGS": "ignore",
    "DEBIAN_FRONTEND": "noninteractive",
}


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    """The changes to this machine's files that all three machines have in common: what apt has installed."""
    wanted = [word for line in apt_commands() for word in line.split()[2:]]
    (name,) = {word for word in wanted if word.endswith(".deb")}
    others = set(wanted) - {name, *UNPACKED, *STOOD_IN}
    try:
        installed_program("haproxy")
        servers.install("postgresql")
        more = unpacked("three-machines", *UNPACKED)
    except ServerMissing as error:
        pytest.skip(f"no three machines here: {error}")
    if lacking := [name for name in PROGRAMS if program(name) is None]:
        pytest.skip(f"no three machines here: {', '.join(lacking)} not installed")
    asked = subprocess.run(["dpkg-query", "--show", *others], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, f"these are neither installed nor stood in for: {asked.stderr}"

    machine = AptMachine(tmp_path_factory.mktemp("layer"))
    package = deb.build(tmp_path_factory.mktemp("dist"))
    assert package.name == Path(name).name
    machine.put(package)
    shutil.copy(systemctl.__file__, machine.upper / "srv/systemctl.py")
    (machine.upper / "srv/libvirtd.conf").write_text(LIBVIRTD_CONF)
    (machine.upper / "srv/qemu.conf").write_text(host.QEMU_CONF)
    subprocess.run(
        ["tar", f"--directory={more}", "--create", f"--file={machine.upper}/srv/unpacked.tar", "."], check=True
    )
    machine.run(f"""
        apt-get install -y --no-install-recommends /srv/{package.name}
        tar --directory=/ --extract --keep-directory-symlink --no-same-owner --file=/srv/unpacked.tar
        printf '#!/bin/sh\nexec /usr/bin/python3 /srv/systemctl.py "$@"\n' > /usr/local/bin/systemctl
        chmod 755 /usr/local/bin/systemctl
        install -D -m 600 -t /etc/libvirt /srv/libvirtd.conf /srv/qemu.conf
        getent passwd libvirt-qemu || useradd --system --no-create-home libvirt-qemu
        getent group kvm || groupadd --system kvm
    """)
    return machine.upper


def apt_commands() -> list[str]:
    scripts = [block.steps[0].command.replace("\\\n", " ") for block in blocks(PAGE)]
    return [script for script in scripts if script.startswith("apt install ")]


@contextlib.contextmanager
def lab_network() -> Iterator[dict[str, str]]:
    """{machine: its network namespace}. Each one's eth0 is connected to a bridge in one more, which has 192.0.2.1."""
    mark = secrets.token_hex(3)
    names = {machine: f"m3-{mark}-{machine}" for machine in ADDRESSES}
    switch = f"m3-{mark}-switch"
    with contextlib.ExitStack() as made:
        for name in (switch, *names.values()):
            ip("netns", "add", name)
            made.callback(ip, "netns", "delete", name)
        ip("-n", switch, "link", "add", "lab", "type", "bridge")
        ip("-n", switch, "address", "add", "192.0.2.1/24", "dev", "lab")
        ip("-n", switch, "link", "set", "lab", "up")
        for machine, name in names.items():
            ip("-n", switch, "link", "add", machine, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", switch, "link", "set", machine, "master", "lab", "up")
        for words in ("address add 192.0.2.10/24 dev eth0", "link set eth0 up", "link set lo up"):
            ip("-n", names[SERVICES], *words.split())
        yield names


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


@pytest.fixture
def machines(layer, tmp_path):
    """{name: the machine}, as Debian's packages leave them: PostgreSQL and libvirt run."""
    programs, filters = host.network_programs()
    with lab_network() as namespaces, contextlib.ExitStack() as ends:
        made = {}
        for name, namespace in namespaces.items():
            made[name] = Machine(tmp_path / name, layer, namespace)
            ends.callback(made[name].end)
        made[SERVICES].run("pg_createcluster 15 main && pg_ctlcluster --skip-systemctl-redirect 15 main start")
        made[SERVICES].run(f"base64 --decode > ~/{IMAGE} <<END\n{empty_image(tmp_path)}\nEND")
        for name in HOSTS:
            made[name].run(f"install -D -m 644 -t /etc/libvirt/nwfilter {' '.join(map(str, filters))}")
            made[name].run(f"install -t /usr/sbin {programs}/*")
            made[name].run("libvirtd --daemon")
            made[name].run("until [ -S /run/libvirt/libvirt-sock ]; do sleep 0.05; done")
        yield made


def empty_image(directory: Path) -> str:
    return base64.encodebytes(guest.empty_disk(directory)).decode()


def test_the_page_leads_from_packages_to_a_server_of_a_lease(machines):
    services = machines[SERVICES]
    printed = ""
    for block in blocks(PAGE):
        command = block.steps[0].command
        for name in PLACES[heading_of(block)]:
            if command.startswith("scp "):
                fetch(command, name, services, machines[name])
            elif "not run" not in block.marks:
                started = time.monotonic()
                printed = run(block, machines[name])
                print(f"{block.where} on {name}: {time.monotonic() - started:.1f} s\n{printed}")
    assert re.search(r"status +\| ACTIVE", printed), printed
    assert re.search(r"addresses +\| lab=192\.0\.2\.1\d\d", printed), printed

    server = services.run("openstack server show web -f value -c id").split()[-1]
    guests = {name: machines[name].run("virsh --quiet list --state-running --uuid").split() for name in HOSTS}
    assert sorted(guests.values()) == [[], [server]]
    # TLS is what the hosts reach, and only that; the databases are PostgreSQL's.
    assert machines["host-1"].shell.run("curl --silent https://cloud.example.org/identity/healthcheck")[0] == 60
    assert machines["host-1"].shell.run("curl --silent http://cloud.example.org:8778/identity/healthcheck")[0] == 7
    assert services.run("ls /var/lib/moorage | grep 'db$' || true") == ""
    count = "psql --quiet --tuples-only --no-align moorage_reservation --command 'select count(*) from leases'"
    assert services.run(f"cd /; runuser -u postgres -- {count}") == "1"
    # The package's own unit runs the agent.
    assert machines["host-1"].run("ls /etc/systemd/system | grep moorage || true") == ""


def heading_of(block: Block) -> str:
    above = PAGE.read_text().splitlines()[: block.line]
    return next(line[3:] for line in reversed(above) if line.startswith("## "))


def run(block: Block, machine: Machine) -> str:
    """Each of its commands must succeed, not only the last one, and print what the page shows."""
    printed = ""
    for step in block.steps:
        code, printed = machine.shell.run(f"__bad=0; trap '__bad=1' ERR\n{step.command}\ntrap - ERR; [ $__bad = 0 ]")
        assert code == 0, f"{block.where}: {step.command}\n{printed}"
        assert agrees(step.output, printed), f"{block.where}: {step.command}\n{printed}"
    return printed


def fetch(command: str, name: str, services: Machine, machine: Machine) -> None:
    """The files that `scp` would copy."""
    paths = re.findall(r"root@cloud\.example\.org:(\S+)", command)
    assert len(paths) == 2, command
    for path in paths:
        there = f"~/{path.replace('$NAME', name)}"
        machine.run(f"umask 077; cat > {there} <<'END'\n{services.run(f'cat {there}')}\nEND")
