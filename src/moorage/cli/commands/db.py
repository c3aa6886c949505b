"""`moorage db`: upgrades the databases of a plane while its processes run."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy import Engine

from moorage.cli.output import console, json_option, progress, table
from moorage.cli.state import config_option, open_config
from moorage.config import Config
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.upgrades import Phase, UpgradeStep, plan_upgrade, run_upgrade

#: The default phases, which need no downtime.
ONLINE = (Phase.EXPAND, Phase.MIGRATE)


@click.group()
def db() -> None:
    """The databases of a plane."""


@db.command()
@config_option
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice([phase.value for phase in Phase]),
    help="Only this phase: expand, migrate or contract; may be repeated. [default: expand and migrate]",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    type=click.Choice(migrations.features()),
    help="Only the database of this service; may be repeated.",
)
@click.option("--plan", "is_plan", is_flag=True, help="Only show the steps to do.")
@json_option
def upgrade(
    config_path: Path | None, phases: tuple[str, ...], services: tuple[str, ...], *, is_plan: bool, as_json: bool
) -> None:
    """Upgrade the databases to the schema of this program while older processes keep running.

    expand adds new tables and columns. migrate converts rows written by older programs, in batches. contract removes
    what only older programs need: run it when none of them runs any more, after a backup.
    """
    config = open_config(config_path)
    wanted = [Phase(phase) for phase in phases] or list(ONLINE)
    shown: list[UpgradeStep] = []
    with progress("upgrading") as tell:
        for service, engine in _engines(config, services):
            if is_plan:
                shown += [one for one in plan_upgrade(engine, service) if not one.is_done]
            else:
                shown += run_upgrade(engine, service, wanted, tell)
    if as_json:
        click.echo(json.dumps({"plan": is_plan, "steps": [dataclasses.asdict(one) for one in shown]}, indent=2))
    else:
        _show(shown, is_plan=is_plan)


@contextmanager
def _opened(config: Config, service: str) -> Iterator[Engine]:
    engine = open_engine(config.database_url(service))
    try:
        migrations.check_schema(engine, service)
        yield engine
    finally:
        engine.dispose()


def _engines(config: Config, services: Sequence[str]) -> Iterator[tuple[str, Engine]]:
    for service in config.database_urls():
        if not services or service in services:
            with _opened(config, service) as engine:
                yield service, engine


def _show(steps: Sequence[UpgradeStep], *, is_plan: bool) -> None:
    out = console()
    if not steps:
        out.print("Nothing to do." if is_plan else "Nothing had to be done.")
        return
    rows = table("database", "phase", "step", "what", whole=("step",))
    for step in steps:
        notes = [f"{step.rows:,} rows"] if step.rows else []
        if step.phase is Phase.EXPAND and step.needs_restart:
            notes.append("stop older programs first")
        rows.add_row(step.feature, step.phase, step.name, _with(step.what, notes))
    out.print(rows)
    if is_plan:
        out.print("Nothing was changed. Run without --plan for expand and migrate; contract runs only if you name it.")
    else:
        out.print(f"{len(steps)} {'step' if len(steps) == 1 else 'steps'} done.")


def _with(what: str, notes: Sequence[str]) -> str:
    return f"{what} ({', '.join(notes)})" if notes else what
