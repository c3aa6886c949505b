"""Kills the processes of a cloud with SIGKILL during operations on a server, and starts them again.

Real processes: one runs the services, two run the agents of hosts with accelerators. The test takes a server through
all its operations. In each operation one process dies before or after one of its effects on the outside. Afterwards
the server must be in the final state of the operation, and the allocations, devices, interfaces, ports, domains of the
hypervisors and the API must agree.

A request that attaches or detaches an interface changes things before it is answered. If the services die in it, the
test repeats it, as a client does. What a dead request has bound is released after `RELEASE_AFTER`.

The points are recorded in a run without faults. A normal run tries one point per operation, EXPLORE=1 all of them.
"""

import contextlib
import os
import random
import re
from dataclasses import dataclass

import pytest

from moorage.compute.servers.interface_service import RELEASE_AFTER
from moorage.core.clock import SystemClock
from moorage.core.errors import MoorageError
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport
from tests.crash import effects
from tests.crash.processes import Process, Zygote
from tests.ports import free_port
from tests.system.planes import PlaneClients, embedded_credentials, let_in, until, write_config

pytestmark = pytest.mark.slow

SERVICES = ("identity", "placement", "compute", "accelerator", "image", "network")
PACKAGES = ("cli", "placement", "compute", "agent", "accelerator", "identity", "images", "jobs", "network", "wiring")
HOSTS = ("compute-1", "compute-2")
_MAC = re.compile(r"<mac address=['\"]([0-9a-f:]{17})['\"]")
GPU = "CUSTOM_ACCELERATOR_GPU"
HELD = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1, GPU: 1}
#: Only the start of processes is slow; all three may be starting at once.
PATIENCE_S = 90


@dataclass(frozen=True)
class Operation:
    name: str
    action: dict | None
    #: The server's status at the end, and the number of its interfaces.
    status: str
    interfaces: int


OPERATIONS = (
    Operation("create", None, "ACTIVE", 0),
    Operation("attach", None, "ACTIVE", 1),
    Operation("attach", None, "ACTIVE", 2),
    Operation("stop", {"os-stop": None}, "SHUTOFF", 2),
    Operation("detach", None, "SHUTOFF", 1),
    Operation("start", {"os-start": None}, "ACTIVE", 1),
    Operation("rebuild", {"rebuild": {"imageRef": "IMAGE"}}, "ACTIVE", 1),
    Operation("snapshot", {"createImage": {"name": "copy"}}, "ACTIVE", 1),
    Operation("migrate", {"migrate": None}, "VERIFY_RESIZE", 1),
    Operation("revert", {"revertResize": None}, "ACTIVE", 1),
    Operation("migrate", {"migrate": None}, "VERIFY_RESIZE", 1),
    Operation("confirm", {"confirmResize": None}, "ACTIVE", 1),
    Operation("shelve", {"shelve": None}, "SHELVED_OFFLOADED", 1),
    Operation("unshelve", {"unshelve": None}, "ACTIVE", 1),
    Operation("detach", None, "ACTIVE", 0),
    Operation("attach", None, "ACTIVE", 1),
    Operation("delete", None, "gone", 0),
)


class Member:
    """One process of the cloud, and the directory from which it reads where to die."""

    def __init__(self, config, zygote):
        self.state = config.state
        self.process = Process(self.state / "moorage.conf", zygote, effects=self.state)
        self.url = config.url

    def start(self):
        self.process.start()

    def dies_at(self, label):
        (self.state / "fault").write_text(label)

    def clear_fault(self):
        """Stops counting; returns the points since counting began."""
        (self.state / "fault").unlink(missing_ok=True)
        points = list(effects.passed(self.state))
        (self.state / "passed").unlink(missing_ok=True)
        return points


