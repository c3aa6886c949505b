"""TLS by a proxy, as in docs/guides/tls.md: its own configurations, with other addresses and paths."""

import contextlib
import os
import re
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from moorage.identity.first_start.first_credentials import first_credentials
from tests.certificates import make_certificates
from tests.ports import free_port
from tests.servers import installed_program
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs/guides/tls.md"
#: The address from which the proxy connects to the plane; all other connections come from 127.0.0.1.
PROXY = "127.0.0.2"
PATIENCE_S = 60


class Site(NamedTuple):
    url: str  #: of the proxy
    direct: str  #: of the plane itself
    trust: ssl.SSLContext
    password: str  #: of admin


def block(language: str) -> str:
    """The only code block of the guide in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return found


def haproxy(directory: Path, port: int, plane: int) -> list[str]:
    text = block("haproxy").replace("bind :443", f"bind 127.0.0.1:{port}")
    text = text.replace("/etc/haproxy/moorage.pem", str(directory / "moorage.pem"))
    text = text.replace("127.0.0.1:8778", f"127.0.0.1:{plane} source {PROXY}")
    path = directory / "haproxy.cfg"
    path.write_text(text)
    return [installed_program("haproxy"), "-db", "-f", str(path)]


def nginx(directory: Path, port: int, plane: int) -> list[str]:
    text = block("nginx").replace("listen 443", f"listen 127.0.0.1:{port}").replace("/etc/nginx", str(directory))
    text = text.replace("127.0.0.1:8778;", f"127.0.0.1:{plane};\n        proxy_bind {PROXY};")
    path = directory / "nginx.conf"
    temporary = "".join(
        f"{name}_temp_path {directory}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""
    path.write_text(
        f"{user}daemon off;\npid {directory}/nginx.pid;\nerror_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{text}}}\n"
    )
    return [installed_program("nginx"), "-c", str(path), "-e", "stderr"]


@contextlib.contextmanager
def running(command: list[str], log: Path):
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module", params=[haproxy, nginx], ids=["haproxy", "nginx"])
def site(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    make_certificates(directory)
    port, plane = free_port(), free_port()
    state = directory / "state"
    write_config(
        state, plane={"services": "identity,placement,image,dashboard"}, server={"port": plane, "proxies": PROXY}
    )
    trust = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    command = request.param(directory, port, plane)
    with PlaneProcess(state / "moorage.conf"), running(command, directory / "proxy.log") as process:
        url = f"https://localhost:{port}"

        def answers() -> bool:
            assert process.poll() is None, (directory / "proxy.log").read_text()
            try:
                return httpx.get(f"{url}/identity/healthcheck", verify=trust).status_code == 200
            except httpx.HTTPError:
                return False

        until(answers)
        password, _ = first_credentials(state, "admin")
        yield Site(url, f"http://127.0.0.1:{plane}", trust, password)


@pytest.fixture
def http(site):
    with httpx.Client(base_url=site.url, verify=site.trust, timeout=PATIENCE_S) as client:
        yield client


EVIL = {
    "x-forwarded-host": "evil.example",
    "x-forwarded-proto": "ftp",
    "x-forwarded-for": "192.0.2.1",
    "forwarded": "host=evil.example;proto=http",
}


def links(answer: httpx.Response) -> set[str]:
    return set(re.findall(r'"(https?://[^"]*)"', answer.text))


@pytest.mark.parametrize("headers", [{}, EVIL], ids=["plain", "with headers of its own"])
def test_links_have_the_address_of_the_proxy_whatever_headers_a_client_sends(site, http, headers):
    found = links(http.get("/identity/v3", headers=headers))
    assert found
    assert {link for link in found if not link.startswith(f"{site.url}/identity/")} == set()


def test_forwarding_headers_are_trusted_only_from_the_proxy(site):
    """The same headers from another address of this machine have no effect."""
    found = links(httpx.get(f"{site.direct}/identity/v3", headers=EVIL))
    assert found
    assert {link for link in found if not link.startswith(f"{site.direct}/identity/")} == set()


def test_a_client_that_does_not_trust_the_authority_cannot_connect(site):
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(site.url, verify=ssl.create_default_context())


def test_cookies_are_secure_and_forms_are_accepted_only_from_the_proxys_origin(site, http):
    page = http.get("/ui/sign-in")
    cookies = page.headers.get_list("set-cookie")
    assert cookies
    assert all("; Secure" in cookie for cookie in cookies)
    token = re.search(r'name="form_token" value="([^"]*)"', page.text)[1]
    form = {"form_token": token, "name": "admin", "password": site.password}
    refused = http.post("/ui/sign-in", data=form, headers={"origin": "https://evil.example"})
    assert refused.status_code == 403
    taken = http.post("/ui/sign-in", data=form, headers={"origin": site.url})
    assert taken.status_code == 303


def test_metrics_are_refused_through_the_proxy_and_shown_to_this_machine(site, http):
    assert http.get("/metrics").status_code == 403
    assert httpx.get(f"{site.direct}/metrics").status_code == 200


def test_images_are_uploaded_and_downloaded_through_the_proxy(site, http):
    user = {"name": "admin", "password": site.password, "domain": {"id": "default"}}
    auth = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
    headers = {"x-auth-token": http.post("/identity/v3/auth/tokens", json=auth).headers["x-subject-token"]}
    image = {"name": "large", "disk_format": "raw", "container_format": "bare"}
    made = http.post("/image/v2/images", json=image, headers=headers).json()["id"]
    content = os.urandom(1 << 20) * 5
    binary = {**headers, "content-type": "application/octet-stream"}
    assert http.put(f"/image/v2/images/{made}/file", content=content, headers=binary).status_code == 204
    assert http.get(f"/image/v2/images/{made}/file", headers=headers).content == content
