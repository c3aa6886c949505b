"""Every command of the unmodified clients for reservations against a running plane: ``openstack reservation ...`` and
the ``blazar`` shell. They print what the API answers.
"""

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from tests.ports import free_port
from tests.processes import openstack, python_of
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.clients]

#: Client 4.6.0 names a class that it does not have, so this command fails with every service.
BROKEN = {"reservation host unset"}

#: Verbs whose commands print their objects.
SHOWS = {"create", "list", "show"}

RESERVATION = "resource_type=virtual:instance,vcpus=1,memory_mb=64,disk_gb=1,amount=2,affinity=None"


class Lines:
    """Runs lines as commands, and records them, to find the commands that no test has run."""

    def __init__(self, plane):
        kept = json.loads((plane.state / "credentials.json").read_text())["admin"]
        self.run = []
        self.variables = {
            "OS_AUTH_URL": f"{plane.url}/identity",
            "OS_USERNAME": "admin",
            "OS_PASSWORD": kept["password"],
            "OS_PROJECT_NAME": kept["project"],
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }

    def _done(self, words, answers):
        for line, said in zip(words, answers, strict=True):
            assert said.status == 0, (line, said)
        self.run += [" ".join(line) for line in words]
        return answers

    def without(self, commands):
        """Those of `commands` that were not run."""
        return {name for name in commands if not any(f"{line} ".startswith(f"{name} ") for line in self.run)}

    def openstack(self, *lines):
        """The answer of each command, as a document if it is one."""
        words = [_words(f"reservation {line}") for line in lines]
        asked = [[*line, *(["-f", "json"] if SHOWS.intersection(line) else [])] for line in words]
        return [_document(said.out) for said in self._done(words, openstack(self.variables, *asked))]

    def blazar(self, *lines):
        words = [_words(line) for line in lines]
        asked = [["--os-auth-type", "password", *line] for line in words]
        return [said.out for said in self._done(words, openstack(self.variables, *asked, shell="blazarclient.shell"))]


def _document(out):
    """The JSON after a line of text; None if there is only text."""
    found = re.search(r"^[\[{]", out, re.MULTILINE)
    return None if found is None else json.loads(out[found.start() :])


def _words(line):
    """The words of a command; `START` and `END` stand for future dates, which contain a blank, also within a word."""
    now = datetime.now(UTC)
    dates = {name: f"{now + timedelta(hours=hours):%Y-%m-%d %H:%M}" for name, hours in (("START", 1), ("END", 5))}
    return [re.sub(r"\b(?:START|END)\b", lambda name: dates[name[0]], word) for word in line.split()]