class Cloud:
    """The services and two hosts."""

    def __init__(self, directory, zygote, stack):
        self._directory, self._zygote, self._stack = directory, zygote, stack
        services = write_config(
            directory / "services",
            plane={"services": ",".join(SERVICES), "log_level": "warning", "clock": "adjustable"},
            server={"port": free_port()},
            compute={"poll_period_s": 0.2, "reclaim_instance_interval": 0},
            accelerator={"poll_period_s": 0.2},
            network={"lines": {"lab": "bridge br0 subnet 192.0.2.0/24"}},
        )
        self.members = {"services": self._member(services)}
        self._wait_until_answering(services.url)
        for host in HOSTS:
            config = write_config(
                directory / host,
                plane={"services": "agent", "log_level": "warning"},
                server={"port": free_port()},
                endpoints={name: f"{services.url}/{name}" for name in SERVICES if name != "network"},
                agent={"host": host, "poll_period_s": 0.2, "heartbeat_period_s": 1.0},
                accelerator={"poll_period_s": 0.2},
            )
            let_in(config, services.state)
            self.members[host] = self._member(config)
        clock = SystemClock()

        def transport(path=""):
            return SocketTransport(f"{services.url}{path}")

        tokens = embedded_credentials(transport("/identity"), services.state, clock)
        self.clients = PlaneClients(transport, tokens, clock)
        until(self._all_up, timeout_s=PATIENCE_S)
        self.image = self.clients.create_image()
        self.clients.create_flavor("gpu", **{f"resources:{GPU}": "1"})
        self.roots = {
            row["name"]: row["uuid"]
            for row in self.clients.placement.get("/resource_providers")["resource_providers"]
            if row["name"] in HOSTS
        }
        self.network = ServiceClient(transport("/network"), service_type="network", credentials=tokens, clock=clock)
        self.rehearsal = ServiceClient(transport("/moorage"), service_type="moorage", credentials=tokens, clock=clock)
        self.lab = self.network.get("/v2.0/networks")["networks"][0]["id"]
        self.server_id = None
        self.seen = {}
        self.leaving = ""  #: the port of the interface that a request detaches
        self.orphans = set()  #: ports that requests which were not answered may have bound

    def _member(self, config):
        member = Member(config, self._zygote)
        self._stack.enter_context(member.process)
        member.start()
        return member

    def _wait_until_answering(self, url):
        def asked():
            with contextlib.suppress(MoorageError):
                return SocketTransport(url).send("GET", "/identity/v3", {}).status == 200

        until(asked, timeout_s=PATIENCE_S)

    def _all_up(self):
        rows = self.clients.compute.get("/os-services")["services"]
        return {row["host"] for row in rows if row["state"] == "up"} == set(HOSTS)

    # ------------------------------------------------------------------------------------ operations

    def send_request(self, operation):
        """Sends the request of the operation; returns whether it was answered."""
        with contextlib.suppress(MoorageError):
            if operation.name == "create":
                self.clients.create_server(flavor="gpu", name="vm", image=self.image)
            elif operation.name == "delete":
                self.clients.compute.request("DELETE", f"/servers/{self.server_id}")
            elif operation.name == "attach":
                body = {"interfaceAttachment": {"net_id": self.lab}}
                self.clients.compute.request("POST", f"/servers/{self.server_id}/os-interface", json=body)
            elif operation.name == "detach":
                self.leaving = self.leaving or min(self.listed_ports())
                path = f"/servers/{self.server_id}/os-interface/{self.leaving}"
                self.clients.compute.request("DELETE", path)
            else:
                (key, argument), *_ = operation.action.items()
                argument = {"imageRef": self.image} if key == "rebuild" else argument
                path = f"/servers/{self.server_id}/action"
                self.clients.compute.request_raw("POST", path, json={key: argument})
            return True
        return False

    def server(self):
        rows = self.clients.compute.get("/servers/detail?all_tenants=1")["servers"]
        return rows[0] if rows else None

    def is_over(self, operation):
        """Whether the operation has ended, and all records of the server agree. False while a service does not
        answer.
        """
        with contextlib.suppress(MoorageError, FileNotFoundError):
            server = self.server()
            status = server["status"] if server else "gone"
            self.server_id = server["id"] if server else self.server_id
            here = server and server["OS-EXT-SRV-ATTR:host"]
            on = {host for host in HOSTS if host == here or status == "VERIFY_RESIZE"}
            self.seen = {"server": (status, server and server["OS-EXT-STS:task_state"]) == (operation.status, None)}
            if not self.seen["server"]:
                return False  # saves twelve requests per call
            self.seen |= {
                "usages": all(self.used(host) == (HELD if host in on else {}) for host in HOSTS),
                "allocation": self.allocated_below() == ({self.roots[here]} if here else set()),
                "hypervisors": {host for host in HOSTS if self.domain(host).exists()} == on,
                "devices": self.devices_agree(here),
                "interfaces": self.interfaces_agree(here, operation.interfaces),
            }
            return all(self.seen.values())

    def finish(self, operation, *, is_answered=True):
        """Waits until the operation is over; restarts dead processes meanwhile. Repeats a request that attaches or
        detaches an interface if it was neither answered nor carried out.
        """

        def is_over():
            nonlocal is_answered
            for member in self.dead():
                member.start()
            if self.is_over(operation):
                return True
            if not is_answered and operation.name in ("attach", "detach"):
                with contextlib.suppress(MoorageError):
                    self.orphans |= self.bound_ports().keys() - self.listed_ports()
                    is_answered = len(self.listed_ports()) == operation.interfaces or self.send_request(operation)
            return False

        try:
            until(is_over, timeout_s=PATIENCE_S)
        except AssertionError:
            pytest.fail(f"{operation.name} does not end: {self.seen}; {self.server()}", pytrace=False)
        self.leaving = ""

    def used(self, host):
        total = {}
        tree = self.clients.placement.get(f"/resource_providers?in_tree={self.roots[host]}")["resource_providers"]
        for provider in tree:
            usages = self.clients.placement.get(f"/resource_providers/{provider['uuid']}/usages")["usages"]
            for name, units in usages.items():
                total[name] = total.get(name, 0) + units
        return {name: units for name, units in total.items() if units}

    def allocated_below(self):
        held = self.clients.placement.get(f"/allocations/{self.server_id}")["allocations"]
        rows = (self.clients.placement.get(f"/resource_providers/{uuid}") for uuid in held)
        return {row["root_provider_uuid"] for row in rows}

    def domain(self, host):
        return self.members[host].state / "host" / "domains" / f"{self.server_id}.xml"

    def devices_agree(self, here):
        """Whether the accelerator service's attachments are those in the domain's definition."""
        addresses = self.clients.accelerators_of(self.server_id)
        if not here:
            return addresses == []
        text = self.domain(here).read_text().replace('"', "'")
        return len(addresses) == 1 and f"function='0x{addresses[0][-1]}'" in text

    def listed_ports(self):
        """The ports that the server lists."""
        if self.server() is None:
            return set()
        rows = self.clients.compute.get(f"/servers/{self.server_id}/os-interface")["interfaceAttachments"]
        return {row["port_id"] for row in rows}

    def bound_ports(self):
        """{id: port} of those that the network service has for the server."""
        rows = self.network.get("/v2.0/ports", params=[("device_id", self.server_id)])["ports"]
        return {row["id"]: row for row in rows}

    def interfaces_agree(self, here, number):
        """Whether the server lists so many interfaces, their ports are bound to its host, and its domain has them."""
        listed, bound = self.listed_ports(), self.bound_ports()
        if len(listed) != number or not listed <= bound.keys() or not bound.keys() - listed <= self.orphans:
            return False
        if any(bound[port]["binding:host_id"] != (here or "") for port in listed):
            return False
        macs = {bound[port]["mac_address"] for port in listed}
        return not here or set(_MAC.findall(self.domain(here).read_text())) == macs

    def release_orphans(self):
        """Moves the clock to when the ports of dead requests are released, and waits for that."""
        self.rehearsal.request("POST", "/v1/clock", json={"advance_s": RELEASE_AFTER.total_seconds() + 1})
        until(lambda: not self.network.get("/v2.0/ports")["ports"], timeout_s=PATIENCE_S)

    # ----------------------------------------------------------------------------------------- kills

    def run_without_faults(self):
        """Runs all operations without faults: [(operation, [(process, a point that it passed)])]."""
        points = []
        for operation in OPERATIONS:
            for member in self.members.values():
                member.dies_at("nowhere")
            assert self.send_request(operation)
            self.finish(operation)
            passed = [(name, point) for name, member in self.members.items() for point in member.clear_fault()]
            points.append((operation, passed))
        return points

    def run_with_kill(self, operation, who, point):
        """Runs the operation; returns whether a process died in it. If `who` is a host, either host may act, so both
        get the fault.
        """
        victims = HOSTS if who in HOSTS else (who,)
        for name in victims:
            self.members[name].dies_at(point)
        is_answered = self.send_request(operation)
        until(lambda: self.dead() or self.is_over(operation), timeout_s=PATIENCE_S)
        for name in victims:
            self.members[name].clear_fault()
        has_died = bool(self.dead())
        self.finish(operation, is_answered=is_answered)
        return has_died

    def dead(self):
        return [member for member in self.members.values() if member.process.died(0.0) is not None]


