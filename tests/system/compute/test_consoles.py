"""Serial consoles with the stock client and real people, on a plane with a simulated host."""

import json

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.ports import free_port
from tests.processes import openstack
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SECONDS = 30.0


@pytest.fixture
def plane(tmp_path):
    config = write_config(tmp_path / "plane", server={"port": free_port()})
    with PlaneProcess(config.source).start() as plane:
        yield plane


def variables(plane, user="admin", password=None, project=None):
    account = json.loads((plane.state / "credentials.json").read_text())["admin"]
    return {
        "OS_AUTH_URL": f"{plane.url}/identity",
        "OS_USERNAME": user,
        "OS_PASSWORD": password or account["password"],
        "OS_PROJECT_NAME": project or account["project"],
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }


@pytest.fixture
def server(plane):
    clients = plane.clients()
    server = clients.create_server(flavor=clients.create_flavor("small"), name="web")
    until(lambda: clients.server(server)["status"] == "ACTIVE")
    return server


def run(variables, *words):
    (said,) = openstack(variables, words)
    assert said.status == 0, said.err
    return said.out.strip()


def read_until(person, wanted):
    text = ""
    while wanted not in text:
        text += person.recv(timeout=SECONDS).decode()
    return text


def end_of(person):
    try:
        while True:
            person.recv(timeout=SECONDS)
    except ConnectionClosed as closed:
        return closed.rcvd and (closed.rcvd.code, closed.rcvd.reason)


def show(variables):
    return run(variables, "console", "url", "show", "--serial", "-f", "value", "-c", "url", "web")


def test_the_address_of_the_stock_client_leads_to_the_console_until_the_service_is_killed(plane, server):
    with connect(show(variables(plane)), subprotocols=["binary"], proxy=None) as person:
        read_until(person, "web login: ")
        person.send("hello\r")
        read_until(person, "you typed 'hello'")
        unused = show(variables(plane))
        plane.kill()
        assert end_of(person) is None  # no process is left to say why; the connection ends at once
    with plane.start():
        with connect(show(variables(plane)), proxy=None) as person:
            read_until(person, "web login: ")
        # The proxy has another port now.
        with pytest.raises((OSError, InvalidStatus)), connect(unused, proxy=None, open_timeout=2):
            pass
        (said,) = openstack(variables(plane), ["console", "url", "show", "--novnc", "web"])
        assert said.status != 0
        assert "Unavailable console type vnc" in said.err


def test_a_person_who_loses_the_role_loses_the_console(plane, server):
    admin = variables(plane)
    run(admin, "user", "create", "--password", "of-carol-1234", "carol")
    run(admin, "role", "add", "--user", "carol", "--project", "admin", "member")
    url = show(variables(plane, "carol", "of-carol-1234", "admin"))
    with connect(url, proxy=None) as person:
        read_until(person, "web login: ")
        run(admin, "role", "remove", "--user", "carol", "--project", "admin", "member")
        code, reason = end_of(person)
    assert code == 1000
    assert "no role" in reason
