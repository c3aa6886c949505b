"""Planes for tests: in this process under a virtual clock, or `moorage up` in processes of their own."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Self

import pytest
from sqlalchemy import Engine

from moorage.config import Config, load_config, render_config
from moorage.core.clock import Clock, SystemClock, VirtualClock
from moorage.core.errors import NotFound, StartError
from moorage.core.ids import RandomIds, SeededIds
from moorage.db.migrations import upgrade
from moorage.identity.client import PasswordTokens
from moorage.identity.first_start.first_credentials import first_credentials
from moorage.identity.host_credential import enrol_host
from moorage.options.plane import PlaneOptions
from moorage.options.services import PlacementOptions
from moorage.placement.service.service import PlacementService
from moorage.wire.client import ServiceClient, TokenSource
from moorage.wire.transports import SocketTransport, Transport
from tests.databases import Schema
from tests.migrated import schema_of
from tests.people import create_first_people
from tests.plane import InProcessPlane
from tests.programs import Fork, moorage_server
from tests.servers import sqlite_template

MOORAGE = Path(sys.executable).with_name("moorage")
#: The module of the `moorage` command.
COMMAND = "moorage.cli.main:main"
COMMAND_TIMEOUT_S = 300
#: Services with a database.
WITH_DATABASE = frozenset({"identity", "placement", "compute", "accelerator", "reservation", "network"})
DEADLINE_S = 30

#: The function of the bitstreams that tests upload.
AES = "6b7e1f0a-95cc-4c2b-8d5e-3a1f0c9d7e21"


def write_config(directory: Path, **sections: dict[str, object]) -> Config:
    """Writes a configuration in `directory`; `sections` as ``agent={"workers": 1}``."""
    directory.mkdir(parents=True, exist_ok=True)
    provider_config = directory / "provider_config"
    provider_config.mkdir(mode=0o700, exist_ok=True)
    given = {"plane": {"state_path": "."}, "compute": {"provider_config_location": str(provider_config)}}
    for name, options in sections.items():
        given[name] = given.get(name, {}) | options
    config = Config()
    for name, options in given.items():
        config = dataclasses.replace(config, **{name: dataclasses.replace(getattr(config, name), **options)})
    path = directory / "moorage.conf"
    path.write_text(render_config(config))
    return load_config(path)


class PlaneClients:
    """Clients of a plane, and methods for frequent requests of tests."""

    def __init__(self, transport: Callable[[str], Transport], credentials: TokenSource, clock: Clock) -> None:
        """`transport(path)` returns a transport to a path below the plane's address."""

        def client(path: str, service_type: str, version: str | None = None) -> ServiceClient:
            return ServiceClient(
                transport(path), service_type=service_type, version=version, credentials=credentials, clock=clock
            )

        self.identity = client("/identity", "identity")
        self.placement = client("/placement", "placement", "1.39")
        self.compute = client("/compute/v2.1", "compute", "2.96")
        self.accelerator = client("/accelerator/v2", "accelerator", "2.3")
        self.reservation = client("/reservation", "reservation")
        self.image = client("/image", "image")

    def create_lease(self, *, start: datetime, end: datetime, amount: int) -> str:
        reservation = {
            "resource_type": "virtual:instance",
            "vcpus": 1,
            "memory_mb": 512,
            "disk_gb": 1,
            "amount": amount,
            "affinity": "None",
            "resource_properties": "",
        }
        body = {
            "name": "team",
            "start_date": start.strftime("%Y-%m-%d %H:%M"),
            "end_date": end.strftime("%Y-%m-%d %H:%M"),
            "reservations": [reservation],
            "events": [],
            "before_end_date": None,
        }
        return self.reservation.request("POST", "/v1/leases", json=body)["lease"]["id"]

    def lease(self, lease_id: str) -> dict:
        return self.reservation.get(f"/v1/leases/{lease_id}")["lease"]

    def reservation_id(self, lease_id: str) -> str:
        return self.lease(lease_id)["reservations"][0]["id"]

    def create_server(
        self, *, flavor: str, name: str = "server", image: str | None = None, request_id: str | None = None
    ) -> str:
        body = {"name": name, "flavorRef": flavor, "imageRef": image or self.create_image(), "networks": "none"}
        headers = {"x-openstack-request-id": request_id} if request_id else None
        return self.compute.request("POST", "/servers", json={"server": body}, headers=headers)["server"]["id"]

    def server(self, server_id: str) -> dict | None:
        try:
            return self.compute.get(f"/servers/{server_id}")["server"]
        except NotFound:
            return None

    def create_image(self, content: bytes = b"tiny", **properties: object) -> str:
        """Creates it in our own service, or in the Glance of `self.image`."""
        body = {"name": "image", "disk_format": "raw", "container_format": "bare", **properties}
        image = self.image.request("POST", "/v2/images", json=body)
        self.image.upload(
            "PUT",
            f"/v2/images/{image['id']}/file",
            [content],
            "application/octet-stream",
            {"x-openstack-image-size": str(len(content))},
        )
        return image["id"]

    def create_flavor(self, name: str, *, ram_mb: int = 64, swap_mb: int = 0, **extra_specs: str) -> str:
        body = {"id": name, "name": name, "vcpus": 1, "ram": ram_mb, "disk": 1, "swap": swap_mb}
        self.compute.request("POST", "/flavors", json={"flavor": body})
        if extra_specs:
            self.compute.request("POST", f"/flavors/{name}/os-extra_specs", json={"extra_specs": extra_specs})
        return name

    def create_fpga_flavor(self, name: str = "fpga", function: str = AES) -> str:
        """A flavor that requests a function for the host's first region, and a bitstream with that function."""
        providers = self.placement.get("/resource_providers")["resource_providers"]
        region = min((row["name"], row["uuid"]) for row in providers if "_R" in row["name"])[1]
        traits = self.placement.get(f"/resource_providers/{region}/traits")["traits"]
        trait = next(trait for trait in traits if "_REGION_" in trait)
        region_id = trait.partition("_REGION_")[2].replace("_", "-").lower()
        self.create_image(
            function.encode() * 100, function_uuid=function, region_uuid=region_id, tags=["FPGA"], visibility="public"
        )
        return self.create_flavor(
            name,
            **{"resources:CUSTOM_ACCELERATOR_FPGA": "1", f"trait:{trait}": "required", "accel:function_id": function},
        )

    def accelerators_of(self, server_id: str) -> list[str]:
        """PCI addresses of the server's attached accelerators."""
        rows = self.accelerator.get("/accelerator_requests")["arqs"]
        handles = [row["attach_handle_info"] for row in rows if row["instance_uuid"] == server_id]
        return [f"{at['domain']}:{at['bus']}:{at['device']}.{at['function']}" for at in handles]

    def allocations(self, consumer: str) -> dict[str, int]:
        """The consumer's allocations, summed over providers."""
        held: dict[str, int] = {}
        for row in self.placement.get(f"/allocations/{consumer}")["allocations"].values():
            for name, amount in row["resources"].items():
                held[name] = held.get(name, 0) + amount
        return held

    def wait_for_status(self, server_id: str, *wanted: str, timeout_s: float = DEADLINE_S) -> str:
        def status() -> str | None:
            return (server := self.server(server_id)) and server["status"]

        def seen() -> dict[str, object]:
            server = self.server(server_id) or {}
            return {name: server.get(name) for name in ("status", "OS-EXT-STS:task_state", "fault")}

        return until(lambda: (found := status()) in wanted and found, timeout_s=timeout_s, seen=seen)

    def wait_until_gone(self, server_id: str) -> None:
        until(lambda: self.server(server_id) is None)


