"""`moorage db upgrade`: the plan and the three phases, for a feature that exists only in this test.

On SQLite, because `test_migrations` covers the migration runner on each database.
"""

import sys

import pytest
import sqlalchemy as sa

from moorage.core.errors import Unavailable
from moorage.db import migrations, upgrades
from moorage.db.migrations import SchemaState
from moorage.db.upgrades import Backfill, Phase, plan_upgrade, run_upgrade
from tests.store.test_migrations import GATED, SECOND, harbour  # noqa: F401 - pytest uses the fixture `harbour` by its name

LONGER = """
LEFT = [5]
def some(engine):
    done = min(2, LEFT[0])
    LEFT[0] -= done
    return done
from moorage.db.upgrades import Backfill
BACKFILLS = [Backfill("lengths", "Every boat has a length.", lambda engine: LEFT[0], some)]
"""


@pytest.fixture
def newer(engine, harbour):  # noqa: F811 - pytest passes the imported fixture
    """A database at 0001; now there are an additive 0002, a breaking 0003, a backfill and a gated 0099."""
    migrations.upgrade(engine, "harbour")
    (harbour / "0002_length.py").write_text('"""Boats have lengths."""' + SECOND + 'phase = "expand"\n')
    third = SECOND.replace("length_m", "width_m").replace("20", "40")
    (harbour / "0003_width.py").write_text('"""Boats have widths."""' + third)
    (harbour / "0099_gated_no_ropes.py").write_text('"""Ropes are gone."""' + GATED)
    (harbour.parent / "backfills.py").write_text(LONGER)
    yield engine
    sys.modules.pop("moorage.harbour.backfills", None)


def names(steps):
    return [(step.phase.value, step.name, step.is_done, step.rows, step.needs_restart) for step in steps]


def test_the_plan_lists_all_steps_and_which_of_them_need_a_restart(newer):
    assert names(plan_upgrade(newer, "harbour")) == [
        ("expand", "0001", True, 0, False),
        ("expand", "0002", False, 0, False),
        ("expand", "0003", False, 0, True),
        ("migrate", "lengths", False, 0, False),
        ("contract", "0099", False, 0, False),
    ]
    assert [step.what for step in plan_upgrade(newer, "harbour")][1:] == [
        "Boats have lengths.", "Boats have widths.", "Every boat has a length.", "Ropes are gone.",
    ]  # fmt: skip
    assert migrations.current_revision(newer, "harbour") == "0001", "a plan changes nothing"


def test_each_phase_runs_its_own_steps_and_reports_progress(newer):
    told = []
    done = run_upgrade(newer, "harbour", [Phase.MIGRATE, Phase.EXPAND], lambda *row: told.append(row))
    assert [step.name for step in done] == ["0002", "0003", "lengths"], (
        "the phases must run in their own order, not in that of the arguments"
    )
    assert told[-4:] == [("harbour lengths", n, 5) for n in (0, 2, 4, 5)]
    assert migrations.schema_state(newer, "harbour") is SchemaState.CURRENT
    assert names(plan_upgrade(newer, "harbour"))[-2:] == [
        ("migrate", "lengths", True, 0, False), ("contract", "0099", False, 0, False),
    ]  # fmt: skip
    assert "rope" in sa.inspect(newer).get_table_names()
    assert [step.name for step in run_upgrade(newer, "harbour", [Phase.CONTRACT], lambda *_: None)] == ["0099"]
    assert "rope" not in sa.inspect(newer).get_table_names()
    assert run_upgrade(newer, "harbour", list(Phase), lambda *_: None) == []


def test_an_older_program_starts_only_if_the_newer_migrations_are_additive(newer, harbour):  # noqa: F811 - pytest passes the imported fixture
    migrations.upgrade(newer, "harbour", "0002")
    second = harbour / "0002_length.py"
    text = second.read_text()
    for name in ("0002_length.py", "0003_width.py"):
        (harbour / name).unlink()
    assert migrations.schema_state(newer, "harbour") is SchemaState.AHEAD
    migrations.upgrade(newer, "harbour")
    assert migrations.current_revision(newer, "harbour") == "0002"
    second.write_text(text.replace('phase = "expand"', ""))
    migrations.downgrade(newer, "harbour", "0001")
    migrations.upgrade(newer, "harbour")
    second.unlink()
    assert migrations.schema_state(newer, "harbour") is SchemaState.NEWER


def test_a_backfill_whose_rows_are_locked_by_others_ends_with_an_error(newer, monkeypatch):
    held = Backfill("held", "", lambda _: 3, lambda _: 0)
    monkeypatch.setattr(upgrades, "backfills", lambda _: (held,))
    migrations.upgrade(newer, "harbour")
    with pytest.raises(Unavailable, match="harbour held: 3 rows are locked by other transactions"):
        run_upgrade(newer, "harbour", [Phase.MIGRATE], lambda *_: None)
