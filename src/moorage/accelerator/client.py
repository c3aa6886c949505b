"""The Accelerator API, as other features and the hosts' agents use it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from msgspec import to_builtins

from moorage.accelerator.reports import AttachmentReport, DeviceReport
from moorage.wire.client import ServiceClient


@dataclass(frozen=True, slots=True)
class Device:
    uuid: str
    hostname: str
    type: str
    vendor: str
    model: str


@dataclass(frozen=True, slots=True)
class Deployable:
    uuid: str
    name: str
    device_id: int
    num_accelerators: int
    rp_uuid: str | None
    bitstream_id: str | None


@dataclass(frozen=True, slots=True)
class AcceleratorRequest:
    """A bound accelerator (ARQ): who holds which handle where."""

    uuid: str
    state: str
    instance_uuid: str
    hostname: str
    device_rp_uuid: str
    pci: Mapping[str, str]  #: domain, bus, device, function


class AcceleratorClient:
    """The Accelerator API v2 of a plane. `http` is made for service type ``accelerator``, below ``/accelerator``."""

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def devices(self, hostname: str | None = None) -> list[Device]:
        body = self._http.get("/v2/devices", params={"hostname": hostname})
        return [Device(**{name: row[name] for name in Device.__slots__}) for row in body["devices"]]

    def deployables(self) -> list[Deployable]:
        body = self._http.get("/v2/deployables")
        return [Deployable(**{name: row[name] for name in Deployable.__slots__}) for row in body["deployables"]]

    def requests(self, instance_uuid: str | None = None) -> list[AcceleratorRequest]:
        body = self._http.get("/v2/accelerator_requests", params={"instance": instance_uuid})
        return [_request(row) for row in body["arqs"]]

    def report_devices(self, host: str, devices: Iterable[DeviceReport]) -> None:
        """The whole picture of `host`; agents only."""
        body = {"devices": [to_builtins(device) for device in devices]}
        self._http.request("PUT", f"/agent/v1/hosts/{quote(host)}/devices", json=body)

    def report_attachments(self, host: str, attachments: Iterable[AttachmentReport]) -> None:
        """All that is attached on `host`; agents only."""
        body = {"attachments": [to_builtins(attachment) for attachment in attachments]}
        self._http.request("PUT", f"/agent/v1/hosts/{quote(host)}/attachments", json=body)


def _request(row: Mapping[str, Any]) -> AcceleratorRequest:
    return AcceleratorRequest(
        uuid=row["uuid"],
        state=row["state"],
        instance_uuid=row["instance_uuid"],
        hostname=row["hostname"],
        device_rp_uuid=row["device_rp_uuid"],
        pci=row["attach_handle_info"],
    )