def embedded_credentials(transport: Transport, state: Path, clock: Clock, user: str = "admin") -> PasswordTokens:
    """The first password of a user, for a plane with its own users; `transport` leads to its identity service."""
    password, project = first_credentials(state, user)
    return PasswordTokens(transport, username=user, password=password, project=project, clock=clock)


def let_in(agent: Config, services: Path) -> None:
    """Gives the hosts of an agent their credentials, as `moorage host enrol` and `moorage host join` do. `services` is
    the state directory of an identity service that runs.
    """
    identity, clock = SocketTransport(agent.endpoints.identity), SystemClock()
    admin = ServiceClient(
        identity, service_type="identity", credentials=embedded_credentials(identity, services, clock), clock=clock
    )
    for host in agent.hosts:
        made = admin.request("POST", f"/moorage/v1/hosts/{host}/enrolment", json={"expires_s": 600})
        enrol_host(agent.credential_of(host), host, made["token"], identity, clock)


def without_ours() -> dict[str, str]:
    """The environment without variables that would lead to another cloud or plane."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "MOORAGE_"))}


def moorage(*words: object, directory: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs one command of `moorage` in a fork, and captures its output."""
    return moorage_server().run(
        COMMAND, words, environment=without_ours() | environment, directory=directory, timeout=COMMAND_TIMEOUT_S
    )


