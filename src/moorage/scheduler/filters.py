"""What Placement cannot know of a host. A filter answers a reason against it, or None.

Reasons name no host: they are counted, and the counts are shown to users. Filters of other packages are found by
`moorage.wiring.scheduler`; docs/guides/adding-a-filter.md tells how to write one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from moorage.scheduler.server_groups import ServerGroupView, group_rejection


@dataclass(frozen=True)
class HostState:
    """A compute host as compute itself knows it."""

    name: str
    root_uuid: str  #: of its provider tree
    zone: str  #: availability zone
    is_up: bool  #: its service reported lately and nobody forced it down
    is_enabled: bool
    hypervisor_type: str = ""
    architecture: str | None = None  #: of its processors, where it says
    metadata: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: {key: its values in the host's aggregates}


@dataclass(frozen=True)
class ServerRequirements:
    """What is asked of the host itself, beyond what Placement looks at."""

    server_id: str
    zone: str | None = None
    host: str | None = None
    excluded_hosts: Mapping[str, str] = field(default_factory=dict)  #: {host: why not}
    beside: frozenset[str] | None = None  #: hosts of the servers that it is to be with: one of these
    group: ServerGroupView | None = None
    architecture: str | None = None  #: of the image
    hypervisor_type: str | None = None  #: that the image is made for
    functions: frozenset[str] = frozenset()  #: of accelerators, as `weighers.wanted_functions` finds them
    #: For filters of other packages; ours go by what was made of them above.
    project_id: str = ""
    hints: Mapping[str, object] = field(default_factory=dict)
    extra_specs: Mapping[str, str] = field(default_factory=dict)


Filter = Callable[[HostState, ServerRequirements], str | None]

#: The reason against a tree of Placement that is no host of this compute service.
UNKNOWN_HOST = "no compute service has registered it"


def is_wanted_host(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if requirements.host in (None, host.name) else "another host was asked for"


def is_not_ruled_out(host: HostState, requirements: ServerRequirements) -> str | None:
    return requirements.excluded_hosts.get(host.name)


def is_beside_wanted_servers(host: HostState, requirements: ServerRequirements) -> str | None:
    if requirements.beside is None or host.name in requirements.beside:
        return None
    return "none of the servers of same_host is there"


def in_wanted_zone(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if requirements.zone in (None, host.zone) else f"not in availability zone {requirements.zone}"


def service_is_enabled(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if host.is_enabled else "its compute service is disabled"


def service_is_up(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if host.is_up else "its compute service is down"


def runs_the_image(host: HostState, requirements: ServerRequirements) -> str | None:
    """A host that does not say what it is takes any image: its hypervisor will say no if it must."""
    if requirements.architecture and host.architecture and requirements.architecture != host.architecture:
        return f"the image is for {requirements.architecture} processors"
    if (
        requirements.hypervisor_type
        and host.hypervisor_type
        and requirements.hypervisor_type != host.hypervisor_type.lower()
    ):
        return f"the image is for the hypervisor {requirements.hypervisor_type}"
    return None


def keeps_the_group(host: HostState, requirements: ServerRequirements) -> str | None:
    return None if requirements.group is None else group_rejection(requirements.group, host.root_uuid)


#: In the order in which their reasons are most use to a reader.
FILTERS: tuple[Filter, ...] = (
    is_wanted_host,
    is_not_ruled_out,
    is_beside_wanted_servers,
    in_wanted_zone,
    service_is_enabled,
    service_is_up,
    runs_the_image,
    keeps_the_group,
)


def rejects(
    host: HostState, requirements: ServerRequirements, more: Mapping[str, Filter] = MappingProxyType({})
) -> tuple[str, str] | None:
    """The first reason against `host`, and the name of the filter that gives it. `more`: other packages', asked last."""
    for passes in FILTERS:
        if reason := passes(host, requirements):
            return passes.__name__, reason
    for name, passes in more.items():
        if reason := passes(host, requirements):
            return name, reason
    return None
