"""The client of the Accelerator API, for other services and the hosts' agents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TypedDict
from urllib.parse import quote

from msgspec import convert, to_builtins

from moorage.accelerator.model.device_history import HistoryRecord
from moorage.accelerator.model.naming import spec_class
from moorage.accelerator.model.profile import ProgramRequest
from moorage.accelerator.model.reports import AttachmentReport, DeviceReport, ReportAnswer, ReportPosition, Superseded
from moorage.core.errors import NotFound, RemoteError
from moorage.core.json import JsonObject
from moorage.jobs.job_api import HostJobsClient
from moorage.wire.client import decode_body

__all__ = [
    "AcceleratorClient",
    "AcceleratorRequest",
    "AttachHandle",
    "NoBitstream",
    "ProgramRequest",
    "RemoteDeployable",
    "RemoteDevice",
]


@dataclass(frozen=True, slots=True)
class RemoteDevice:
    uuid: str
    hostname: str
    type: str
    vendor: str
    model: str


@dataclass(frozen=True, slots=True)
class RemoteDeployable:
    uuid: str
    name: str
    device_id: int
    num_accelerators: int
    rp_uuid: str | None
    bitstream_id: str | None
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class AcceleratorRequest:
    """An accelerator request (ARQ) with its handle, instance and host."""

    uuid: str
    state: str
    instance_uuid: str
    hostname: str
    device_rp_uuid: str
    pci: Mapping[str, str | None]  #: domain, bus, device, function; more, which may be null
    profile: str | None  #: None: not created through the API, but reported by the host of a plugged server
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class AttachHandle:
    address: str
    state: str
    deployable: str  #: its name
    request_uuid: str | None
    reason: str = ""  #: why it is quarantined


@dataclass(frozen=True, slots=True)
class NoBitstream:
    """The reason why no region can be programmed with the wanted bitstream or function."""

    message: str
    is_ambiguous: bool  #: several images match; the message names them


class AcceleratorClient(HostJobsClient):
    """A client of a plane's Accelerator API v2. `http` must be for service type ``accelerator``, below
    ``/accelerator``.
    """

    def devices(self, hostname: str | None = None) -> list[RemoteDevice]:
        """A field of `RemoteDevice` that an older service does not send has its default."""
        body = self._http.get("/v2/devices", params={"hostname": hostname})
        names = [field.name for field in fields(RemoteDevice)]
        return [RemoteDevice(**{name: row[name] for name in names if name in row}) for row in body["devices"]]

    def deployables(self) -> list[RemoteDeployable]:
        body = self._http.get("/v2/deployables")
        return [_decode_deployable(row) for row in body["deployables"]]

    def requests(self, instance_uuid: str | None = None) -> list[AcceleratorRequest]:
        body = self._http.get("/v2/accelerator_requests", params={"instance": instance_uuid})
        return [_decode_request(row) for row in body["arqs"]]

    def handles(self, host: str) -> list[AttachHandle] | None:
        """The attach handles of a host; None if the service is not Moorage's or denies access."""
        answer = self._http.request_raw("GET", "/moorage/v1/handles", params={"host": host}, accept=(403, 404))
        if answer.status != 200:
            return None
        return [
            AttachHandle(row["handle"], row["state"], row["deployable"], row["request_uuid"], row["reason"] or "")
            for row in decode_body(answer)["handles"]
        ]

    def release_handle(self, host: str, handle: str, reason: str, *, is_clean: bool) -> str:
        """End the quarantine of a handle; returns its state afterwards. For administrators. Raises `RemoteError` with
        the host's reason if it stays quarantined.
        """
        body = {"host": host, "handle": handle, "reason": reason, "is_clean": is_clean}
        return str(self._http.request("POST", "/moorage/v1/handles/release", json=body)["handle"]["state"])

    def delete_requests_of(self, instance_uuid: str) -> None:
        """Delete an instance's requests, as compute does when it deletes the server. Raises `Conflict` for requests
        reported by a host for a plugged server.
        """
        self._http.request("DELETE", f"/v2/accelerator_requests?instance={quote(instance_uuid)}")

    def find_bitstream(self, wanted: ProgramRequest, project_id: str, traits: Iterable[str] = ()) -> NoBitstream | None:
        """Checks whether a region with all `traits` could be programmed for `project_id`. Returns None if so, otherwise
        the reason. For administrators. Raises `NotFound` if the service is not Moorage's.
        """
        params = [
            *_image_or_function(wanted).items(),
            ("project_id", project_id),
            *(("trait", trait) for trait in traits),
        ]
        refusal = self._http.get("/moorage/v1/bitstreams", params=params)["refusal"]
        return None if refusal is None else NoBitstream(refusal["message"], is_ambiguous=refusal["is_ambiguous"])

    def program(self, uuid: str, wanted: ProgramRequest, project_id: str) -> str | None:
        """Load an image that `project_id` may use into a deployable; returns the image's id. For administrators."""
        return self._program(
            uuid, {"op": "replace", "value": [_image_or_function(wanted) | {"project_id": project_id}]}
        )

    def empty(self, uuid: str, only: ProgramRequest, wait_s: float) -> str | None:
        """Loads the blank into a deployable that has `only`; returns the id of its image afterwards. Waits up to
        `wait_s`; if that is too short, the host still does it, before later jobs for the deployable. For
        administrators.
        """
        return self._program(uuid, {"op": "remove", "value": [_image_or_function(only)], "wait_s": wait_s})

    def _program(self, uuid: str, operation: JsonObject) -> str | None:
        body = [{"path": "/program", **operation}]
        found = self._http.request("PATCH", f"/v2/deployables/{quote(uuid)}/program", json=body, repeatable=True)
        carried: str | None = found["bitstream_id"]
        return carried

    def profiles(self) -> list["ProfileDocument"]:
        """Device profiles as on the wire."""
        found: list[ProfileDocument] = self._http.get("/v2/device_profiles")["device_profiles"]
        return found

    def profile_groups(self, name: str) -> list[dict[str, str]] | None:
        """The groups of a device profile, with the resource classes that hosts publish; None if there is no such
        profile.
        """
        found = self._http.get("/v2/device_profiles", params={"name": name})["device_profiles"]
        profile = next((row for row in found if row["name"] == name), None)
        return None if profile is None else [_with_published_classes(group) for group in profile["groups"]]

    def ask_for_epoch(self, host: str) -> ReportPosition | None:
        """The position of the first report of an agent of `host` that has started; None if the service is of the
        release before, which stores reports in the order of their arrival. For agents.
        """
        try:  # may be repeated: another epoch is as good
            answer = self._http.request("POST", f"/agent/v1/hosts/{quote(host)}/epoch", repeatable=True)
        except NotFound:
            return None
        return convert(answer, ReportPosition)

    def report_devices(
        self, host: str, devices: Iterable[DeviceReport], position: ReportPosition | None = None
    ) -> ReportAnswer | None:
        """Report all devices of `host`. For agents. Raises `Superseded`."""
        return self._report(host, "devices", [to_builtins(device) for device in devices], position)

    def report_attachments(
        self, host: str, attachments: Iterable[AttachmentReport], position: ReportPosition | None = None
    ) -> ReportAnswer | None:
        """Report all attachments of `host`. For agents. Raises `Superseded`."""
        return self._report(host, "attachments", [to_builtins(one) for one in attachments], position)

    def _report(self, host: str, kind: str, rows: list[object], position: ReportPosition | None) -> ReportAnswer | None:
        body = {kind: rows, **(to_builtins(position) if position is not None else {})}
        try:
            answer = self._http.request("PUT", f"/agent/v1/hosts/{quote(host)}/{kind}", json=body)
        except RemoteError as error:
            if error.status == 409:
                raise Superseded(str(error.fields.get("detail") or error.message)) from error
            raise
        return None if answer is None else convert(answer, ReportAnswer)

    def report_history(self, host: str, records: Iterable[HistoryRecord]) -> None:
        """Report history records of `host`, in order. Records that were reported before are ignored. For agents."""
        body = {"records": [to_builtins(record) for record in records]}
        self._http.request("POST", f"/agent/v1/hosts/{quote(host)}/history", json=body)

    def history(self, **wanted: str | int | None) -> "HistoryPage":
        """One page of the history; `wanted`: query parameters. For administrators."""
        page: HistoryPage = self._http.get("/moorage/v1/history", params=wanted)
        return page


