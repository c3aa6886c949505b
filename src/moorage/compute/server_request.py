"""A create request, and what it refers to: image, flavor, availability zone, host."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Connection

from moorage.compute import host_store
from moorage.compute.flavor_service import visible_flavor
from moorage.compute.model import DEFAULT_ZONE, Flavor
from moorage.core.caller import Caller
from moorage.core.errors import Forbidden, Invalid, NotFound
from moorage.scheduler.flavor_resources import FlavorFields

_NOT_IN_HOSTNAME = re.compile(r"[^a-z0-9.-]+")


class Image(Protocol):
    """What of an image matters here (`moorage.images.base.ImageRecord`)."""

    @property
    def id(self) -> str: ...
    @property
    def is_for_everybody(self) -> bool: ...
    @property
    def owner(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, str]: ...


class ImageLookup(Protocol):
    def get(self, image_id: str) -> Image | None: ...


@dataclass(frozen=True)
class NewServer:
    """A create request, decoded. `zone` is as sent: ``zone``, ``zone:host`` or ``zone:host:node``."""

    name: str
    flavor_id: str
    image_id: str | None
    count: int = 1
    zone: str | None = None
    host: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    description: str | None = None
    hostname: str | None = None
    key_name: str | None = None
    user_data: str | None = None
    config_drive: bool = False
    scheduler_hints: Mapping[str, object] = field(default_factory=dict)


def fields_of(flavor: Flavor) -> FlavorFields:
    return FlavorFields(
        flavor.vcpus, flavor.ram_mb, flavor.disk_gb, flavor.ephemeral_gb, flavor.swap_mb, flavor.extra_specs
    )


def usable_flavor(connection: Connection, caller: Caller, flavor_id: str) -> Flavor:
    try:
        return visible_flavor(connection, caller, flavor_id)
    except NotFound as error:
        raise Invalid(error.message) from error


def wanted_place(connection: Connection, new: NewServer, *, may_force_host: bool) -> tuple[str | None, str | None]:
    """(zone, host) that the server must be in or on."""
    zone, _, rest = (new.zone or "").partition(":")
    host = new.host or rest.partition(":")[0] or None
    if host is not None and not may_force_host:
        raise Forbidden("Policy doesn't allow os_compute_api:servers:create:forced_host to be performed.")
    if host is not None and host_store.host(connection, host) is None:
        raise Invalid(f"Compute host {host} could not be found.")
    zones = {host_store.zones(connection).get(one.name, DEFAULT_ZONE) for one in host_store.all_hosts(connection)}
    if zone and zone not in zones | {DEFAULT_ZONE}:
        raise Invalid("The requested availability zone is not available")
    return zone or None, host


def hostname_for(name: str, server_id: str) -> str:
    text = _NOT_IN_HOSTNAME.sub("-", name.lower()).strip("-.")[:63].strip("-.")
    return text or f"server-{server_id}"