def until(probe: Callable[[], object], *, timeout_s: float = DEADLINE_S, seen: Callable[[], object] | None = None):
    """Calls `probe` until its result is true, and returns it. A failure shows `seen()`, or the last result of
    `probe`.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := probe()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s} s; seen last: {seen() if seen else answer!r}")
        time.sleep(0.02)
    return answer


class VirtualPlane(InProcessPlane, PlaneClients):
    """All services and the agent with their own users; tasks run only in `settle`, `run_for` and `run_until`."""

    def __init__(self, directory: Path, start: datetime, *, seed: int = 1, **sections: dict[str, object]) -> None:
        """`sections` are options by section, which override those below."""
        # With the periods of a real host, most of the work of thirty days would be polls.
        day_s = 24 * 3600.0
        options: dict[str, dict[str, object]] = {
            "agent": {"heartbeat_period_s": 6 * 3600.0, "update_period_s": day_s, "poll_period_s": day_s},
            "compute": {"host_down_after_s": 24 * 3600},
            "reservation": {"watch_period_s": day_s},
            "placement": {"watchers": PlacementOptions().watchers},
            # a login costs 40 ms by design (bcrypt), and a service logs in about once an hour
            "identity": {"token_lifetime_s": 365 * 24 * 3600},
        }
        for name, values in sections.items():
            options[name] = options.get(name, {}) | values
        InProcessPlane.__init__(
            self,
            directory,
            PlaneOptions().services,
            clock=VirtualClock(start),
            ids=SeededIds(seed),
            url="http://127.0.0.1",
            authenticator=None,
            credentials=None,
            **options,
        )
        tokens = embedded_credentials(self.transport("/identity"), self.state, self.clock)
        PlaneClients.__init__(self, self.transport, tokens, self.clock)
        self.settle()

    @property
    def state(self) -> Path:
        return self.config.state

    def password(self, user: str) -> str:
        return first_credentials(self.state, user)[0]

    def story(self) -> list[object]:
        """The visible state, to compare two runs."""
        providers = self.placement.get("/resource_providers")["resource_providers"]
        return [
            self.clock.now(),
            sorted((row["name"], row["uuid"], row["generation"]) for row in providers),
            self.reservation.get("/v1/leases")["leases"],
        ]


def _start_placement(engine: Engine) -> None:
    """Writes placement's standard names with the present time, because a running plane deletes old entries of the
    log.
    """
    upgrade(engine, "placement")
    PlacementService(engine, SystemClock(), RandomIds()).start()


PLACEMENT = Schema("placement-now", _start_placement)


def furnish(config: Config) -> None:
    """Writes what the first start would write into the state directory: SQLite databases and users.

    The passwords of these users take 1 ms to check instead of 70 ms, and each command of a client logs in.
    """
    if not config.state.exists():
        config.state.mkdir(mode=0o700, parents=True)
    for service in config.runs & WITH_DATABASE:
        path = config.state / f"{service}.db"
        if not path.exists() and config.database_url(service) == f"sqlite:///{path}":
            shutil.copy(sqlite_template(PLACEMENT if service == "placement" else schema_of(service)), path)
            path.chmod(0o600)
    if config.has_users and not config.identity.users_file:
        create_first_people(config, SystemClock(), RandomIds())


def first_config(path: Path) -> Config:
    """The configuration that the first start writes, as far as `furnish` reads it."""
    return Config(source=path)


class PlaneProcess:
    """`moorage up` with the configuration file `config`, which the first start creates if it does not exist."""

    def __init__(
        self,
        config: Path,
        *options: str,
        program: Path = MOORAGE,
        home: Path | None = None,
        python_path: str = "",
        is_warm: bool = True,
    ) -> None:
        """`program`: that of another installation. `home`: of another user. `python_path`: for additional packages.

        `is_warm` makes a start cheap: the program is forked (`tests.programs`), and databases and users exist already
        (`furnish`). Do not use it in tests of the start itself.
        """
        self.config = config
        self._is_warm = is_warm and program == MOORAGE
        self._own = {} if home is None else {"HOME": str(home)}
        if python_path:
            self._own["PYTHONPATH"] = python_path
        self._program = program
        self.state = config.parent
        self._options = options
        self._out = self.state.with_name(f"{self.state.name}.out")
        self._err = self.state.with_name(f"{self.state.name}.err")
        self.process: subprocess.Popen | Fork | None = None

    def __enter__(self) -> Self:
        return self if self.process else self.start()

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def launch(self) -> Self:
        """Starts the process without waiting until it is up."""
        words = ["up", "--config", self.config, *self._options]
        directory, environment = self._out.parent, without_ours() | self._own
        with self._out.open("w") as out, self._err.open("w") as err:
            if self._is_warm:
                with contextlib.suppress(StartError):  # the plane's own message is clearer
                    furnish(load_config(self.config) if self.config.exists() else first_config(self.config))
                self.process = moorage_server().start(
                    COMMAND, words, directory=directory, stdout=out, stderr=err, environment=environment,
                    start_new_session=True,
                )  # fmt: skip
            else:
                self.process = subprocess.Popen(
                    [self._program, *words], cwd=directory, stdout=out, stderr=err, env=environment,
                    start_new_session=True,
                )  # fmt: skip
        return self

    def start(self) -> Self:
        """Starts the process and waits until it reports that it is up."""
        self.launch()
        until(lambda: "Moorage is up" in self.out or self.process.poll() is not None)
        if self.process.poll() is not None:
            pytest.fail(f"the plane did not start: {self.err}\n{self.log[-3000:]}", pytrace=False)
        return self

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        """Stops it as Ctrl-C does; returns the exit code."""
        self.process.send_signal(how)
        return self.process.wait(10)

    def kill(self) -> None:
        """Kills all its processes with SIGKILL, as if the machine had lost power."""
        if self.process is not None:
            for pid in self.members():
                os.kill(pid, signal.SIGKILL)
            self.process.wait(10)
            until(lambda: not self.members())

    def members(self) -> list[int]:
        """The pids of its processes that still run."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(group) == self.process.pid and state != "Z":
                found.append(int(path.parent.name))
        return found

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def log(self) -> str:
        path = self.state / "moorage.log"
        return path.read_text() if path.exists() else ""

    @property
    def url(self) -> str:
        return load_config(self.state / "running.conf").url

    def transport(self, path: str = "") -> SocketTransport:
        return SocketTransport(f"{self.url}{path}", ca_file=load_config(self.state / "running.conf").ca_file)

    def clients(self, user: str = "admin") -> PlaneClients:
        """Clients of one of its users, for a plane with its own users."""
        clock = SystemClock()
        tokens = embedded_credentials(self.transport("/identity"), self.state, clock, user)
        return PlaneClients(self.transport, tokens, clock)

    def slow_down(self, **latency_s: float) -> None:
        """Sets the time that its simulated accelerators take for each verb."""
        path = self.state / "accelerators" / "simulated" / "control.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"latency_s": latency_s}))

    def wait_for_programming(self) -> None:
        path = self.state / "accelerators" / "simulated" / "devices.json"
        until(lambda: path.exists() and '"programming"' in path.read_text())
