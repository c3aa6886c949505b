"""A real Nova for `launches`: API, scheduler, conductor and two computes with its fake driver, on PostgreSQL and RabbitMQ.

Keystone, Glance and Placement are real too; `tests.nova` starts them all. The database server and the broker are those of
the tests, which may be shared with others, so their CPU is not counted.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compute_api import Cloud, create_flavor, wait_until
from bench.processes import children, cpu_seconds
from bench.servers import ROOT
from moorage.core.clock import SystemClock
from moorage.identity.client import PasswordTokens
from moorage.wire.transports import SocketTransport

ENVIRONMENTS = (".venv-nova", ".venv-keystone", ".venv-glance", ".venv-conformance")


def missing() -> list[str]:
    """Targets of make that install what is missing."""
    return [f"{name}/.done" for name in ENVIRONMENTS if not (ROOT / name / "bin" / "python").exists()]


@contextmanager
def cloud() -> Iterator[Cloud]:
    from tests.nova.conftest import HOSTS, a_cloud  # imports pytest
    from tests.system.keystone.real import PASSWORD

    with (
        tempfile.TemporaryDirectory(prefix="moorage-bench-", dir="/var/tmp") as directory,
        a_cloud(Path(directory), real_placement=True) as nova,
    ):
        clients = nova.clients
        wait_until(
            "the hosts of Nova", lambda: len(clients.compute.get("/os-hypervisors")["hypervisors"]) == len(HOSTS)
        )
        create_flavor(lambda path, body: clients.compute.request("POST", path, json=body))
        keystone = SocketTransport(nova.keystone_url)
        tokens = PasswordTokens(keystone, username="admin", password=PASSWORD, project="admin", clock=SystemClock())
        # Every service is a child of this process.
        yield Cloud(
            nova.compute_url,
            tokens.headers()["x-auth-token"],
            clients.create_image(),
            lambda: (cpu_seconds(children(os.getpid())), 0.0),
        )
