"""`moorage db`: the databases of a plane, upgraded while its processes run."""

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
from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.db.migrations import SchemaState
from moorage.db.upgrades import Phase, UpgradeStep, plan_upgrade, run_upgrade

#: What is done without being named: nobody has to stop for it.
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
    help="Only this: expand, migrate, or contract. Repeatable. Without it, expand and migrate.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    type=click.Choice(migrations.features()),
    help="Only its database. Repeatable.",
)
@click.option("--plan", "is_plan", is_flag=True, help="Only show what there is to do.")
@json_option
def upgrade(
    config_path: Path | None, phases: tuple[str, ...], services: tuple[str, ...], *, is_plan: bool, as_json: bool
) -> None:
    """Bring the databases to the schema of this program, while processes of before go on.

    expand adds what is new; migrate brings rows that older programs wrote to today's form, some at a time; contract takes
    away what only older programs need: name it when none of them runs any more, and after a backup.
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
        if migrations.schema_state(engine, service) is SchemaState.NEWER:
            now, newest = migrations.current_revision(engine, service), migrations.head_revision(service)
            raise StartError(
                f"the database of {service} is at revision {now}, this program knows {newest}: use the newer program"
            )
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
        out.print("Nothing is left to do." if is_plan else "Nothing was left to do.")
        return
    rows = table("database", "phase", "step", "what", whole=("step",))
    for step in steps:
        notes = [f"{step.rows:,} rows"] if step.rows else []
        if step.phase is Phase.EXPAND and step.needs_restart:
            notes.append("programs of before must be stopped")
        rows.add_row(step.feature, step.phase, step.name, _with(step.what, notes))
    out.print(rows)
    if is_plan:
        out.print("Nothing was changed. Without --plan, expand and migrate are done; contract is when you name it.")
    else:
        out.print(f"{len(steps)} steps done.")


def _with(what: str, notes: Sequence[str]) -> str:
    return f"{what} ({', '.join(notes)})" if notes else what
