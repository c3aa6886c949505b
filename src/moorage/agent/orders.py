"""[pure] What a job asks of a host, decoded from its payload.

    build                                   {"server": {...}, "selected_rp": {"": ["<rp>"]}, "allocations": {...}}
    destroy stop start reboot pause unpause {"server": {"id", "name"}}

Fields that are not named here are passed over: whoever wrote the job may be newer than this agent.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from moorage.core.errors import Invalid


class FlavorOrder(msgspec.Struct, frozen=True):
    name: str
    vcpus: int
    ram_mb: int
    disk_gb: int = 0
    extra_specs: Mapping[str, str] = {}


class ServerRef(msgspec.Struct, frozen=True):
    id: str
    name: str


class ServerOrder(msgspec.Struct, frozen=True):
    id: str
    name: str
    project_id: str
    flavor: FlavorOrder
    image_id: str | None = None
    user_id: str | None = None


class BuildOrder(msgspec.Struct, frozen=True):
    server: ServerOrder
    #: Suffix of the request group ("" for the one without) -> the providers that were selected for it.
    selected_rp: Mapping[str, tuple[str, ...]] = {}


class PowerOrder(msgspec.Struct, frozen=True):
    server: ServerRef


T = TypeVar("T")


def decode(payload: Mapping[str, object], kind: type[T]) -> T:
    """Raises `Invalid` naming the place in the payload."""
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"the job's payload cannot be read: {error}", code="agent.payload") from error
