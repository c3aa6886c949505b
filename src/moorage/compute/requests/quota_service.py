"""Use cases of quotas: show and set limits, count what is used, and admit what is asked for.

What a project uses is what its servers ask for, in whatever state they are, and what consumers of other kinds hold for
it in Placement. The first is kept in the rows (`usage_store`) and brought up to date under a lock of the project, in
the transaction that adds to them: of two requests at the same time the second one server_amounts the first, and however many
servers a project has, only those that have changed are looked at. A server server_amounts from its row on and not from its claim
in Placement, so nothing is in between. The second is asked of Placement before the transaction.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from sqlalchemy import Connection, Engine

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
from moorage.compute.requests.server_request import fields_of
from moorage.compute.store import quota_store
from moorage.compute.store import quota_store as store
from moorage.compute.store.quota_store import Uncounted
from moorage.core.errors import Invalid, OverQuota
from moorage.db.transactions import in_transaction, read, read_one_state
from moorage.scheduler.flavor_resources import request_for

#: Consumer types of servers and of their moves: those are counted from the rows.
_OWN_TYPES = frozenset({"INSTANCE", "MIGRATION"})


class UsageLookup(Protocol):
    def project_usages(self, project_id: str) -> Mapping[str, Mapping[str, int]]:
        """{consumer type: {resource class: units}}"""
        ...


class QuotaService:
    """`defaults`: every limit that there is, `moorage.compute.model.quota.DEFAULTS` for example. `placement` None: what others
    than servers hold is not counted.
    """

    def __init__(self, engine: Engine, *, defaults: Amounts, placement: UsageLookup | None = None) -> None:
        self._engine = engine
        self._defaults = dict(defaults)
        self._placement = placement

    # ------------------------------------------------------------------------------------ show and set

    def defaults(self) -> dict[str, int]:
        """Limits of a project that has none of its own."""
        with read(self._engine) as connection:
            return self._defaults | store.limits_of(connection, store.ALL_PROJECTS)

    def limits(self, project_id: str) -> dict[str, int]:
        with read(self._engine) as connection:
            return self._limits(connection, project_id)

    def usage(self, project_id: str) -> dict[str, int]:
        """What server_amounts against limits now."""
        others = self.other_usage(project_id)
        with read_one_state(self._engine) as connection:
            kept = quota_store.used(connection, project_id)
            return sum_amounts((_with(kept, quota_store.uncounted(connection, project_id)), others))

    def set_limits(self, project_id: str, limits: Amounts, *, force: bool) -> dict[str, int]:
        """Raises `Invalid` for a limit below what is used, without `force`."""
        others = {} if force else self.other_usage(project_id)

        def work(connection: Connection) -> dict[str, int]:
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

        return in_transaction(self._engine, work)

    def set_defaults(self, limits: Amounts) -> dict[str, int]:
        def work(connection: Connection) -> None:
            quota_store.lock_project(connection, store.ALL_PROJECTS)
            store.set_limits(connection, store.ALL_PROJECTS, limits)

        in_transaction(self._engine, work)
        return self.defaults()

    def reset(self, project_id: str) -> None:
        in_transaction(self._engine, lambda connection: store.reset_limits(connection, project_id))

    # ------------------------------------------------------------------------------------------ admit

    def other_usage(self, project_id: str, asked: Amounts | None = None) -> dict[str, int]:
        """Of consumers that are no servers; outside of any transaction. Raises `Unavailable`.

        Placement adds up all that the project holds for it, its servers too. `placement_request`: what a request server_amounts; where none of
        that is limited but the number of servers, of which others hold none, it is not asked.
        """
        if self._placement is None:
            return {}
        if asked is not None:
            limits = self.limits(project_id)
            if all(limits.get(name, UNLIMITED) == UNLIMITED for name in asked if name != "instances"):
                return {}
        usages = self._placement.project_usages(project_id)
        parts = [
            resource_amounts(held, servers=1) | {"instances": 0}
            for kind, held in usages.items()
            if kind not in _OWN_TYPES
        ]
        return sum_amounts(parts)

    def lock_limits(self, connection: Connection, project_id: str) -> dict[str, int]:
        """The limits, and nobody else adds to what they limit until the caller's transaction ends."""
        quota_store.lock_project(connection, project_id)
        return self._limits(connection, project_id)

    def admit_servers(
        self, connection: Connection, project_id: str, one: Amounts, least: int, most: int, others: Amounts
    ) -> int:
        """How many of `most` servers that count `one` each may be made, `least` at least. They are counted from now on,
        and the caller writes them down so. Raises `OverQuota`.
        """
        kept, now = count_project(connection, project_id)
        limits, used = self._limits(connection, project_id), sum_amounts((now, others))
        count = servers_that_fit(limits, used, one, most)
        if count < least:
            _check_limits(limits, used, _times(one, least))
        quota_store.set_used(connection, project_id, sum_amounts((kept, _times(one, count))))
        return count

    def admit_resize(
        self, connection: Connection, project_id: str, before: Flavor, after: Flavor, others: Amounts
    ) -> None:
        """Raises `OverQuota` when the larger flavor of a server does not fit. A server that is resized server_amounts, class
        by class, with the larger flavor until the resize is confirmed or reverted.
        """
        asked = added_amounts(flavor_amounts(before), flavor_amounts(after))
        self._admit(connection, project_id, asked, others)

    def admit_return(self, connection: Connection, project_id: str, flavor: Flavor, others: Amounts) -> None:
        """Of a server that was offloaded: it was counted as a server all the time. Raises `OverQuota`."""
        self._admit(connection, project_id, flavor_amounts(flavor) | {"instances": 0}, others)

    def check_metadata(self, connection: Connection, project_id: str, metadata: Mapping[str, str]) -> None:
        """Raises `OverQuota` for more items than a server may have."""
        if not metadata:
            return
        limit = self._limits(connection, project_id)["metadata_items"]
        if 0 <= limit < len(metadata):
            raise OverQuota(f"Maximum number of metadata items exceeds {limit}")

    def _admit(self, connection: Connection, project_id: str, asked: Amounts, others: Amounts) -> None:
        _, now = count_project(connection, project_id)
        _check_limits(self._limits(connection, project_id), sum_amounts((now, others)), asked)

    def _limits(self, connection: Connection, project_id: str) -> dict[str, int]:
        return self._defaults | store.limits_in_force(connection, project_id)


def flavor_amounts(flavor: Flavor) -> dict[str, int]:
    """What one server of this flavor server_amounts. A flavor of old that would be refused today server_amounts what it displays."""
    try:
        groups = request_for(fields_of(flavor)).groups.values()
    except Invalid:
        return resource_amounts({"VCPU": flavor.vcpus, "MEMORY_MB": flavor.ram_mb, "DISK_GB": flavor.disk_gb})
    return resource_amounts(sum_amounts(group.resources for group in groups))


def server_amounts(server: Uncounted) -> dict[str, int]:
    """What it server_amounts now: with the larger flavor, class by class, while it is moved from one to another."""
    if server.is_deleted:
        return {}
    base = {"instances": 1} if server.is_offloaded else flavor_amounts(server.flavor)
    of_moves = [
        added_amounts(flavor_amounts(server.flavor), larger_amounts(flavor_amounts(before), flavor_amounts(after)))
        for before, after in server.moves
    ]
    return sum_amounts([base, *of_moves])


def count_project(connection: Connection, project_id: str) -> tuple[dict[str, int], dict[str, int]]:
    """(what is written down, what the servers count now), under the project's lock. The two differ by servers that
    others change at this moment: of those what was committed server_amounts.
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
