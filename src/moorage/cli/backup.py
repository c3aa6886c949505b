"""`moorage backup` and `moorage restore`: databases and state of a plane, while it runs; and back, while it does not."""

import json
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from moorage.cli import backup_files as files
from moorage.cli.output import console, json_option, progress, table
from moorage.cli.state import config_option, is_in_use, open_config
from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.engine import open_engine

MANIFEST = "manifest.json"
_STATE = "state"


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@config_option
@json_option
def backup(directory: Path, config_path: Path | None, *, as_json: bool) -> None:
    """Copy the databases and the state of a plane into DIRECTORY, which must not be there yet. The plane may run.

    Each database is as of one moment, Placement's the last; what happened in between, `moorage audit` finds after a
    restore. PostgreSQL and MariaDB are dumped by their own programs. Secrets are in it: it is made for you alone.
    """
    config = open_config(config_path)
    services = [service for service in files.ORDER if service in config.database_urls()]
    _make(directory)
    manifest: dict[str, Any] = {
        "moorage": version("moorage"),
        "began_at": SystemClock().now().isoformat(timespec="seconds"),
        "databases": {},
    }
    with progress("backing up") as show:
        for service in services:
            path = directory / f"{service}.backup"
            files.dump(config.database_url(service), path, partial(show, service))
            manifest["databases"][service] = _described(config, service, path)
        for inner in files.state_files(config.state):
            files.copy(config.state / inner, directory / _STATE / inner)
        if not config.source.is_relative_to(config.state):
            files.copy(config.source, directory / config.source.name)
    manifest["ended_at"] = SystemClock().now().isoformat(timespec="seconds")
    # The last: a backup without it is none.
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    _say(manifest, as_json=as_json, what=f"All of it is in {directory}.")


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, mode=0o700)
    except FileExistsError as error:
        raise StartError(f"{directory} is there already; name a new directory") from error
    except OSError as error:
        raise StartError(f"{directory} cannot be made: {error.strerror}") from error


def _described(config: Config, service: str, path: Path) -> dict[str, object]:
    engine = open_engine(config.database_url(service))
    try:
        revision = migrations.current(engine, service)
    finally:
        engine.dispose()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": files.digest(path), "revision": revision}


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@config_option
@click.option("--with-host", is_flag=True, help="Put back what belongs to this machine, too: guests, plugged devices.")
@json_option
def restore(directory: Path, config_path: Path | None, *, with_host: bool, as_json: bool) -> None:
    """Put the databases and the state of DIRECTORY in the place of the plane's own. No process of the plane may run.

    The files are checked before anything is touched. Afterwards start the plane, and see what `moorage audit` finds.
    """
    config = open_config(config_path)
    if is_in_use(config.state):
        raise StartError(f"a plane runs with {config.state}; stop it, and every other process on its databases")
    manifest = _read(directory)
    if strange := sorted(set(manifest["databases"]) - set(config.database_urls())):
        raise StartError(
            f"the backup has {', '.join(strange)}, which {config.source} does not run; name another --config"
        )
    with progress("restoring") as show:
        for number, (service, one) in enumerate(manifest["databases"].items()):
            show(service, number, len(manifest["databases"]))
            files.put_back(config.database_url(service), directory / one["file"])
        for inner in files.state_files(directory / _STATE):
            if with_host or inner.parts[0] not in files.HOST:
                files.copy(directory / _STATE / inner, config.state / inner)
    _say(
        manifest, as_json=as_json, what="All of it is back. Start the plane; `moorage audit` says what does not agree."
    )


def _read(directory: Path) -> dict[str, Any]:
    """Raises `StartError` for what is no whole backup."""
    try:
        manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StartError(f"{directory} has no {MANIFEST}: it is no backup, or one that was not finished") from error
    for service, one in manifest["databases"].items():
        path = directory / one["file"]
        if not path.is_file() or files.digest(path) != one["sha256"]:
            raise StartError(f"{path} is not what was backed up of {service}; take another backup")
        if one["revision"] is not None and one["revision"] > migrations.head(service):
            raise StartError(
                f"the backup of {service} is at revision {one['revision']}, this program knows "
                f"{migrations.head(service)}: use the program that made it, moorage {manifest['moorage']}, or a newer one"
            )
    return manifest


def _say(manifest: dict[str, Any], *, as_json: bool, what: str) -> None:
    if as_json:
        click.echo(json.dumps(manifest, indent=2))
        return
    rows = table("database", "schema", "bytes", "sha256", right=("bytes",))
    for service, one in manifest["databases"].items():
        rows.add_row(service, one["revision"] or "-", f"{one['bytes']:,}", f"{one['sha256'][:16]}...")
    console().print(rows)
    console().print(what, soft_wrap=True)
