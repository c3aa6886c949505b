"""Invariants of a placement, checked on its tables and on the forest that serves requests.

Each query counts violations; a sound database answers 0 to all.
"""

from collections import defaultdict

from sqlalchemy import text

from bench.fill_ours import patient_engine
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.placement.service.service import PlacementService

_USED = "SELECT provider_id, class_id, SUM(used) AS used FROM allocations GROUP BY provider_id, class_id"
_NOT_EXISTS = "SELECT COUNT(*) FROM {} a WHERE NOT EXISTS (SELECT 1 FROM {} b WHERE {})"

#: {violation: query that counts it}
QUESTIONS = {
    "more used than there is": (
        f"SELECT COUNT(*) FROM inventories i JOIN ({_USED}) u "
        "ON u.provider_id = i.provider_id AND u.class_id = i.class_id "
        "WHERE u.used > (i.total - i.reserved) * i.allocation_ratio"
    ),
    "allocations of what is not offered": _NOT_EXISTS.format(
        "allocations", "inventories", "b.provider_id = a.provider_id AND b.class_id = a.class_id"
    ),
    "allocations of nobody": _NOT_EXISTS.format("allocations", "consumers", "b.id = a.consumer_id"),
    "consumers that hold nothing": _NOT_EXISTS.format("consumers", "allocations", "b.consumer_id = a.id"),
    "amounts that are no amounts": "SELECT COUNT(*) FROM allocations WHERE used < 1",
    "amounts that one consumer may not hold": (
        "SELECT COUNT(*) FROM allocations a JOIN inventories i "
        "ON i.provider_id = a.provider_id AND i.class_id = a.class_id "
        "WHERE a.used < i.min_unit OR a.used > i.max_unit OR MOD(a.used, i.step_size) <> 0"
    ),
    "consumers of the same name": "SELECT COUNT(*) - COUNT(DISTINCT uuid) FROM consumers",
    "providers in another tree than their parent": (
        "SELECT COUNT(*) FROM providers c JOIN providers p ON p.id = c.parent_id WHERE p.root_id <> c.root_id"
    ),
    "roots that are not their own": "SELECT COUNT(*) FROM providers WHERE parent_id IS NULL AND root_id <> id",
    "changes after the last": "SELECT COUNT(*) FROM changes c JOIN change_sequence s ON c.sequence > s.last",
}


def violations(url: str) -> dict[str, int]:
    """{violation: count}, for the tables and a forest built from them; empty if everything holds."""
    with patient_engine(url) as engine, engine.connect() as connection:
        counts = {
            wrong: int(connection.execute(text(_for(engine.dialect.name, question))).scalar_one())
            for wrong, question in QUESTIONS.items()
        }
        used: dict[int, dict[str, int]] = defaultdict(dict)
        rows = connection.execute(
            text(f"SELECT u.provider_id, c.name, u.used FROM ({_USED}) u JOIN resource_classes c ON c.id = u.class_id")
        )
        for provider_id, name, amount in rows:
            used[provider_id][name] = int(amount)
    engine = open_engine(url)
    forest = PlacementService(engine, SystemClock(), RandomIds()).providers.forest()
    engine.dispose()
    differ = sum(
        {name: amount for name, amount in provider.used.items() if amount} != used.get(provider.id, {})
        for provider in forest.all_providers()
    )
    counts["providers whose use in memory is not the sum of their allocations"] = differ
    return {wrong: count for wrong, count in counts.items() if count}


def count(url: str, table: str) -> int:
    with patient_engine(url) as engine, engine.connect() as connection:
        return int(connection.execute(text(f"SELECT COUNT(*) FROM {table}")).scalar_one())


def _for(dialect: str, question: str) -> str:
    return question.replace("MOD(a.used, i.step_size)", "a.used % i.step_size") if dialect == "sqlite" else question
