"""Upgrades while processes run: what there is to do in a database, in three phases, and the doing of it.

* **expand**: ordinary migrations. A start does them by itself. Those that only add leave a schema that programs of before
  run on; the others say so in the plan.
* **migrate**: rows that an older program has written are brought to today's form, some at a time, while everybody works.
  The code reads both forms, so this may be done at any time, and left in the middle. A feature names its own in
  ``moorage.<feature>.backfills``.
* **contract**: gated migrations, which take away what only older programs need. Only when those are gone for good.

Not here: how a migration is run (`moorage.db.migrations`).
"""

import ast
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Engine

from moorage.core.errors import Unavailable
from moorage.db import migrations


class Phase(StrEnum):
    EXPAND = "expand"
    MIGRATE = "migrate"
    CONTRACT = "contract"


@dataclass(frozen=True)
class Backfill:
    """Rows in an older form. Both may be called at any time, by several processes."""

    name: str
    what: str
    #: how many rows are left, about
    count_left: Callable[[Engine], int]
    #: bring some to today's form, in one short transaction; how many that were
    run_batch: Callable[[Engine], int]


@dataclass(frozen=True)
class UpgradeStep:
    """`rows`: of a backfill, how many are left. `needs_restart`: programs of before do not run on what it leaves."""

    feature: str
    phase: Phase
    name: str
    what: str
    is_done: bool
    rows: int = 0
    needs_restart: bool = False


#: Told of a step's name, how much of it is done, and of how much.
StepProgress = Callable[[str, int, int], None]


def plan_upgrade(engine: Engine, feature: str) -> list[UpgradeStep]:
    """All steps there are for `feature`, done or not, in the order in which they come."""
    now = migrations.current_revision(engine, feature)
    at_head = migrations.schema_state(engine, feature) not in (
        migrations.SchemaState.EMPTY,
        migrations.SchemaState.BEHIND,
    )
    expand = [
        UpgradeStep(
            feature, Phase.EXPAND, revision, _what(feature, revision),
            is_done=at_head or (now is not None and revision <= now and now in migrations.revisions(feature)),
            needs_restart=not migrations.is_additive(feature, revision),
        )
        for revision in migrations.revisions(feature)
    ]  # fmt: skip
    done = migrations.gated_done(engine, feature)
    contract = [
        UpgradeStep(feature, Phase.CONTRACT, revision, _what(feature, revision), is_done=revision in done)
        for revision in migrations.gated_revisions(feature)
    ]
    return [*expand, *(_backfill(engine, feature, one, is_known=at_head) for one in backfills(feature)), *contract]


def _backfill(engine: Engine, feature: str, one: Backfill, *, is_known: bool) -> UpgradeStep:
    """Before the schema is expanded nobody knows how many rows there are."""
    left = one.count_left(engine) if is_known else 0
    return UpgradeStep(feature, Phase.MIGRATE, one.name, one.what, is_done=is_known and not left, rows=left)


def backfills(feature: str) -> Sequence[Backfill]:
    name = f"moorage.{feature}.backfills"
    if importlib.util.find_spec(name) is None:
        return ()
    found: Sequence[Backfill] = importlib.import_module(name).BACKFILLS
    return found


def run_upgrade(engine: Engine, feature: str, phases: Sequence[Phase], tell: StepProgress) -> list[UpgradeStep]:
    """Do what is left in `phases`, in order; the steps that were done. What is done stays done when a later one fails."""
    done = []
    for phase in (phase for phase in Phase if phase in phases):
        for step in plan_upgrade(engine, feature):
            if step.phase is phase and not step.is_done:
                _run_step(engine, step, tell)
                done.append(step)
    return done


def _run_step(engine: Engine, step: UpgradeStep, tell: StepProgress) -> None:
    label = f"{step.feature} {step.name}"
    if step.phase is not Phase.MIGRATE:
        tell(label, 0, 1)
        migrations.upgrade(engine, step.feature, step.name)
        tell(label, 1, 1)
        return
    (backfill,) = (one for one in backfills(step.feature) if one.name == step.name)
    total, finished = backfill.count_left(engine), 0
    while left := backfill.count_left(engine):
        tell(label, finished, max(total, finished + left))
        some = backfill.run_batch(engine)
        if not some:
            raise Unavailable(f"{label}: {left} rows are held by others; run it again")
        finished += some
    tell(label, finished, max(total, finished))


def _what(feature: str, revision: str) -> str:
    """The first line of the version file's docstring."""
    text = migrations.version_file(feature, revision).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
