"""Plans and runs an upgrade of a database while processes use it, in three phases.

* **expand**: ordinary migrations, which each start runs. If they only add, older programs still run on the result; the
  plan names those that do not.
* **migrate**: converts rows that older programs wrote to the present form, in batches, while processes run. The code
  reads both forms, so this may run at any time and may be interrupted. A feature defines its own in
  ``moorage.<feature>.backfills``.
* **contract**: gated migrations, which remove what only older programs need. Run them when those are gone for good.

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
    """A conversion of rows in an older form. Its functions may be called at any time, by several processes."""

    name: str
    what: str
    #: the approximate number of rows left
    count_left: Callable[[Engine], int]
    #: converts some rows in one short transaction; returns their number
    run_batch: Callable[[Engine], int]


@dataclass(frozen=True)
class UpgradeStep:
    """A step of an upgrade.

    `rows`: of a backfill, the rows left. `needs_restart`: older programs do not run after it.
    """

    feature: str
    phase: Phase
    name: str
    what: str
    is_done: bool
    rows: int = 0
    needs_restart: bool = False


#: Called with a step's name, the amount done and the total amount.
StepProgress = Callable[[str, int, int], None]


def plan_upgrade(engine: Engine, feature: str) -> list[UpgradeStep]:
    """All steps of `feature`, done or not, in their order."""
    now, known = migrations.current_revision(engine, feature) or "", migrations.revisions(feature)
    expand = [
        UpgradeStep(
            feature, Phase.EXPAND, revision, _what(feature, revision),
            is_done=revision <= now,
            needs_restart=revision != known[0] and not migrations.is_additive(feature, revision),
        )
        for revision in known
    ]  # fmt: skip
    is_expanded = all(step.is_done for step in expand)
    done = migrations.gated_done(engine, feature)
    contract = [
        UpgradeStep(feature, Phase.CONTRACT, revision, _what(feature, revision), is_done=revision in done)
        for revision in migrations.gated_revisions(feature)
    ]
    return [*expand, *(_backfill(engine, feature, one, is_known=is_expanded) for one in backfills(feature)), *contract]


def _backfill(engine: Engine, feature: str, one: Backfill, *, is_known: bool) -> UpgradeStep:
    """The step of a backfill. Its number of rows is unknown (0) until the schema is expanded."""
    left = one.count_left(engine) if is_known else 0
    return UpgradeStep(feature, Phase.MIGRATE, one.name, one.what, is_done=is_known and not left, rows=left)


def backfills(feature: str) -> Sequence[Backfill]:
    name = f"moorage.{feature}.backfills"
    if importlib.util.find_spec(name) is None:
        return ()
    found: Sequence[Backfill] = importlib.import_module(name).BACKFILLS
    return found


def run_upgrade(engine: Engine, feature: str, phases: Sequence[Phase], tell: StepProgress) -> list[UpgradeStep]:
    """Run the open steps of `phases`, in order; returns them. Completed steps stay done if a later one fails."""
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
            raise Unavailable(f"{label}: {left} rows are locked by other transactions; run it again")
        finished += some
    tell(label, finished, max(total, finished))


def _what(feature: str, revision: str) -> str:
    """The first line of the version file's docstring."""
    text = migrations.version_file(feature, revision).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
