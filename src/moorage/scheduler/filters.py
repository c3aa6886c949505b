"""Filters: conditions on a host that Placement cannot check. A filter returns a reason against the host, or None.

Reasons name no host: they are counted, and the counts are shown to users. Filters of other packages are loaded by
`moorage.wiring.scheduler`; docs/guides/adding-a-filter.md explains how to write one.

``aggregate_instance_extra_specs:<KEY>=<VALUE>`` in a flavor: the server needs a host in an aggregate with such
metadata. As in Nova's AggregateInstanceExtraSpecsFilter, the metadata ``<KEY>`` may list several values separated by
commas, and ``<VALUE>`` is a value or begins with an operator:

    =  ==  !=  >=  <=           numbers; ``=`` is ``>=``
    s==  s!=  s<  s<=  s>  s>=  text
    <in> A                      text that contains A
    <all-in> A B                text that contains all of these words
    <or> A <or> B               one of these
"""

import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from moorage.scheduler.server_groups import ServerGroupView, group_rejection

PREFIX = "aggregate_instance_extra_specs:"

_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "=": operator.ge, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "s==": operator.eq, "s!=": operator.ne, "s<": operator.lt, "s<=": operator.le, "s>": operator.gt,
    "s>=": operator.ge, "<in>": lambda text, part: part in text,
    "<all-in>": lambda text, parts: all(part in text for part in parts.split()),
}  # fmt: skip


def wanted_metadata(extra_specs: Mapping[str, str]) -> dict[str, str]:
    """{key of the metadata: value or operator and value} of a flavor's extra specs."""
    return {key.removeprefix(PREFIX): value for key, value in extra_specs.items() if key.startswith(PREFIX)}


def missing_metadata(wanted: Mapping[str, str], metadata: Mapping[str, frozenset[str]]) -> str | None:
    """The first key of `wanted` that no value in `metadata` matches, or None."""
    for key, value in wanted.items():
        offered = (one.strip() for text in metadata.get(key, ()) for one in text.split(","))
        if not any(matches(one, value) for one in offered):
            return key
    return None


def matches(offered: str, wanted: str) -> bool:
    """Whether one value of an aggregate satisfies ``wanted``; a text that is no number matches no number."""
    word, _, rest = wanted.strip().partition(" ")
    if word == "<or>":
        return offered in [one.strip() for one in wanted.split("<or>")[1:]]
    if word in _TEXTS:
        return _TEXTS[word](offered, rest.strip())
    if word in _NUMBERS:
        try:
            return _NUMBERS[word](float(offered), float(rest))
        except ValueError:
            return False
    return offered == wanted


