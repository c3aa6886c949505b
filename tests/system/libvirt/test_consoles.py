"""Serial consoles of real guests: what a person types reaches the guest's shell, and the answer comes back."""

import time

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from moorage.agent.model import PowerAction
from moorage.agent.virt.driver import NoSuchDomain, VirtError
from tests.processes import openstack
from tests.system.libvirt import drivers
from tests.system.libvirt.servers import act, delete, wait_for, wait_for_console
from tests.system.libvirt.test_guests import variables

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SECONDS = 60.0


@pytest.fixture(scope="module")
def server(plane, clients, images, flavor):
    server = clients.create_server(flavor=flavor, image=images("shell"), name="typed")
    wait_for(clients, server, "ACTIVE")
    wait_for_console(clients, server, "READY")
    yield server
    delete(clients, server)


def url_of(plane, server):
    (said,) = openstack(variables(plane), ["console", "url", "show", "--serial", "-f", "json", server])
    assert said.status == 0, said.err
    return said.document["url"]


def typed(person, line, wanted):
    """Types the line until the guest has answered: a shell that is just starting drops what was typed before."""
    seen, deadline = "", time.monotonic() + SECONDS
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        person.send(f"{line}\r")
        try:
            while wanted not in seen:
                seen = seen[-1000:] + person.recv(timeout=3.0).decode(errors="replace")
        except TimeoutError:
            continue
    return seen


def end_of(person):
    try:
        while True:
            person.recv(timeout=SECONDS)
    except ConnectionClosed as closed:
        return closed.rcvd.code, closed.rcvd.reason


def test_a_person_types_into_the_shell_of_a_guest_and_reads_the_answer(plane, clients, server):
    with connect(url_of(plane, server), subprotocols=["binary"], proxy=None) as person:
        typed(person, "echo $((6 * 7))-here", "42-here")
    # The log of the console has it, too: one serial port serves both.
    wait_for_console(clients, server, "42-here")


def test_the_newest_console_of_a_guest_ends_the_one_before(plane, server):
    with connect(url_of(plane, server), proxy=None) as first:
        typed(first, "echo first-$((1 + 1))", "first-2")
        with connect(url_of(plane, server), proxy=None) as second:
            assert end_of(first) == (1000, "another console of this server was opened")
            typed(second, "echo second-$((1 + 1))", "second-2")


def test_a_guest_that_prints_to_a_client_that_does_not_read_disturbs_no_other_call(plane, clients, server):
    with connect(url_of(plane, server), proxy=None, max_queue=1, ping_interval=None) as person:
        typed(person, "echo go-$((1 + 1))", "go-2")
        person.send(
            "i=0; while [ $i -lt 3000 ]; do echo $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; i=$((i + 1)); done\r"
        )
        act(clients, server, "pause", "PAUSED")
        act(clients, server, "unpause", "ACTIVE")
        typed(person, "echo again-$((1 + 1))", "again-2")


def test_a_stopped_guest_ends_its_console(plane, clients, server):
    with connect(url_of(plane, server), proxy=None) as person:
        typed(person, "echo up-$((1 + 1))", "up-2")
        act(clients, server, "os-stop", "SHUTOFF")
        code, reason = end_of(person)
    assert code == 1000
    assert "stopped" in reason
    act(clients, server, "os-start", "ACTIVE")
    wait_for_console(clients, server, r"BOOT 2\s[^$]*READY")
    with connect(url_of(plane, server), proxy=None) as person:
        typed(person, "echo back-$((1 + 1))", "back-2")


def test_the_driver_opens_only_consoles_of_its_own_running_domains(driver, libvirtd):
    with pytest.raises(NoSuchDomain):
        driver.open_console(drivers.A)
    driver.spawn(drivers.linux(), start=False)
    with pytest.raises(VirtError, match="is off"):
        driver.open_console(drivers.A)
    driver.power(drivers.A, PowerAction.START)
    opened = driver.open_console(drivers.A)
    assert opened.read()
    opened.close()
    opened.close()
    assert opened.read() == b""
    opened.write(b"ignored")
