"""Where a plane keeps its state, and the configuration file that its first start writes there."""

import dataclasses
import os
import re
from pathlib import Path

import click

from moorage.config import Config, load, render
from moorage.core.errors import StartError

#: Set for the worker process by `moorage up`; also read by `moorage env` and the others.
CONFIG_VARIABLE = "MOORAGE_CONFIG"

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=CONFIG_VARIABLE,
    help="Configuration file. [default: moorage.conf in ~/.local/state/moorage]",
)


def default_config_path() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "moorage" / "moorage.conf"


def open_config(path: Path | None) -> Config:
    """The configuration of a plane that was started before."""
    path = path or default_config_path()
    if not path.exists():
        raise StartError(f"{path} does not exist; start a plane with `moorage up`, or name its file with --config")
    return load(path)


def open_or_make_config(path: Path | None, *, port: int | None, clock: str | None) -> Config:
    """The configuration in `path`; at the first start that of an all-in-one rehearsal is written there."""
    path = path or default_config_path()
    if not path.exists():
        _write_first(path, port or Config().server.port, clock or Config().plane.clock)
    config = load(path)
    if port is not None:
        config = dataclasses.replace(config, server=dataclasses.replace(config.server, port=port))
    if clock is not None:
        config = dataclasses.replace(config, plane=dataclasses.replace(config.plane, clock=clock))
    return config


def _write_first(path: Path, port: int, clock: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    provider_config = path.parent / "provider_config"
    provider_config.mkdir(exist_ok=True, mode=0o700)
    defaults = Config()
    first = dataclasses.replace(
        defaults,
        plane=dataclasses.replace(defaults.plane, state_path=".", clock=clock, log_file="moorage.log"),
        server=dataclasses.replace(defaults.server, port=port),
        compute=dataclasses.replace(defaults.compute, provider_config_location=str(provider_config)),
    )
    path.write_text(render(first), encoding="utf-8")


_PERIOD = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\Z")


def seconds(text: str) -> int:
    """``1d2h30m5s`` and parts of it as seconds. Raises `StartError` for other text."""
    match = _PERIOD.match(text)
    if not text or match is None:
        raise StartError(f"{text!r} is no period of time; write it like 90s, 45m, 2h or 1d12h")
    days, hours, minutes, secs = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs
