"""Use cases of quotas: show and set limits, compute usage, and admit requests.

A project uses what its servers request, in any state, plus the allocations of its other consumers in Placement. The
first part is kept in rows (`quota_store`) and updated under a lock of the project, in the transaction that adds to it:
of two concurrent requests, the second one counts the first, and only servers that have changed are read. A server
counts from the creation of its row, not from its claim in Placement, so no gap is possible. The second part is read
from Placement before the transaction.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model.quota import (
    UNLIMITED,
    Amounts,
    added_amounts,
    exceeded_limits,
    larger_amounts,
    quota_message,
    replace_amounts,
    resource_amounts,
    servers_that_fit,
    sum_amounts,
)
from moorage.compute.model.servers import Flavor
from moorage.compute.requests.server_request import flavor_fields
from moorage.compute.store import quota_store
from moorage.compute.store import quota_store as store
from moorage.compute.store.quota_store import Uncounted
from moorage.core.errors import Invalid, OverQuota
from moorage.db.session import PreparedRead, SingleReads, in_transaction, read, read_one_state
from moorage.scheduler.flavor_resources import request_for

#: Consumer types of servers and of their moves, which are counted from the rows.
_OWN_TYPES = frozenset({"INSTANCE", "MIGRATION"})


@dataclass(frozen=True)
class QuotaService:
    deps: ComputeDeps
    settings: ComputeSettings

    @cached_property
    def _in_force(self) -> PreparedRead:
        return SingleReads(self.deps.engine).prepare(store.LIMITS_IN_FORCE)

    # ------------------------------------------------------------------------------------ show and set

    def defaults(self) -> dict[str, int]:
        """Limits of projects without limits of their own."""
        with read(self.deps.engine) as connection:
            return self.settings.quotas | store.limits_of(connection, store.ALL_PROJECTS)

    def limits(self, project_id: str) -> dict[str, int]:
        return self.settings.quotas | store.limits_of_values(self._in_force(of_project=project_id))

    def usage(self, project_id: str) -> dict[str, int]:
        """Current usage, as counted against the limits."""
        others = self.other_usage(project_id)
        with read_one_state(self.deps.engine) as connection:
            kept = quota_store.used(connection, project_id)
            return sum_amounts((_with(kept, quota_store.uncounted(connection, project_id)), others))

    def set_limits(self, project_id: str, limits: Amounts, *, force: bool) -> dict[str, int]:
        """Raises `Invalid` for a limit below the current usage, unless `force`."""
        others = {} if force else self.other_usage(project_id)

        def check_and_set(connection: Connection) -> dict[str, int]:
            _, now = count_project(connection, project_id)
            used = {} if force else sum_amounts((now, others))
            for name, limit in limits.items():
                if UNLIMITED < limit < used.get(name, 0):
                    raise Invalid(
                        f"Quota limit {limit} for {name} must be greater than or equal to already used and reserved "
                        f"{used[name]}."
                    )
            store.set_limits(connection, project_id, limits)
            return self._limits(connection, project_id)

        return in_transaction(self.deps.engine, check_and_set)

    def set_defaults(self, limits: Amounts) -> dict[str, int]:
        def write_defaults(connection: Connection) -> None:
            quota_store.lock_project(connection, store.ALL_PROJECTS)
            store.set_limits(connection, store.ALL_PROJECTS, limits)

        in_transaction(self.deps.engine, write_defaults)
        return self.defaults()

    def reset(self, project_id: str) -> None:
        in_transaction(self.deps.engine, lambda connection: store.reset_limits(connection, project_id))

    # ------------------------------------------------------------------------------------------ admit

    def other_usage(self, project_id: str, asked: Amounts | None = None) -> dict[str, int]:
        """Usage of consumers that are not servers. Call it outside any transaction. Raises `Unavailable`.

        Placement adds up all allocations of the project, including servers. `asked`: the amounts that a request adds;
        if none
        of them is limited except the number of servers, to which others do not add, there is no request to Placement.
        """
        if self.deps.placement is None:
            return {}
        if asked is not None:
            limits = self.limits(project_id)
            if all(limits.get(name, UNLIMITED) == UNLIMITED for name in asked if name != "instances"):
                return {}
        usages = self.deps.placement.project_usages(project_id)
        parts = [
            resource_amounts(held, servers=1) | {"instances": 0}
            for kind, held in usages.items()
            if kind not in _OWN_TYPES
        ]
        return sum_amounts(parts)

    def lock_limits(self, connection: Connection, project_id: str) -> dict[str, int]:
        """Returns the limits.

        Locks the project until the transaction ends, so that no other request adds to its usage.
        """
        quota_store.lock_project(connection, project_id)
        return self._limits(connection, project_id)

    def lock_projects(self, connection: Connection, project_ids: Collection[str]) -> dict[str, "ServerAdmission"]:
        """Locks the projects until the transaction ends, always in the same order, so that no other request adds to
        their usage.
        """
        return {one: self._admission(connection, one) for one in sorted(project_ids)}

    def _admission(self, connection: Connection, project_id: str) -> "ServerAdmission":
        kept, now = count_project(connection, project_id)
        return ServerAdmission(project_id, self._limits(connection, project_id), kept, now)

    def admit_resize(
        self, connection: Connection, project_id: str, before: Flavor, after: Flavor, others: Amounts
    ) -> None:
        """Raises `OverQuota` if the limits do not allow the larger flavor.

        Until the resize is confirmed or reverted, the server counts, class by class, the larger amount of both flavors.
        """
        asked = added_amounts(flavor_amounts(before), flavor_amounts(after))
        self._admit(connection, project_id, asked, others)

    def admit_return(self, connection: Connection, project_id: str, flavor: Flavor, others: Amounts) -> None:
        """Admits an offloaded server, which already counts as a server, to a host again. Raises `OverQuota`."""
        self._admit(connection, project_id, flavor_amounts(flavor) | {"instances": 0}, others)

    def check_metadata(self, connection: Connection, project_id: str, metadata: Mapping[str, str]) -> None:
        """Raises `OverQuota` for more items than a server may have."""
        if metadata:
            check_metadata_limit(self._limits(connection, project_id), metadata)

    def _admit(self, connection: Connection, project_id: str, asked: Amounts, others: Amounts) -> None:
        _, now = count_project(connection, project_id)
        _check_limits(self._limits(connection, project_id), sum_amounts((now, others)), asked)

    def _limits(self, connection: Connection, project_id: str) -> dict[str, int]:
        return self.settings.quotas | store.limits_in_force(connection, project_id)


@dataclass
class ServerAdmission:
    """Limits and usage of a locked project; admits new servers, whose rows the same transaction inserts."""

    project_id: str
    limits: Amounts
    kept: Amounts  #: the recorded usage
    used: Amounts  #: the current usage: see `count_project`

    def servers_that_fit(self, one: Amounts, least: int, most: int, others: Amounts) -> int:
        """How many servers may be created: at most `most`; each counts `one`. Raises `OverQuota` if fewer than `least`
        fit.
        """
        used = sum_amounts((self.used, others))
        count = servers_that_fit(self.limits, used, one, most)
        if count < least:
            _check_limits(self.limits, used, _times(one, least))
        return count

    def add_servers(self, one: Amounts, count: int) -> None:
        """Adds `count` servers to the project's usage."""
        more = _times(one, count)
        self.kept, self.used = sum_amounts((self.kept, more)), sum_amounts((self.used, more))

    def save(self, connection: Connection) -> None:
        quota_store.set_used(connection, self.project_id, self.kept)