def plane_below(directory, **sections):
    write_config(directory / "state", server={"port": free_port()}, **sections)
    return PlaneProcess(directory / "state" / "moorage.conf")


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with plane_below(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def lines(plane):
    return Lines(plane)


def moment(text):
    """A date in the client's format."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC)


def entry_points():
    script = (
        "from importlib.metadata import entry_points as found\n"
        "print('\\n'.join(one.name.replace('_', ' ') for one in found(group='openstack.reservation.v1')))"
    )
    listed = subprocess.run(
        [python_of(".venv-clients"), "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(listed.stdout.splitlines())


def of_floating_ips(command):
    """Whether the command needs a Neutron; `test_floating_ips` runs these."""
    return command.startswith("reservation floatingip ")


def test_every_openstack_command_for_reservations_succeeds(plane, lines):
    """A host, its properties, a lease from creation to deletion, allocations."""
    host, hosts, shown, _, properties, public, prop, _, private, lease = lines.openstack(
        "host create compute-1 --extra rack=9",
        "host list",
        "host show compute-1",
        "host set compute-1 --extra gpu=True",
        "host property list --detail --all",
        "host property list",
        "host property show gpu",
        "host property set gpu --private",
        "host property list --detail",
        f"lease create team --reservation {RESERVATION} --start-date now --end-date END"
        " --event event_type=before_end_lease,event_date=START --event event_type=notification,event_date=START",
    )
    assert (host["hypervisor_hostname"], host["rack"], host["reservable"]) == ("compute-1", "9", True)
    assert [each["hypervisor_hostname"] for each in hosts] == ["compute-1"]
    assert shown == host
    assert {each["property"]: each["property_values"] for each in properties} == {"rack": ["9"], "gpu": ["True"]}
    assert {each["property"] for each in public} == {"rack", "gpu"}
    assert prop["property"] == "gpu"
    assert [each["property"] for each in private] == ["rack"]
    assert (lease["name"], json.loads(lease["reservations"])["amount"]) == ("team", 2)
    events = {each["event_type"]: moment(each["time"]) for each in plane.clients().lease(lease["id"])["events"]}
    assert timedelta(minutes=50) < events["before_end_lease"] - datetime.now(UTC) < timedelta(hours=1)
    until(lambda: plane.clients().lease(lease["id"])["status"] == "ACTIVE")
    listed, shown, allocations, allocation, _, _, now, _, _, *left = lines.openstack(
        "lease list",
        "lease show team",
        "allocation list host",
        f"allocation show host {host['id']}",
        "lease set team --name crew",
        "lease set crew --prolong-for 2h",
        "lease show crew",
        "lease delete crew",
        "host delete compute-1",
        "lease list",
        "host list",
    )
    assert [each["name"] for each in listed] == ["team"]
    assert (shown["id"], shown["status"]) == (lease["id"], "ACTIVE")
    assert [each["resource_id"] for each in allocations] == [host["id"]]
    assert allocation["resource_id"] == host["id"]
    assert moment(now["end_date"]) - moment(shown["end_date"]) == timedelta(hours=2)
    assert left == [[], []]


def test_every_command_of_the_blazar_shell_prints_the_same(plane, lines):
    """All its commands, also the one that does not work in ``openstack``. The lease is in the future, so nothing
    starts.
    """
    out = lines.blazar(
        "host-create compute-1 --extra rack=9",
        "host-list",
        "host-show compute-1",
        "host-update compute-1 --extra ssd=True",
        "host-property-list",
        "host-property-show ssd",
        "host-property-set ssd --private",
        "host-unset compute-1 --extra rack",
        "host-show compute-1",
        f"lease-create --reservation {RESERVATION} --start-date START --end-date END team",
        "lease-list",
        "lease-show team",
        "lease-update --name crew team",
        "allocation-list host",
        "lease-delete crew",
    )
    assert "compute-1" in out[1]
    assert "rack" in out[2]
    assert "ssd" in out[4]
    assert "rack" not in out[8]
    assert "ssd" in out[8]
    assert "team" in out[10]
    assert "team" in out[11]
    (host,) = plane.clients().reservation.get("/v1/os-hosts")["hosts"]
    assert f"| {host['id']} " in out[13]
    lines.blazar(f"allocation-show host {host['id']}", "host-delete compute-1")
    assert plane.clients().reservation.get("/v1/leases") == {"leases": []}
    assert plane.clients().reservation.get("/v1/os-hosts") == {"hosts": []}


def test_both_clients_create_leases_of_flavors_and_of_whole_hosts(plane, lines):
    """With both clients, each with its own syntax; they print the same as with Blazar."""
    plane.clients().compute.request(
        "POST", "/flavors", json={"flavor": {"id": "7", "name": "seven", "vcpus": 1, "ram": 64, "disk": 1}}
    )
    flavor = "--reservation resource_type=flavor:instance,flavor_id=7,amount=2,affinity=None"
    host = '--reservation resource_type=physical:host,min=1,max=1,hypervisor_properties=[">=","$vcpus","1"]'
    dates = "--start-date START --end-date END"
    *_, slots = lines.openstack("host create compute-1", f"lease create slots {flavor} {dates}")
    shown = json.loads(slots["reservations"])
    assert (shown["resource_type"], shown["amount"], shown["vcpus"]) == ("flavor:instance", 2, 1)
    lines.openstack("lease delete slots")
    out = lines.blazar(f"lease-create {host} {dates} hosts", "lease-show hosts", "lease-delete hosts")
    assert "physical:host" in out[1]
    _, whole, _ = lines.openstack(f"lease create whole {host} {dates}", "lease show whole", "lease delete whole")
    shown = json.loads(whole["reservations"])
    assert (shown["min"], shown["max"]) == (1, 1)
    assert json.loads(shown["hypervisor_properties"]) == [">=", "$vcpus", "1"]
    lines.blazar(f"lease-create {flavor} {dates} slots", "lease-delete slots", "host-delete compute-1")


PARTS = (
    test_every_openstack_command_for_reservations_succeeds,
    test_every_command_of_the_blazar_shell_prints_the_same,
    test_both_clients_create_leases_of_flavors_and_of_whole_hosts,
)


def test_every_command_of_the_clients_is_run_by_a_test(lines, tmp_path):
    """Compared with the client's own list, so that a newer client's command shows up here."""
    wanted = {name for name in entry_points() - BROKEN if not of_floating_ips(name)}
    if lines.without(wanted):  # another worker of pytest-xdist has run some of them
        with plane_below(tmp_path) as plane:
            lines = Lines(plane)
            for part in PARTS:
                part(plane, lines)
    assert lines.without(wanted) == set()
