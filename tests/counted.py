"""Computes the usage of projects directly from all rows of servers and of moves, to compare it with the stored sums."""

from collections import Counter

from sqlalchemy import Engine, select

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model.quota import added_amounts, larger_amounts
from moorage.compute.model.servers import Flavor
from moorage.compute.requests.quota_service import QuotaService, flavor_amounts
from moorage.compute.store.tables import moves, quota_locks, servers
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import InProcessHints


def slowly(engine: Engine) -> dict[str, dict[str, int]]:
    """{project: {limit: units}}, without zeros."""
    used: dict[str, Counter[str]] = {}
    known: dict[str, dict[str, int]] = {}  # most servers have the same flavor

    def counts(text: str, flavor: Flavor) -> dict[str, int]:
        if text not in known:
            known[text] = flavor_amounts(flavor)
        return known[text]

    with engine.connect() as connection:
        open_moves = connection.execute(select(moves).where(moves.c.is_open)).all()
        for row in connection.execute(select(servers).where(servers.c.vm_state != "deleted")).all():
            of_project, flavor = used.setdefault(row.project_id, Counter()), Flavor(**row.flavor)
            is_image = row.vm_state == "shelved_offloaded" and row.task_state is None
            of_project.update({"instances": 1} if is_image else counts(str(row.flavor), flavor))
            for move in open_moves:
                if move.server_id == row.id and move.old_flavor:  # tests of lists write moves without a flavor
                    either = larger_amounts(
                        flavor_amounts(Flavor(**move.old_flavor)), flavor_amounts(Flavor(**move.new_flavor))
                    )
                    of_project.update(added_amounts(flavor_amounts(flavor), either))
    return {project: _some(amounts) for project, amounts in used.items()}


def check(engine: Engine) -> None:
    """Asserts that the stored sums, after the changed servers were counted again, equal the sums over all servers."""
    deps = ComputeDeps(engine, SystemClock(), RandomIds(), InProcessHints(Wakeups()))
    expected, quotas = slowly(engine), QuotaService(deps, ComputeSettings(quotas={}))
    for project in expected:
        assert _some(quotas.usage(project)) == expected[project]
    with engine.connect() as connection:
        kept = {row.project_id: row.used or {} for row in connection.execute(select(quota_locks))}
        parts: dict[str, Counter[str]] = {}
        for row in connection.execute(select(servers.c.project_id, servers.c.counted)):
            parts.setdefault(row.project_id, Counter()).update(row.counted or {})
    for project, amounts in kept.items():
        assert _some(amounts) == _some(parts.get(project, {})), "the sum of what servers say that they count"


def _some(amounts: "dict[str, int] | Counter[str]") -> dict[str, int]:
    return {name: units for name, units in amounts.items() if units}