@dataclass(frozen=True)
class HostState:
    """A compute host as the compute service knows it."""

    name: str
    root_uuid: str  #: of its provider tree
    zone: str  #: availability zone
    is_up: bool  #: its service reported recently and is not forced down
    is_enabled: bool
    hypervisor_type: str = ""
    architecture: str | None = None  #: of its processors, if the host reports it
    metadata: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: {key: its values in the host's aggregates}
    applies_settings: bool = True  #: its agent and hypervisor know the settings of guests
    is_occupied: bool = False  #: it is a bare-metal node, and a server has it


@dataclass(frozen=True)
class ServerRequirements:
    """The requirements of a server on its host that Placement does not check."""

    server_id: str
    zone: str | None = None
    host: str | None = None
    excluded_hosts: Mapping[str, str] = field(default_factory=dict)  #: {host: reason}
    beside: frozenset[str] | None = None  #: hosts of the servers in the hint ``same_host``; one of them is required
    group: ServerGroupView | None = None
    architecture: str | None = None  #: of the image
    hypervisor_type: str | None = None  #: that the image requires
    functions: frozenset[str] = frozenset()  #: of accelerators, see `weighers.wanted_functions`
    aggregate_metadata: Mapping[str, str] = field(default_factory=dict)  #: see `wanted_metadata`
    guest_settings: tuple[str, ...] = ()  #: names of settings that its host must apply: `spec_rules.guest_settings`
    #: For filters of other packages; Moorage's own use the values derived above.
    project_id: str = ""
    hints: Mapping[str, object] = field(default_factory=dict)
    extra_specs: Mapping[str, str] = field(default_factory=dict)

    @property
    def not_hosts(self) -> Mapping[str, str]:
        """The former name of `excluded_hosts`, for filters of other packages; reading it warns."""
        warnings.warn("ServerRequirements.not_hosts is now excluded_hosts", DeprecationWarning, stacklevel=2)
        return self.excluded_hosts


Filter = Callable[[HostState, ServerRequirements], str | None]

#: Hypervisor type, in small letters, of nodes that carry one server each.
BARE_METAL = "ironic"
#: The reason against a provider tree that is not a host of this compute service.
UNKNOWN_HOST = "no compute service has registered it"


def is_wanted_host(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if requirements.host in (None, host.name) else "another host was requested"


def is_not_ruled_out(host: HostState, requirements: ServerRequirements) -> str | None:
    return requirements.excluded_hosts.get(host.name)


def is_beside_wanted_servers(host: HostState, requirements: ServerRequirements) -> str | None:
    if requirements.beside is None or host.name in requirements.beside:
        return None
    return "none of the servers in the hint same_host is on it"


def in_wanted_zone(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if requirements.zone in (None, host.zone) else f"not in availability zone {requirements.zone}"


def service_is_enabled(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if host.is_enabled else "its compute service is disabled"


def service_is_up(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if host.is_up else "its compute service is down"


def is_unoccupied(host: HostState, requirements: ServerRequirements) -> str | None:
    """Placement would offer such a node if it has resources that the allocation of its server does not contain."""
    return "it is a bare-metal node and has a server" if host.is_occupied else None


def runs_the_image(host: HostState, requirements: ServerRequirements) -> str | None:
    """A host that does not report its architecture or hypervisor accepts any image; the build may then fail."""
    if requirements.architecture and host.architecture and requirements.architecture != host.architecture:
        return f"the image is for {requirements.architecture} processors"
    if (
        requirements.hypervisor_type
        and host.hypervisor_type
        and requirements.hypervisor_type != host.hypervisor_type.lower()
    ):
        return f"the image is for the hypervisor {requirements.hypervisor_type}"
    return None


def applies_guest_settings(host: HostState, requirements: ServerRequirements) -> str | None:
    """An agent of an earlier release, or another hypervisor, would build the guest without them."""
    if requirements.guest_settings and not host.applies_settings:
        return f"it cannot apply {requirements.guest_settings[0]}"
    return None


def is_in_wanted_aggregate(host: HostState, requirements: ServerRequirements) -> str | None:
    if requirements.aggregate_metadata and (key := missing_metadata(requirements.aggregate_metadata, host.metadata)):
        return f"none of its aggregates has the metadata that {PREFIX}{key} demands"
    return None


def keeps_the_group(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if requirements.group is None else group_rejection(requirements.group, host.root_uuid)


#: In the order in which their reasons help a reader most: only the first reason against a host is shown.
FILTERS: tuple[Filter, ...] = (
    is_wanted_host,
    is_not_ruled_out,
    is_beside_wanted_servers,
    in_wanted_zone,
    service_is_enabled,
    service_is_up,
    is_unoccupied,
    runs_the_image,
    applies_guest_settings,
    is_in_wanted_aggregate,
    keeps_the_group,
)


def rejects(
    host: HostState, requirements: ServerRequirements, more: Mapping[str, Filter] = MappingProxyType({})
) -> tuple[str, str] | None:
    """(name, reason) of the first filter that rejects `host`, or None.

    `more`: filters of other packages, which come last.
    """
    for passes in FILTERS:
        if reason := passes(host, requirements):
            return passes.__name__, reason
    for name, passes in more.items():
        if reason := passes(host, requirements):
            return name, reason
    return None
