"""A create request, decoded, and its references: image, flavor, device profile, availability zone, host, names."""

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from sqlalchemy import Connection

from moorage.compute.deps import ProfileLookup
from moorage.compute.model.servers import DEFAULT_ZONE, Flavor, NetworkInterface
from moorage.compute.store import flavor_store, host_store
from moorage.core.caller import Caller
from moorage.core.errors import Forbidden, Invalid, MoorageError, NotFound
from moorage.core.names import is_custom
from moorage.images.attributes import named_images
from moorage.images.base import CallerView, ImageRecord, ProjectView
from moorage.images.client import ImageLookup
from moorage.jobs.contract import DEVICE, device_group
from moorage.scheduler.extra_specs import device_profile_specs, numbered_groups
from moorage.scheduler.flavor_resources import PROFILE_KEY, FlavorFields
from moorage.scheduler.spec_rules import ALIAS_KEY, NO_RULES, SpecRules, pci_alias_groups, refuse_unhonoured

log = logging.getLogger(__name__)

#: Image property; ``required`` if the system in the image relies on the accelerator state when the image was taken.
SAVED_STATE_PROPERTY = "accel:saved_state"

_NOT_IN_HOSTNAME = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True)
class WantedInterface:
    """A network or an existing port."""

    network_id: str | None = None
    port_id: str | None = None
    address: str | None = None  #: only with a network
    tag: str | None = None


@dataclass(frozen=True)
class NewServer:
    """A create request, decoded. `zone` is as sent: ``zone``, ``zone:host`` or ``zone:host:node``.

    `interfaces` None: the project's only network, if it has one.
    """

    name: str
    flavor_id: str
    image_id: str | None
    count: int = 1
    least: int = 1  #: if the project's limits do not allow `count` servers, this many are enough
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
    access_ipv4: str | None = None
    access_ipv6: str | None = None
    disk_config: str | None = None
    interfaces: tuple[WantedInterface, ...] | None = ()


def usable_image(images: ImageLookup | None, caller: Caller, project_id: str, image_id: str) -> ImageRecord | None:
    """The image for a server of the project; None if no image service is configured.

    Raises `Invalid` for an image that the caller or the project cannot use: the caller reads it now with its own
    rights, and the host fetches it later for the project.
    """
    if images is None:
        return None
    image = images.get(CallerView.of(caller), image_id)
    if image is None or not _may_use(images, project_id, image):
        raise Invalid(f"Can not find requested image: {image_id}")
    for other, where in named_images(image.properties).items():
        named = images.get(CallerView.of(caller), other)
        if named is None or not _may_use(images, project_id, named):
            raise Invalid(f"Can not find image {other}, which {where} of image {image_id} names, for this project.")
    if image.status != "active":
        raise Invalid(f"Image {image_id} is not active.")
    if image.properties.get(SAVED_STATE_PROPERTY) == "required":
        raise Invalid(
            f"Image {image_id} says {SAVED_STATE_PROPERTY}=required: it only works with an accelerator in the state "
            "in which the image was taken, and a server gets a clean one."
        )
    return image


def _may_use(images: ImageLookup, project_id: str, image: ImageRecord) -> bool:
    """An administrator sees images that the project does not.

    The service is queried only if the record has no answer.
    """
    if image.visibility in ("public", "community") or image.owner == project_id:
        return True
    return images.get(ProjectView(project_id), image.id) is not None


def flavor_fields(flavor: Flavor) -> FlavorFields:
    return FlavorFields(
        flavor.vcpus, flavor.ram_mb, flavor.disk_gb, flavor.ephemeral_gb, flavor.swap_mb, flavor.extra_specs
    )


def visible_flavor(connection: Connection, caller: Caller, flavor_id: str) -> Flavor:
    """The flavor, if `caller` may see it. Raises `NotFound`."""
    sees_all = caller.is_admin or caller.is_service
    flavor = flavor_store.flavor(connection, flavor_id, visible_to=None if sees_all else caller.project_id)
    if flavor is None:
        raise NotFound(f"Flavor {flavor_id} could not be found.")
    return flavor


