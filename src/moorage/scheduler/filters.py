"""What Placement cannot know of a host. A filter answers a reason against it, or None.

Reasons name no host: they are counted, and the counts are shown to users. Filters of other packages are found by
`moorage.wiring.scheduler`; docs/guides/adding-a-filter.md tells how to write one.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from moorage.scheduler.hosts import HostState, ServerRequirements
from moorage.scheduler.server_groups import objection

Filter = Callable[[HostState, ServerRequirements], str | None]

#: The reason against a tree of Placement that is no host of this compute service.
UNKNOWN_HOST = "no compute service has registered it"


def is_wanted_host(host: HostState, wanted: ServerRequirements) -> str | None:
    return None if wanted.host in (None, host.name) else "another host was asked for"


def is_not_ruled_out(host: HostState, wanted: ServerRequirements) -> str | None:
    return wanted.not_hosts.get(host.name)


def is_beside_wanted_servers(host: HostState, wanted: ServerRequirements) -> str | None:
    if wanted.beside is None or host.name in wanted.beside:
        return None
    return "none of the servers of same_host is there"


def in_wanted_zone(host: HostState, wanted: ServerRequirements) -> str | None:
    return None if wanted.zone in (None, host.zone) else f"not in availability zone {wanted.zone}"


def service_is_enabled(host: HostState, wanted: ServerRequirements) -> str | None:
    return None if host.is_enabled else "its compute service is disabled"


def service_is_up(host: HostState, wanted: ServerRequirements) -> str | None:
    return None if host.is_up else "its compute service is down"


def runs_the_image(host: HostState, wanted: ServerRequirements) -> str | None:
    """A host that does not say what it is takes any image: its hypervisor will say no if it must."""
    if wanted.architecture and host.architecture and wanted.architecture != host.architecture:
        return f"the image is for {wanted.architecture} processors"
    if wanted.hypervisor_type and host.hypervisor_type and wanted.hypervisor_type != host.hypervisor_type.lower():
        return f"the image is for the hypervisor {wanted.hypervisor_type}"
    return None


def keeps_the_group(host: HostState, wanted: ServerRequirements) -> str | None:
    return None if wanted.group is None else objection(wanted.group, host.root_uuid)


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
    host: HostState, wanted: ServerRequirements, more: Mapping[str, Filter] = MappingProxyType({})
) -> tuple[str, str] | None:
    """The first reason against `host`, and the name of the filter that gives it. `more`: other packages', asked last."""
    for passes in FILTERS:
        if reason := passes(host, wanted):
            return passes.__name__, reason
    for name, passes in more.items():
        if reason := passes(host, wanted):
            return name, reason
    return None
