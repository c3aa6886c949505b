"""A serial console through HAProxy with TLS: the example of docs/reference/consoles.md, with other addresses."""

import re
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.certificates import make_certificates
from tests.ports import free_port
from tests.servers import installed_program
from tests.wire.compute.test_consoles import Lab, read_until, refusal, until

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/reference/consoles.md"
#: Without ``timeout tunnel`` this would end a console in which nothing happens.
IDLE_S = 2


@pytest.fixture
def lab(tmp_path):
    """The plane, whose consoles people reach at the proxy; `trust` is what their programs trust."""
    make_certificates(tmp_path)
    port, consoles = free_port(), free_port()
    options = {
        "console_port": consoles,
        "console_url": f"wss://localhost:{port}/console",
        "console_host_url": f"ws://127.0.0.1:{consoles}/",
    }
    (tmp_path / "plane").mkdir()
    lab = Lab(tmp_path / "plane", **options)
    lab.trust = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    path = tmp_path / "haproxy.cfg"
    path.write_text(configuration(port, consoles, tmp_path / "moorage.pem"))
    with lab.plane, subprocess.Popen([installed_program("haproxy"), "-db", "-f", str(path)]) as proxy:
        until(lambda: is_listening(port))
        yield lab
        proxy.terminate()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def configuration(port: int, consoles: int, certificate: Path) -> str:
    """The page's lines in a whole file; only the first of its two processes runs."""
    (example,) = re.findall(r"^For HAProxy.*?^```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    example = example.replace("frontend lab\n", f"frontend lab\n    bind 127.0.0.1:{port} ssl crt {certificate}\n")
    example = example.replace("10.0.0.11:6083", f"127.0.0.1:{consoles}")
    example = example.replace("10.0.0.12:6083", f"127.0.0.1:{free_port()}")
    timeouts = f"timeout connect 5s\n    timeout client {IDLE_S}s\n    timeout server {IDLE_S}s\n"
    return f"defaults\n    mode http\n    option redispatch\n    {timeouts}\n{example}"


def test_a_person_uses_a_console_through_haproxy_with_tls(lab):
    server = lab.boot()
    url = lab.url(server)
    assert url.startswith("wss://localhost:")
    with connect(url, proxy=None, compression=None, ssl=lab.trust, ping_interval=None) as console:
        read_until(console, "vm login: ")
        time.sleep(IDLE_S + 1)
        console.send("root\r")
        read_until(console, "simulated: you typed 'root'")
    assert refusal(url, ssl=lab.trust)[0] == 403, "the address works once"