class ProfileDocument(TypedDict):
    name: str
    groups: list[dict[str, str]]


class HistoryDocument(TypedDict):
    """The keys of a record that are read here."""

    at: str
    event: str
    result: str
    hostname: str
    handle: str
    deployable: str
    instance_uuid: str
    project_id: str
    user_id: str
    image_id: str
    sha512: str
    reason: str


class HistoryPage(TypedDict):
    records: list[HistoryDocument]
    next: str | None  #: marker of the next page


class _Row(TypedDict):
    created_at: str
    updated_at: str | None


class _DeployableRow(_Row):
    uuid: str
    name: str
    device_id: int
    num_accelerators: int
    rp_uuid: str | None
    bitstream_id: str | None


class _RequestRow(_Row):
    uuid: str
    state: str
    instance_uuid: str
    hostname: str
    device_rp_uuid: str
    attach_handle_info: dict[str, str | None]
    device_profile_name: str | None


def _image_or_function(wanted: ProgramRequest) -> dict[str, str]:
    names = {
        "image_uuid": wanted.bitstream_id,
        "function_id": wanted.function_id,
        "function_name": wanted.function_name,
    }
    return {name: value for name, value in names.items() if value}


def _decode_deployable(row: _DeployableRow) -> RemoteDeployable:
    return RemoteDeployable(
        uuid=row["uuid"],
        name=row["name"],
        device_id=row["device_id"],
        num_accelerators=row["num_accelerators"],
        rp_uuid=row["rp_uuid"],
        bitstream_id=row["bitstream_id"],
        changed_at=_changed_at(row),
    )


def _changed_at(row: _Row) -> datetime:
    moment = datetime.fromisoformat(row["updated_at"] or row["created_at"])
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _decode_request(row: _RequestRow) -> AcceleratorRequest:
    return AcceleratorRequest(
        uuid=row["uuid"],
        state=row["state"],
        instance_uuid=row["instance_uuid"],
        hostname=row["hostname"],
        device_rp_uuid=row["device_rp_uuid"],
        pci=row["attach_handle_info"],
        profile=row["device_profile_name"],
        changed_at=_changed_at(row),
    )


def _with_published_classes(group: Mapping[str, str]) -> dict[str, str]:
    """Replace Cyborg's classes, which profiles may use, by those that hosts publish: ``resources:FPGA`` by
    ``CUSTOM_ACCELERATOR_FPGA``.
    """
    return {_published_key(key): value for key, value in group.items()}


def _published_key(key: str) -> str:
    kind, _, name = key.partition(":")
    return f"{kind}:{spec_class(name)}" if kind == "resources" else key
