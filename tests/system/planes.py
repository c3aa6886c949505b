"""Planes for tests: built by the wiring like any other, in process, with a virtual or the real clock."""

import dataclasses
from datetime import datetime
from pathlib import Path
from typing import Self

from moorage.config import Config, render
from moorage.config import load as load_config
from moorage.core.clock import Clock, VirtualClock
from moorage.core.errors import NotFound
from moorage.core.ids import SeededIds
from moorage.identity.client import PasswordTokens
from moorage.identity.embedded import credentials
from moorage.jobs.duties import DutiesInTurn
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport
from moorage.wiring import build_plane


def write_config(directory: Path, **sections: dict[str, object]) -> Config:
    """A configuration in `directory`; `sections` as ``agent={"workers": 1}``."""
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
    path.write_text(render(config))
    return load_config(path)


class PlaneClients:
    """The admin's clients of a plane in this process."""

    def __init__(self, app, state: Path, clock: Clock, user: str = "admin") -> None:
        password, project = credentials(state, user)
        tokens = PasswordTokens(
            InProcessTransport(app, "http://127.0.0.1/identity"),
            username=user,
            password=password,
            project=project,
            clock=clock,
        )

        def client(prefix: str, service_type: str, version: str | None = None) -> ServiceClient:
            transport = InProcessTransport(app, f"http://127.0.0.1/{prefix}")
            return ServiceClient(transport, service_type=service_type, version=version, credentials=tokens, clock=clock)

        self.placement = client("placement", "placement", "1.39")
        self.compute = client("compute/v2.1", "compute", "2.96")
        self.accelerator = client("accelerator/v2", "accelerator", "2.3")
        self.reservation = client("reservation", "reservation")
        self.image = client("image", "image")


class VirtualPlane(PlaneClients):
    """All services and the agent under a virtual clock; nothing happens but in `settle` and `run_until`."""

    def __init__(self, directory: Path, start: datetime, *, seed: int = 1) -> None:
        config = write_config(
            directory,
            # Periods of real hosts would be most of the work of thirty days.
            agent={
                "workers": 1,
                "heartbeat_period_s": 6 * 3600.0,
                "update_period_s": 24 * 3600.0,
                "poll_period_s": 24 * 3600.0,
            },
            compute={"host_down_after_s": 24 * 3600, "poll_period_s": 24 * 3600.0},
            accelerator={"report_period_s": 24 * 3600.0},
            # Logging in costs 40 ms by design (bcrypt); a service would do it once an hour.
            identity={"token_lifetime_s": 365 * 24 * 3600},
        )
        self.clock = VirtualClock(start)
        self.plane = build_plane(config, clock=self.clock, ids=SeededIds(seed))
        super().__init__(self.plane.app, config.state, self.clock)
        self.plane.prepare()
        self._duties = DutiesInTurn(self.clock, self.plane.wakeups, self.plane.duties)
        self.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.plane.stop()

    def settle(self) -> None:
        self._duties.settle()

    def run_until(self, moment: datetime) -> None:
        self._duties.run_until(moment)

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

    def create_server(self, *, flavor: str, name: str = "server", image: str | None = None) -> str:
        body = {"name": name, "flavorRef": flavor, "imageRef": image or self._image(), "networks": "none"}
        return self.compute.request("POST", "/servers", json={"server": body})["server"]["id"]

    def server(self, server_id: str) -> dict | None:
        try:
            return self.compute.get(f"/servers/{server_id}")["server"]
        except NotFound:
            return None

    def story(self) -> list[object]:
        """What there is to see, for comparing two runs."""
        providers = self.placement.get("/resource_providers")["resource_providers"]
        return [
            self.clock.now(),
            sorted((row["name"], row["uuid"], row["generation"]) for row in providers),
            self.reservation.get("/v1/leases")["leases"],
        ]

    def _image(self) -> str:
        image = self.image.request(
            "POST", "/v2/images", json={"name": "tiny", "disk_format": "raw", "container_format": "bare"}
        )
        self.image.upload(
            "PUT",
            f"/v2/images/{image['id']}/file",
            [b"tiny"],
            "application/octet-stream",
            {"x-openstack-image-size": "4"},
        )
        return image["id"]
