"""Use cases of server groups: create, find, delete; and how a new server joins one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.servers import Server, ServerGroup
from moorage.compute.requests.quota_service import QuotaService
from moorage.compute.store import group_store as store
from moorage.compute.store import host_store
from moorage.core.caller import Caller
from moorage.core.errors import Forbidden, Invalid, NotFound, OverQuota, Unavailable
from moorage.core.ids import is_uuid
from moorage.db.session import PreparedRead, SingleReads, in_transaction, read
from moorage.scheduler.server_groups import GroupPolicy, group_rejection

#: Maximum number of new placements of a server after `PlacementRejected`; then its job is postponed.
MAX_RECHECKS = 8


class PlacementRejected(Exception):
    """At commit, the group of `server_id` rejects the selected host, the host no longer exists, or it is a bare-metal
    node and another server is on it.
    """

    def __init__(self, server_id: str) -> None:
        super().__init__(server_id)
        self.server_id = server_id


def rechecks_exhausted() -> Unavailable:
    """The error after `MAX_RECHECKS` rejections."""
    return Unavailable(
        "each selected host was rejected at commit, because other members of its server group were placed there "
        "meanwhile or the host was deleted"
    )


@dataclass(frozen=True)
class GroupService:
    deps: ComputeDeps
    quotas: QuotaService

    @cached_property
    def _ids_of(self) -> PreparedRead:
        return SingleReads(self.deps.engine).prepare(store.IDS_OF)

    def create_group(self, caller: Caller, name: str, policy: GroupPolicy, rules: Mapping[str, int]) -> ServerGroup:
        if rules and policy is not GroupPolicy.ANTI_AFFINITY:
            raise Invalid(f"The rule max_server_per_host is for the policy anti-affinity only; this one is {policy}.")
        group = ServerGroup(
            self.deps.ids.uuid(), name, caller.project_id, caller.user_id, policy, dict(rules), self.deps.clock.now()
        )

        def insert_group(connection: Connection) -> None:
            most = self.quotas.lock_limits(connection, caller.project_id)["server_groups"]
            if 0 <= most <= store.count_groups(connection, caller.project_id):
                raise OverQuota("Quota exceeded, too many server groups.")
            store.insert_group(connection, group)

        in_transaction(self.deps.engine, insert_group)
        return group

    def list_groups(self, caller: Caller, *, all_projects: bool) -> list[ServerGroup]:
        with read(self.deps.engine) as connection:
            return store.groups(connection, None if all_projects else caller.project_id)

    def get_group(self, caller: Caller, group_id: str) -> ServerGroup:
        with read(self.deps.engine) as connection:
            return _visible(store.group(connection, group_id) if is_uuid(group_id) else None, caller, group_id)

    def ids_of(self, server_id: str) -> list[str]:
        """Ids of the groups that the server is in (at most one)."""
        return [group_id for (group_id,) in self._ids_of(of_server=server_id)]

    def delete_group(self, caller: Caller, group_id: str) -> None:
        """Its servers stay where they are, without a group."""
        self.get_group(caller, group_id)
        if not in_transaction(self.deps.engine, lambda connection: store.delete_group(connection, group_id)):
            raise _missing(group_id)

    def group_from_hints(
        self, connection: Connection, caller: Caller, hints: Mapping[str, object], flavor_id: str, *, lock: bool = True
    ) -> ServerGroup | None:
        """The group that the hints of a create request name; with `lock`, locked until the transaction ends.

        The group of a reservation belongs to the reservation service; every project that may use the reservation's
        flavor may use it.
        """
        wanted = hints.get("group")
        if wanted is None:
            return None
        if not isinstance(wanted, str) or not is_uuid(wanted):
            raise Invalid("Server group scheduler hint must be a UUID.")
        group = store.group(connection, wanted, lock=lock)
        if group is None:
            raise Invalid(f"Instance group {wanted} could not be found.")
        is_reservations = group.name == f"reservation:{flavor_id}"
        if group.project_id != caller.project_id and not is_reservations and not caller.is_admin:
            raise Forbidden(f"Instance group {wanted} belongs to another project.")
        return group

    def member_limit(self, project_id: str) -> int:
        """Maximum number of members; below 0: no limit."""
        return self.quotas.limits(project_id)["server_group_members"]

    def add_members(self, connection: Connection, group: ServerGroup, server_ids: Sequence[str], most: int) -> None:
        """Adds members; call in the transaction that has locked `group`. `most`: the result of `member_limit` before
        it.
        """
        if 0 <= most < len(group.members) + len(server_ids):
            raise OverQuota("Quota exceeded, too many servers in group")
        for server_id in server_ids:
            store.add_member(connection, group.id, server_id)


def recheck_placement(connection: Connection, places: Sequence[tuple[Server, str]]) -> None:
    """Checks (server, root uuid of its host) pairs in the transaction that writes them. Raises `PlacementRejected`.

    The groups stay locked until the transaction ends: if two members were placed at the same moment, the second one
    sees where the first one went. The hosts are locked too, because the deletion of a host first checks that it has no
    servers. After a rejection the claim is released, and the server is placed again.
    """
    there = host_store.keep_hosts(connection, {root for _, root in places})
    taken: set[str] = set()  # bare-metal nodes
    for server, root in places:
        if root not in there:
            raise PlacementRejected(server.id)
        if (node := there[root]) is not None:
            if node in taken or not host_store.lock_node(connection, node, server.id):
                raise PlacementRejected(server.id)
            taken.add(node)
        if not server.scheduler_hints.get("group"):
            continue
        group = store.group_view(connection, server.id, lock=True)
        if group is not None and group_rejection(group, root):
            raise PlacementRejected(server.id)


def _visible(group: ServerGroup | None, caller: Caller, group_id: str) -> ServerGroup:
    if group is None or not caller.may_see(group.project_id):
        raise _missing(group_id)
    return group


def _missing(group_id: str) -> NotFound:
    return NotFound(f"Instance group {group_id} could not be found.")
