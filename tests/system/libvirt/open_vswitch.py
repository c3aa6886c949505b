"""Open vSwitch in the network namespace of a host, with Neutron's agent.

The switch forwards packets itself (``datapath_type=netdev``), because the kernel of the tests need not have its module.
It forwards them as they are, so whoever is connected to it has to compute its own checksums: guests by `GUEST_ARGUMENT`.
The agent reaches the broker through a socket in the file system: its namespace has no other way out.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import make_url

from tests import debian
from tests.ports import free_port
from tests.processes import end, inherited, python_of
from tests.system.libvirt.namespaces import Namespaces
from tests.system.planes import until

PHYSICAL_NETWORK, BRIDGE = "outside", "br-outside"

#: For the kernel of a guest of `login_guest`.
GUEST_ARGUMENT = "virtio_net:csum=0,gso=0"
#: Has the kernel compute the checksums of what is sent by the interface argv[1] (ethtool --offload tx off).
_NO_OFFLOAD = """
import array, fcntl, socket, struct, sys
value = array.array("B", struct.pack("II", 0x17, 0))  # ETHTOOL_STXCSUM
request = struct.pack("16sP16x", sys.argv[1].encode(), value.buffer_info()[0])
fcntl.ioctl(socket.socket(), 0x8946, request)  # SIOCETHTOOL
"""

_AGENT = """\
[DEFAULT]
host = {host}
transport_url = {broker}
log_file = {directory}/agent.log
[oslo_concurrency]
lock_path = {directory}/locks
[ovs]
datapath_type = netdev
bridge_mappings = {physical_network}:{bridge}
ovsdb_connection = unix:{directory}/db.sock
[agent]
root_helper =
polling_interval = 1
[securitygroup]
enable_security_group = false
firewall_driver = noop
"""
#: Sections of the agent's privileged helpers, which it otherwise starts with sudo.
_HELPERS = ("privsep", "privsep_ovs_vsctl", "privsep_namespace", "privsep_conntrack", "privsep_link")


class OpenVSwitch:
    """`programs`: ``ovs-vsctl``, which finds this switch, and its like."""

    def __init__(self, directory: Path, namespaces: Namespaces) -> None:
        self.directory = directory
        self._namespaces = namespaces
        self._place = debian.unpacked("openvswitch", "openvswitch-common", "openvswitch-switch")
        self.programs = directory / "programs"
        self.programs.mkdir()
        for name in (
            "ovs-vsctl",
            "ovs-ofctl",
            "ovs-appctl",
            "ovsdb-client",
            "ovsdb-tool",
            "ovsdb-server",
            "ovs-vswitchd",
        ):
            self._wrap(name)

    def _wrap(self, name: str) -> None:
        found = next(path for path in sorted(self._place.rglob(name)) if path.is_file() and path.parent.name != "doc")
        script = self.programs / name
        script.write_text(
            f'#!/bin/sh\nexport LD_LIBRARY_PATH="{debian.libraries_of(self._place)}"\n'
            f'export OVS_RUNDIR="{self.directory}" OVS_LOGDIR="{self.directory}" OVS_DBDIR="{self.directory}"\n'
            f'exec "{found}" "$@"\n'
        )
        script.chmod(0o755)

    def run(self, name: str, *words: object) -> str:
        """Runs one of the programs in the host's namespace."""
        command = self._namespaces.command(self._namespaces.host, self.programs / name, *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, f"{name} {words}: {done.stderr}"
        return done.stdout.strip()

    def connect_machine(self, device: str, address: str) -> None:
        """Gives the person's machine an interface that is connected to `BRIDGE`."""
        self.run("ovs-vsctl", "--timeout=20", "add-port", BRIDGE, self._namespaces.join(device, address))
        done = self._namespaces.run(sys.executable, "-c", _NO_OFFLOAD, device)
        assert done.returncode == 0, done.stderr

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """With the bridge `BRIDGE`."""
        schema = self._place / "usr/share/openvswitch/vswitch.ovsschema"
        self.run("ovsdb-tool", "create", self.directory / "conf.db", schema)
        server = ("ovsdb-server", self.directory / "conf.db", f"--remote=punix:{self.directory}/db.sock")
        with self._process(*server), self._process("ovs-vswitchd", f"unix:{self.directory}/db.sock"):
            until((self.directory / "db.sock").exists)
            self.run(
                "ovs-vsctl", "--timeout=20", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"
            )
            yield

    @contextlib.contextmanager
    def _process(self, name: str, *words: object) -> Iterator[None]:
        command = self._namespaces.command(self._namespaces.host, self.programs / name, "--no-chdir", *words)
        with (self.directory / f"{name}.out").open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            yield
        finally:
            end(process)

    @contextlib.contextmanager
    def agent(self, host: str, broker: str) -> Iterator[None]:
        """Neutron's agent. `broker`: its URL outside of the namespace."""
        url = make_url(broker)
        port = free_port()
        inside = url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        text = _AGENT.format(
            host=host, broker=inside, directory=self.directory, physical_network=PHYSICAL_NETWORK, bridge=BRIDGE
        )
        bin_ = python_of(".venv-neutron").parent
        file = self.directory / "agent.conf"
        helper = f"helper_command = {bin_}/privsep-helper --config-file {file}\n"
        file.write_text(text + "".join(f"[{section}]\n{helper}" for section in _HELPERS))
        with self._forwarding(port, url.host or "127.0.0.1", url.port or 5672):
            command = self._namespaces.command(
                self._namespaces.host, bin_ / "neutron-openvswitch-agent", "--config-file", file
            )
            path = f"{self.programs}:{bin_}:/usr/sbin:/usr/bin:/sbin:/bin"
            with (self.directory / "agent.out").open("w") as out:
                process = subprocess.Popen(
                    command, stdout=out, stderr=out, env=inherited() | {"PATH": path}, start_new_session=True
                )
            try:
                yield
            finally:
                end(process)

    @contextlib.contextmanager
    def _forwarding(self, port: int, host: str, to: int) -> Iterator[None]:
        """Connections to a port in the namespace go to `host` outside."""
        place = debian.unpacked("socat", "socat")
        socat = debian.wrapped(place, socat="usr/bin/socat") / "socat"
        between = self.directory / "broker.sock"
        outside = [socat, f"UNIX-LISTEN:{between},fork", f"TCP:{host}:{to}"]
        inside = self._namespaces.command(
            self._namespaces.host, socat, f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr", f"UNIX-CONNECT:{between}"
        )
        processes = [subprocess.Popen(command, start_new_session=True) for command in (outside, inside)]
        try:
            deadline = time.monotonic() + 10
            while not between.exists():
                assert time.monotonic() < deadline, "socat does not listen"
                time.sleep(0.02)
            yield
        finally:
            for process in processes:
                end(process)
