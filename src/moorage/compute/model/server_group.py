"""[pure] A server group, as services and handlers pass it around. What its policy means: `scheduler.server_groups`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from moorage.scheduler.server_groups import GroupPolicy


@dataclass(frozen=True)
class ServerGroup:
    """`policy_rules`: ``{"max_server_per_host": 2}``, with anti-affinity only. `members`: ids of servers that are there."""

    id: str
    name: str
    project_id: str
    user_id: str
    policy: GroupPolicy
    rules: Mapping[str, int]
    created_at: datetime
    members: tuple[str, ...] = ()
