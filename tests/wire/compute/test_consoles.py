"""Serial consoles, through real websockets: a person's client, the proxy beside compute, and a simulated host."""

import http.client
import shutil
import socket
import time
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.servers import console_service
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from tests.plane import InProcessPlane
from tests.wire.compute.conftest import IMAGE, NO_LIMITS, images

SECONDS = 20.0
ORIGIN = "https://lab.example.org"
HOST = "compute-1"


class Lab:
    """Compute with its proxy, and the agent of one simulated host as another process; tasks run in threads."""

    def __init__(self, directory, **compute):
        shutil.copytree(images(), directory / "images")
        self.plane = InProcessPlane(
            directory,
            "placement,image,compute,accelerator",
            clock=SystemClock(),
            ids=RandomIds(),
            has_sockets=True,
            compute=NO_LIMITS | compute,
            server={"public_url": "http://127.0.0.1", "cors_origins": ORIGIN},
        )
        self.host = self.plane.beside("host", "agent", agent={"host": HOST})
        self.plane.plane.start_tasks()
        self.host.plane.start_tasks()
        body = {"flavor": {"name": "small", "id": "small", "vcpus": 1, "ram": 64, "disk": 0}}
        assert self.send("POST", "/v2.1/flavors", body, who="root:admin", roles="admin").status == 200

    def send(self, method, path, body=None, *, who="alice:red", roles="member", version="2.96"):
        return self.plane.send(method, f"/compute{path}", body, who=who, roles=roles, version=version)

    def boot(self, name="vm", who="alice:red"):
        body = {"server": {"name": name, "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}}
        server = self.send("POST", "/v2.1/servers", body, who=who).body["server"]["id"]
        self.wait(server, "ACTIVE", who)
        return server

    def wait(self, server, status, who="alice:red"):
        return until(lambda: self.send("GET", f"/v2.1/servers/{server}", who=who).body["server"]["status"] == status)

    def act(self, server, action):
        assert self.send("POST", f"/v2.1/servers/{server}/action", {action: None}).status == 202

    def ask(self, server, kind="serial", protocol="serial", **options):
        body = {"remote_console": {"protocol": protocol, "type": kind}}
        return self.send("POST", f"/v2.1/servers/{server}/remote-consoles", body, **options)

    def url(self, server, **options):
        answer = self.ask(server, **options)
        assert answer.status == 200, answer.body
        return answer.body["remote_console"]["url"]

    def open(self, server, **options):
        return connect(self.url(server), proxy=None, compression=None, **options)


def until(seen):
    deadline = time.monotonic() + SECONDS
    while not (answer := seen()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
    return answer


def read_until(console, wanted):
    text = ""
    while wanted not in text:
        text += console.recv(timeout=SECONDS).decode()
    return text


def end_of(console):
    """Reads on until the console ends; returns code and reason."""
    try:
        while True:
            console.recv(timeout=SECONDS)
    except ConnectionClosed as closed:
        return closed.rcvd.code, closed.rcvd.reason


def refusal(url, **options):
    """The status and the text with which the proxy refuses a connection."""
    with pytest.raises(InvalidStatus) as raised, connect(url, proxy=None, **options):
        pass
    return raised.value.response.status_code, raised.value.response.body.decode()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("consoles"))
    with lab.plane:
        yield lab


@pytest.fixture
def server(lab):
    server = lab.boot()
    yield server
    lab.send("DELETE", f"/v2.1/servers/{server}")


@pytest.mark.parametrize("subprotocols", [None, ["binary"], ["base64", "binary"]])
def test_a_person_types_and_reads_the_answer(lab, server, subprotocols):
    with lab.open(server, subprotocols=subprotocols) as console:
        assert console.subprotocol == (None if subprotocols is None else "binary")
        assert "Simulated console of vm" in read_until(console, "vm login: ")
        console.send("rooot\x7f\x7ft\r")
        console.send(b"")
        assert "simulated: you typed 'root'" in read_until(console, "vm login: ")


def test_below_2_6_the_action_returns_the_address(lab, server):
    action = {"os-getSerialConsole": {"type": "serial"}}
    answer = lab.send("POST", f"/v2.1/servers/{server}/action", action, version="2.1")
    assert answer.status == 200
    assert answer.body["console"]["type"] == "serial"
    with connect(answer.body["console"]["url"], proxy=None) as console:
        read_until(console, "login: ")
    assert lab.send("POST", f"/v2.1/servers/{server}/action", action, version="2.6").status == 404


@pytest.mark.parametrize(("protocol", "kind"), [("vnc", "novnc"), ("spice", "spice-html5"), ("rdp", "rdp-html5")])
def test_other_consoles_are_refused_by_name(lab, server, protocol, kind):
    answer = lab.ask(server, kind, protocol)
    assert answer.status == 400
    assert f"Unavailable console type {protocol}" in answer.body["badRequest"]["message"]


def test_the_address_works_once(lab, server):
    url = lab.url(server)
    with connect(url, proxy=None) as console:
        read_until(console, "login: ")
        status, text = refusal(url)
    assert status == 403
    assert "used before" in text


def test_an_expired_address_is_refused(lab, server):
    url = lab.url(server)
    with lab.plane.engine("compute").begin() as connection:
        connection.exec_driver_sql("UPDATE console_sessions SET expires_at = '2020-01-01 00:00:00.000000'")
    assert refusal(url)[0] == 403


def test_the_database_has_only_the_hash_of_a_token(lab, server):
    url = lab.url(server)
    token = parse_qs(urlsplit(url).query)["token"][0]
    with lab.plane.engine("compute").connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM console_sessions").fetchall()
    assert rows
    assert token not in repr(rows)


def test_another_project_cannot_ask_for_a_console(lab, server):
    assert lab.ask(server, who="bob:blue").status == 404
    assert lab.ask(server, roles="reader").status == 403


def test_an_address_does_not_lead_to_another_server(lab, server):
    other = lab.boot("theirs", who="bob:blue")
    with connect(lab.url(server) + f"&server={other}&session={other}", proxy=None) as console:
        assert "Simulated console of vm " in read_until(console, "login: ")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1.evil.example", "null"])
def test_a_page_of_another_origin_is_refused_and_the_address_stays_unused(lab, server, origin):
    url = lab.url(server)
    status, text = refusal(url, origin=origin)
    assert status == 403
    assert "may not open consoles" in text
    with connect(url, proxy=None, origin=ORIGIN) as console:
        read_until(console, "login: ")


def test_a_request_without_a_token_is_refused(lab, server):
    base = lab.url(server).partition("?")[0]
    assert refusal(base)[0] == 404
    assert refusal(f"{base}?token=")[0] == 404
    assert refusal(f"{base}?token=wrong")[0] == 403
    assert refusal(f"{base}?session={server}")[0] == 403
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(base).port, timeout=SECONDS)
    connection.request("GET", "/?token=wrong")
    assert connection.getresponse().status >= 400


def test_a_huge_message_ends_the_console(lab, server):
    with lab.open(server, max_size=None) as console:
        read_until(console, "login: ")
        console.send(b"x" * (1 << 20))
        assert end_of(console)[0] == 1009


def test_a_stopped_server_ends_its_console(lab, server):
    with lab.open(server) as console:
        read_until(console, "login: ")
        lab.act(server, "os-stop")
        code, reason = end_of(console)
    assert code == 1000
    assert "stopped" in reason
    lab.wait(server, "SHUTOFF")
    answer = lab.ask(server)
    assert answer.status == 409
    assert "start it first" in answer.body["conflictingRequest"]["message"]


def test_a_deleted_server_ends_its_console_and_its_unused_addresses(lab):
    server = lab.boot("short")
    unused = lab.url(server)
    with lab.open(server) as console:
        read_until(console, "login: ")
        lab.send("DELETE", f"/v2.1/servers/{server}")
        code, reason = end_of(console)
    assert code == 1000
    assert "deleted" in reason
    until(lambda: lab.send("GET", f"/v2.1/servers/{server}").status == 404)
    status, text = refusal(unused)
    assert status == 403
    assert "deleted" in text


def test_the_newest_console_of_a_server_ends_the_one_before(lab, server):
    with lab.open(server) as first:
        read_until(first, "login: ")
        with lab.open(server) as second:
            read_until(second, "login: ")
            assert end_of(first) == (1000, "another console of this server was opened")
            second.send("here\r")
            read_until(second, "you typed 'here'")


def test_who_opened_a_console_is_an_action_of_the_server(lab, server):
    with lab.open(server) as console:
        read_until(console, "login: ")
        actions = lab.send("GET", f"/v2.1/servers/{server}/os-instance-actions").body["instanceActions"]
        opened = next(one for one in actions if one["action"] == "open_console")
        assert (opened["user_id"], opened["project_id"]) == ("alice", "red")
    path = f"/v2.1/servers/{server}/os-instance-actions/{opened['request_id']}"

    def finished():
        return lab.send("GET", path).body["instanceAction"]["events"][0]["finish_time"]

    until(finished)


def test_a_server_has_a_bounded_number_of_consoles(lab):
    server = lab.boot("many")
    for _ in range(console_service.MAX_OF_SERVER):
        lab.url(server)
    answer = lab.ask(server)
    assert answer.status == 403
    assert "maximum" in answer.body["forbidden"]["message"]
    lab.send("DELETE", f"/v2.1/servers/{server}")


@pytest.fixture(scope="module")
def without_agent(tmp_path_factory):
    """A lab with a server whose host's agent was stopped, so that a test can take its place."""
    lab = Lab(tmp_path_factory.mktemp("without-agent"))
    with lab.plane:
        lab.server = lab.boot()
        lab.host.stop()
        yield lab


@contextmanager
def both_sides(lab, query=""):
    """The connections of a person, and of the test in the place of the host's agent."""
    agent = ComputeClient(lab.plane.client("compute"))
    with connect(lab.url(lab.server) + query, proxy=None, compression=None) as person:
        job = until(lambda: [one for one in agent.claim_jobs(HOST, f"{HOST}/1") if one.kind == "console"])[0]
        agent.report_job(job.id, job.epoch, "done", {})
        job = job.payload
        headers = {"Authorization": f"Bearer {job['secret']}"}
        address = f"{job['url']}?session={job['session_id']}"
        assert refusal(address, additional_headers={"Authorization": "Bearer wrong"})[0] == 403
        with connect(address, additional_headers=headers, proxy=None, compression=None, close_timeout=1) as host:
            assert refusal(address, additional_headers=headers)[0] == 403  # one host for each person
            yield person, host


def test_a_client_that_asks_for_it_is_told_that_the_host_has_connected(without_agent):
    with both_sides(without_agent, "&announce=host") as (person, host):
        assert person.recv(timeout=SECONDS) == b""
        host.send(b"up")
        assert person.recv(timeout=SECONDS) == b"up"


def test_a_client_that_never_reads_holds_back_the_host(without_agent):
    """What waits for it is what the sockets and a few messages hold, however much the guest prints."""
    with both_sides(without_agent) as (person, host):
        person.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent = 0
        host.socket.settimeout(2.0)
        with suppress(OSError, ConnectionClosed):
            while sent < 256 << 20:
                host.send(b"x" * 16_384)
                sent += 16_384
        assert 0 < sent < 32 << 20


def test_the_loss_of_the_agent_is_told_within_seconds(without_agent):
    with both_sides(without_agent) as (person, host):
        host.send(b"up")
        assert person.recv(timeout=SECONDS) == b"up"
        began = time.monotonic()
        host.socket.shutdown(socket.SHUT_RDWR)
        assert end_of(person) == (4000, f"the connection to host {HOST} was lost: its agent ended or does not answer")
        assert time.monotonic() - began < 5.0


def test_the_reason_of_the_agent_is_told(without_agent):
    with both_sides(without_agent) as (person, host):
        host.close(4000, "vm is off, so it has no console")
        assert end_of(person) == (4000, "vm is off, so it has no console")


def test_a_host_whose_driver_has_no_console_refuses_by_name(without_agent):
    with without_agent.plane.engine("compute").begin() as connection:
        connection.exec_driver_sql("UPDATE hosts SET capabilities = '[]'")
    answer = without_agent.ask(without_agent.server)
    assert answer.status == 400
    assert "Unavailable console type serial. The host" in answer.body["badRequest"]["message"]


def test_a_service_that_stops_ends_its_consoles(tmp_path):
    lab = Lab(tmp_path)
    with lab.plane, lab.open(lab.boot()) as console:
        read_until(console, "login: ")
        lab.plane.plane.drain()
        code, reason = end_of(console)
    assert code == 1001
    assert "open the console again" in reason


def test_an_idle_console_ends(tmp_path):
    lab = Lab(tmp_path, console_idle_s=0.5)
    with lab.plane, lab.open(lab.boot()) as console:
        read_until(console, "login: ")
        code, reason = end_of(console)
    assert code == 1000
    assert "nobody typed" in reason


def test_a_compute_service_without_a_proxy_refuses_by_name(tmp_path):
    lab = Lab(tmp_path, consoles=False)
    with lab.plane:
        answer = lab.ask(lab.boot())
    assert answer.status == 400
    assert "[compute] consoles" in answer.body["badRequest"]["message"]


def test_a_project_has_a_bounded_number_of_consoles(tmp_path):
    lab = Lab(tmp_path, quota_consoles=1)
    with lab.plane:
        first, second = lab.boot("first"), lab.boot("second")
        lab.url(first)
        answer = lab.ask(second)
    assert answer.status == 403
    assert "Quota exceeded for consoles" in answer.body["forbidden"]["message"]
