"""Server groups: which hosts a policy allows, and which it prefers.

    affinity             all members on one host
    anti-affinity        at most `max_server_per_host` members on one host (default 1)
    soft-affinity        preferably on the host with most members
    soft-anti-affinity   preferably on the host with fewest members

Hosts for two members may be selected at the same time. So the policy is checked twice: when a host is selected, and
under a lock of the group's row in the transaction that assigns a host to a server, or a destination to a move. For
anti-affinity, a moving member counts on its host, on its destination and on each host to which it may return; for the
other policies, it counts on its destination.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class GroupPolicy(StrEnum):
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    SOFT_AFFINITY = "soft-affinity"
    SOFT_ANTI_AFFINITY = "soft-anti-affinity"


@dataclass(frozen=True)
class ServerGroupView:
    """A group as one of its members sees it. `members`: {root uuid of a host: number of other members there}."""

    policy: GroupPolicy
    members: Mapping[str, int] = field(default_factory=dict)
    max_server_per_host: int = 1  #: for anti-affinity


def group_rejection(group: ServerGroupView, root_uuid: str) -> str | None:
    """The reason why the policy forbids one more member on the host, or None."""
    here = group.members.get(root_uuid, 0)
    if group.policy is GroupPolicy.AFFINITY and group.members and not here:
        return "its server group has affinity to another host"
    if group.policy is GroupPolicy.ANTI_AFFINITY and here >= group.max_server_per_host:
        allowed = group.max_server_per_host
        return f"its server group allows {allowed} {'server' if allowed == 1 else 'servers'} on a host"
    return None


def affinity_root(group: ServerGroupView) -> str | None:
    """The root uuid of the one host that affinity allows; None while no other member has a host."""
    if group.policy is not GroupPolicy.AFFINITY or not group.members:
        return None
    return min(group.members, key=lambda root: (-group.members[root], root))


def group_preference(group: ServerGroupView, root_uuid: str) -> float:
    """A number for the weigher: more is better; 0 for hard policies."""
    here = group.members.get(root_uuid, 0)
    if group.policy is GroupPolicy.SOFT_AFFINITY:
        return float(here)
    return float(-here) if group.policy is GroupPolicy.SOFT_ANTI_AFFINITY else 0.0
