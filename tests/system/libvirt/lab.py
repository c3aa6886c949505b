"""A lab whose people log in to their servers over SSH, from a machine of their own."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.processes import sdk
from tests.system.libvirt.host import LibvirtHost
from tests.system.libvirt.namespaces import Namespaces
from tests.system.libvirt.servers import wait_for_console
from tests.system.network.conftest import client_variables
from tests.system.planes import PlaneClients, PlaneProcess


@dataclass(frozen=True)
class Lab:
    """A plane with one host under libvirt in the first namespace, and a person's machine in the second."""

    namespaces: Namespaces
    libvirtd: LibvirtHost
    plane: PlaneProcess
    clients: PlaneClients
    directory: Path

    @property
    def key(self) -> Path:
        return self.directory / "key"

    def ssh(
        self, address: str, *words: str, data: str = "", key: Path | None = None, before: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on a server, from the person's machine. Fails for a host key that `trust_host` has not seen.

        `before`: words that start ssh.
        """
        options = {
            "UserKnownHostsFile": self.directory / "known_hosts",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 30,
            "IdentitiesOnly": "yes",
        }
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        command = ("ssh", "-F", "none", *given, "-i", key or self.key, f"root@{address}", *words)
        return self.namespaces.run(*before, *command, data=data)

    def trust_host(self, server: str, name: str) -> str:
        """Waits until the server has booted, and notes its host key, which it shows on its console; returns that."""
        text = wait_for_console(self.clients, server, "READY")
        (key,) = re.findall(r"HOSTKEY (ssh-ed25519 \S+)", text)
        with (self.directory / "known_hosts").open("a") as file:
            file.write(f"{name} {key}\n")
        return text


CREATE = """
import json
from pathlib import Path
cloud.create_keypair({key!r}, Path({public!r}).read_text())
server = cloud.create_server({name!r}, image={image!r}, flavor='tiny', network='lab', key_name={key!r}, wait=True)
print(json.dumps([server.id, server.status, server.public_v4 or server.private_v4, server.addresses]))
"""


def create(lab, image, name):
    """Creates a server with openstacksdk, and waits for it as that does: (id, status, address)."""
    public = str(lab.key.with_suffix(".pub"))
    script = CREATE.format(name=name, image=image, key=f"key of {name}", public=public)
    server, status, address, addresses = json.loads(sdk(client_variables(lab.plane), script))
    assert [one["addr"] for one in addresses["lab"]] == [address]
    return server, status, address