def usable_flavor(connection: Connection, caller: Caller, flavor_id: str) -> Flavor:
    try:
        return visible_flavor(connection, caller, flavor_id)
    except NotFound as error:
        raise Invalid(error.message) from error


def requested_zone_and_host(
    connection: Connection, new: NewServer, *, may_force_host: bool
) -> tuple[str | None, str | None]:
    """(zone, host) that the request demands, None for either that it does not."""
    zone, _, rest = (new.zone or "").partition(":")
    host = new.host or rest.partition(":")[0] or None
    if host is not None and not may_force_host:
        raise Forbidden("Policy doesn't allow os_compute_api:servers:create:forced_host to be performed.")
    if host is not None and host_store.host(connection, host) is None:
        raise Invalid(f"Compute host {host} could not be found.")
    if zone not in ("", DEFAULT_ZONE) and not host_store.has_zone(connection, zone):
        raise Invalid("The requested availability zone is not available")
    return zone or None, host


def hostname_for(name: str, server_id: str) -> str:
    text = _NOT_IN_HOSTNAME.sub("-", name.lower()).strip("-.")[:63].strip("-.")
    return text or f"server-{server_id}"


_GB = 1 << 30


def needs_config_drive(image_properties: Mapping[str, str]) -> bool:
    return image_properties.get("img_config_drive") == "mandatory"


def check_image_fits_flavor(image: ImageRecord, flavor: Flavor) -> None:
    """Raises `Invalid` for a flavor that is too small for the image. A disk of 0 becomes as large as the image."""
    if flavor.ram_mb < image.min_ram_mb:
        raise Invalid(
            f"Flavor's memory is too small for requested image: it has {flavor.ram_mb} MB, the image needs "
            f"{image.min_ram_mb} MB."
        )
    if not flavor.disk_gb:
        return
    if flavor.disk_gb < image.min_disk_gb:
        raise Invalid(
            f"Flavor's disk is smaller than the minimum size specified in image metadata. Flavor disk is "
            f"{flavor.disk_gb * _GB} bytes, minimum size is {image.min_disk_gb * _GB} bytes."
        )
    if flavor.disk_gb * _GB < (image.size_bytes or 0):
        raise Invalid(
            f"Flavor's disk is too small for requested image. Flavor disk is {flavor.disk_gb * _GB} bytes, "
            f"image is {image.size_bytes} bytes."
        )


def with_honoured_specs(
    rules: SpecRules, flavor: Flavor, image_properties: Mapping[str, str]
) -> tuple[Flavor, Mapping[str, str]]:
    """The server's own copies of flavor and image properties, in which keys without effect are marked as ignored.

    Raises `Invalid` for a key that no component honours, unless the operator ignores it.
    """
    specs = refuse_unhonoured(rules, flavor.extra_specs, image_properties)
    if specs.ignored:
        log.warning("keys are ignored for a server", extra={"flavor": flavor.id, "keys": ", ".join(specs.ignored)})
        flavor = replace(flavor, extra_specs=specs.extra_specs)
    return flavor, specs.image_properties


NO_GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType({})

#: What the device profile of a port must request: one function of a network card.
_PORT_CLASS = "CUSTOM_ACCELERATOR_NIC"


def with_device_profile(
    flavor: Flavor,
    profiles: ProfileLookup | None,
    rules: SpecRules = NO_RULES,
    of_ports: Mapping[str, Mapping[str, str]] = NO_GROUPS,
) -> Flavor:
    """The server's own copy of `flavor`, with the groups of its device profile and PCI aliases as extra specs.

    `of_ports`: more groups, {suffix: group}, from `requested_port_groups` or `kept_port_groups`.
    """

    def profile_groups(key: str, name: str) -> Sequence[Mapping[str, str]]:
        return _profile_groups(profiles, key, name)

    of_flavor: list[Mapping[str, str]] = []
    if (name := flavor.extra_specs.get(PROFILE_KEY)) is not None:
        of_flavor += profile_groups(PROFILE_KEY, name)
    if (aliases := flavor.extra_specs.get(ALIAS_KEY)) is not None:
        of_flavor += pci_alias_groups(rules, aliases, lambda name: profile_groups(ALIAS_KEY, name))
    groups = {**numbered_groups(of_flavor), **of_ports}
    if not groups:
        return flavor
    return replace(flavor, extra_specs={**flavor.extra_specs, **device_profile_specs(flavor.extra_specs, groups)})