@pytest.fixture
def cloud(tmp_path):
    with contextlib.ExitStack() as stack:
        zygote = Zygote(*(f"moorage.{package}" for package in PACKAGES))
        stack.callback(zygote.close)
        yield Cloud(tmp_path, zygote, stack)


def chosen_points(points):
    """[{index of the operation: (process, point)}], one run each: one random point per operation, or all of them."""
    if os.environ.get("EXPLORE"):
        lives = max(len(passed) for _, passed in points)
        return [{place: passed[k] for place, (_, passed) in enumerate(points) if k < len(passed)} for k in range(lives)]
    chance = random.Random(4)
    chosen = {}
    for place, (_, passed) in enumerate(points):
        who = chance.choice(sorted({who for who, _ in passed}))
        chosen[place] = chance.choice([one for one in passed if one[0] == who])
    return [chosen]


def test_an_operation_completes_after_a_kill_of_any_process_at_any_effect(cloud):
    """Issue 4, "Crash matrix"."""
    points = cloud.run_without_faults()
    assert {who for _, passed in points for who, _ in passed} == set(cloud.members)
    assert min(len(passed) for _, passed in points) >= 4
    kills = tried = 0
    for chosen in chosen_points(points):
        for place, operation in enumerate(OPERATIONS):
            kills += cloud.run_with_kill(operation, *chosen.get(place, ("services", "nowhere")))
            tried += place in chosen  # an operation with fewer points than others runs without a fault in the end
    cloud.release_orphans()
    assert kills >= tried * 0.8, f"{kills} kills at {tried} points"
