"""One service, reached in process and over a socket: both must pass the same tests."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moorage.core.errors import Unavailable
from moorage.wire.transports import InProcessTransport, SocketTransport
from tests.certificates import make_certificates
from tests.wire.kernel import harbour
from tests.wire.kernel.security import PLAIN, with_tls

ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def serving(**variables):
    """URL of the service in a separate process with `variables` in its environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"} | variables
    command = [sys.executable, "-m", "tests.served", "tests.wire.kernel.harbour:application", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        transport = SocketTransport(url)
        deadline = time.monotonic() + 60
        while True:
            try:
                assert transport.send("GET", "/harbour/healthcheck", {}).status == 200
                break
            except Unavailable:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Directory with the certificates of `tests.certificates`."""
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    return directory


@pytest.fixture(params=["plain", "tls"])
def security(request):
    """How server and clients speak."""
    return PLAIN if request.param == "plain" else with_tls(request.getfixturevalue("certificates"))


@pytest.fixture(scope="session")
def served():
    with serving() as url:
        yield url


@pytest.fixture
def served_with_variables():
    """URL of a process with environment variables that look like the headers of WSGI."""
    with serving(HTTP_X_AUTH_TOKEN="eve/admin", CONTENT_TYPE="application/json") as url:
        yield url


@pytest.fixture(params=["in process", "socket"])
def transport(request):
    if request.param == "in process":
        return InProcessTransport(harbour.application(), "http://127.0.0.1:8778")
    return SocketTransport(request.getfixturevalue("served"))
