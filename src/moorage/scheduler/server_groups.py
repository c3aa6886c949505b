"""Server groups: which hosts a policy leaves open, and how well one suits it.

    affinity             all members on one host
    anti-affinity        at most `max_server_per_host` members on one host (1 where nothing is said)
    soft-affinity        preferably where most of the others are
    soft-anti-affinity   preferably where fewest of the others are

Two of a group may be placed at the same moment, each without knowing of the other. So the policy is asked twice: when
a host is looked for, and in the transaction that gives the server its host, or a move its destination, under a lock of
the group's row. A member that moves counts for anti-affinity wherever it is, goes to or may come back to; for the
others where it will be.
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
    """A group as one of its members sees it. `members`: {root uuid of a host: how many others are there}."""

    policy: GroupPolicy
    members: Mapping[str, int] = field(default_factory=dict)
    max_server_per_host: int = 1  #: with anti-affinity


def group_rejection(group: ServerGroupView, root_uuid: str) -> str | None:
    """Why the policy closes a host to one more member, or None."""
    here = group.members.get(root_uuid, 0)
    if group.policy is GroupPolicy.AFFINITY and group.members and not here:
        return "its server group has affinity to another host"
    if group.policy is GroupPolicy.ANTI_AFFINITY and here >= group.max_server_per_host:
        allowed = group.max_server_per_host
        return f"its server group allows {allowed} {'server' if allowed == 1 else 'servers'} on a host"
    return None


def affinity_root(group: ServerGroupView) -> str | None:
    """The root of the one host that affinity leaves, if members are anywhere yet."""
    if group.policy is not GroupPolicy.AFFINITY or not group.members:
        return None
    return min(group.members, key=lambda root: (-group.members[root], root))


def group_preference(group: ServerGroupView, root_uuid: str) -> float:
    """A number for the weigher: more is better; 0 everywhere for the policies that are not soft."""
    here = group.members.get(root_uuid, 0)
    if group.policy is GroupPolicy.SOFT_AFFINITY:
        return float(here)
    return float(-here) if group.policy is GroupPolicy.SOFT_ANTI_AFFINITY else 0.0
