"""[pure] The payloads of compute's jobs for a host, decoded into types.

Every payload has ``server`` and, for a server with an allocation, ``selected_rp``; the types below list the other
fields of each kind of job. Unknown fields are ignored, because the compute service may be newer than this agent.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from moorage.core.errors import Invalid


class FlavorPayload(msgspec.Struct, frozen=True):
    name: str
    vcpus: int
    ram_mb: int
    disk_gb: int = 0
    extra_specs: Mapping[str, str] = {}
    ephemeral_gb: int = 0
    swap_mb: int = 0


class ServerRef(msgspec.Struct, frozen=True):
    id: str
    name: str


class GuestPayload(msgspec.Struct, frozen=True):
    """The values for the server's config drive; see `moorage.agent.model.config_drive.Guest`."""

    hostname: str
    zone: str | None = None
    launch_index: int = 0
    reservation_id: str = ""
    metadata: Mapping[str, str] = {}
    public_keys: Mapping[str, str] = {}
    user_data: str | None = None


class ServerPayload(msgspec.Struct, frozen=True):
    id: str
    name: str
    project_id: str
    flavor: FlavorPayload
    image_id: str | None = None
    user_id: str | None = None
    instance_name: str = ""
    guest: GuestPayload | None = None  #: None: the server has no config drive


class BuildPayload(msgspec.Struct, frozen=True):
    server: ServerPayload
    #: {suffix of a request group ("" for the group without suffix): uuids of the providers selected for it}.
    selected_rp: Mapping[str, tuple[str, ...]] = {}

    @property
    def server_ref(self) -> ServerRef:
        return ServerRef(self.server.id, self.server.name)


class StartPayload(BuildPayload, frozen=True, kw_only=True):
    start: bool = True  #: False: define the domain and leave it off


class RebuildPayload(BuildPayload, frozen=True, kw_only=True):
    key: str  #: identifies this rebuild; the same in each repetition
    start: bool = True


class RescuePayload(BuildPayload, frozen=True, kw_only=True):
    image_id: str  #: of the rescue system
    password: str


class ImagePayload(msgspec.Struct, frozen=True):
    """The image to make from a disk."""

    id: str
    name: str
    properties: Mapping[str, str] = {}


class SnapshotPayload(BuildPayload, frozen=True, kw_only=True):
    image: ImagePayload
    #: For a backup: number of backups of its kind to keep.
    rotation: int | None = None
    start: bool = False  #: if the server is stopped for the snapshot: whether a failure starts it again


class PasswordPayload(msgspec.Struct, frozen=True):
    server: ServerRef
    password: str


class HandOverPayload(msgspec.Struct, frozen=True):
    server: ServerRef
    target: Mapping[str, str]


class ServerOnlyPayload(msgspec.Struct, frozen=True):
    server: ServerRef


T = TypeVar("T")


def decode_payload(payload: Mapping[str, object], payload_type: type[T]) -> T:
    """Raises `Invalid` with the position of the fault in the payload."""
    try:
        return msgspec.convert(payload, payload_type)
    except msgspec.ValidationError as error:
        raise Invalid(f"the job's payload cannot be read: {error}", code="agent.payload") from error