def _profile_groups(profiles: ProfileLookup | None, key: str, name: str) -> Sequence[Mapping[str, str]]:
    """`key`: what names the profile."""
    if profiles is None:
        raise Invalid(f"{key}={name}: this cloud has no accelerator service, so it has no device profiles")
    groups = profiles.profile_groups(name)
    if groups is None:
        raise Invalid(f"{key}={name}: there is no device profile of this name; create the profile, or name another one")
    return groups


def requested_port_groups(
    interfaces: Sequence[NetworkInterface], profiles: ProfileLookup | None, offered: frozenset[str]
) -> dict[str, Mapping[str, str]]:
    """{suffix: group} of the device profiles of ports. `offered`: names of the profiles that ports may have.

    Whoever may create ports chooses their profiles, so only those are looked up that the operator offers.
    """
    found: dict[str, Mapping[str, str]] = {}
    groups: dict[str, Mapping[str, str]] = {}
    for one in interfaces:
        name = one.device_profile
        if name is None:
            continue
        if name not in offered:
            raise Forbidden(
                f"Port {one.port_id} has the device profile {name}, which is not offered for ports; an operator offers "
                "it in [compute] port_device_profiles."
            )
        if name not in found:
            found[name] = _port_group(name, _profile_groups(profiles, f"device_profile of port {one.port_id}", name))
        groups[device_group(one.port_id)] = found[name]
    return groups


def kept_port_groups(flavor: Flavor, interfaces: Sequence[NetworkInterface]) -> dict[str, Mapping[str, str]]:
    """{suffix: group} of a server's ports, from its own copy of its flavor."""
    groups: dict[str, dict[str, str]] = {device_group(one.port_id): {} for one in interfaces if one.kind == DEVICE}
    for key, value in flavor.extra_specs.items():
        head, _, name = key.partition(":")
        for suffix, group in groups.items():
            if head.endswith(suffix):
                group[f"{head.removesuffix(suffix)}:{name}"] = value
    return dict(groups)


def _port_group(name: str, groups: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """The only group of the profile."""
    wanted = {key: value for group in groups for key, value in group.items() if key.startswith("resources:")}
    if len(groups) != 1 or wanted != {f"resources:{_PORT_CLASS}": "1"}:
        raise Invalid(
            f"The device profile {name} of a port must have one group with resources:{_PORT_CLASS}=1 and no other "
            "resources: a port is one function of a network card."
        )
    return groups[0]


class NameLookup(Protocol):
    def has_class(self, name: str) -> bool: ...
    def has_trait(self, name: str) -> bool: ...


class PlacementNames:
    """Checks that Placement knows resource classes and traits, because it refuses a query with an unknown name.

    Remembers known names, which rarely disappear; asks for unknown names each time.
    """

    def __init__(self, placement: NameLookup) -> None:
        self._placement = placement
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def check(self, classes: frozenset[str], traits: frozenset[str]) -> None:
        """Raises `Invalid` for a name that Placement does not know. If Placement does not answer, accepts all names."""
        for kind, names, lookup in (
            ("resource class", classes, self._placement.has_class),
            ("trait", traits, self._placement.has_trait),
        ):
            for name in sorted(names):
                if is_custom(name) and not self._is_known(name, lookup):
                    raise Invalid(
                        f"Placement has no {kind} {name}, so no host offers it; "
                        "correct the flavor or image, or add it to a host"
                    )

    def _is_known(self, name: str, lookup: Callable[[str], bool]) -> bool:
        with self._lock:
            if name in self._known:
                return True
        try:
            found = lookup(name)
        except MoorageError:
            return True  # the scheduler finds out, and waits for Placement
        if found:
            with self._lock:
                self._known.add(name)
        return found