def check_metadata_limit(limits: Amounts, metadata: Mapping[str, str]) -> None:
    """Raises `OverQuota` for more items than a server may have."""
    limit = limits["metadata_items"]
    if 0 <= limit < len(metadata):
        raise OverQuota(f"Maximum number of metadata items exceeds {limit}")


def flavor_amounts(flavor: Flavor) -> dict[str, int]:
    """The amounts of one server of this flavor.

    For an old flavor that would be refused today, those of its own fields.
    """
    try:
        groups = request_for(flavor_fields(flavor)).groups.values()
    except Invalid:
        return resource_amounts({"VCPU": flavor.vcpus, "MEMORY_MB": flavor.ram_mb, "DISK_GB": flavor.disk_gb})
    return resource_amounts(sum_amounts(group.resources for group in groups))


def server_amounts(server: Uncounted) -> dict[str, int]:
    """The current amounts of a server; during a resize, for each class the larger amount of both flavors."""
    if server.is_deleted:
        return {}
    base = {"instances": 1} if server.is_offloaded else flavor_amounts(server.flavor)
    of_moves = [
        added_amounts(flavor_amounts(server.flavor), larger_amounts(flavor_amounts(before), flavor_amounts(after)))
        for before, after in server.moves
    ]
    return sum_amounts([base, *of_moves])


def count_project(connection: Connection, project_id: str) -> tuple[dict[str, int], dict[str, int]]:
    """(recorded usage, current usage), under the project's lock.

    They differ by servers that other transactions are changing now; the current usage counts their committed state.
    """
    kept = quota_store.lock_project(connection, project_id)
    changed = quota_store.uncounted(connection, project_id)
    if not changed:
        return kept, kept
    mine = quota_store.lock_uncounted(connection, project_id)
    if mine:
        kept = _with(kept, mine)
        quota_store.set_counted(connection, {one.id: server_amounts(one) for one in mine})
        quota_store.set_used(connection, project_id, kept)
    done = {one.id for one in mine}
    return kept, _with(kept, [one for one in changed if one.id not in done])


def _with(used: Amounts, servers: Iterable[Uncounted]) -> dict[str, int]:
    total = dict(used)
    for server in servers:
        total = replace_amounts(total, server.counted, server_amounts(server))
    return total


def _times(one: Amounts, number: int) -> dict[str, int]:
    return {name: units * number for name, units in one.items()}


def _check_limits(limits: Amounts, used: Amounts, asked: Amounts) -> None:
    if found := exceeded_limits(limits, used, asked):
        quotas = [{"name": one.name, "used": one.used, "asked": one.asked, "limit": one.limit} for one in found]
        raise OverQuota(quota_message(found), quotas=quotas)
