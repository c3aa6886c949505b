"""Where a plane keeps its state, the configuration file that its first start writes there, and who uses it now."""

import dataclasses
import fcntl
import os
import re
from pathlib import Path
from typing import IO

import click

from moorage.config import Config, load, render
from moorage.core.errors import StartError

#: Set for the worker process by `moorage up`; also read by `moorage env` and the others.
CONFIG_VARIABLE = "MOORAGE_CONFIG"

#: For the worker process: the file that people named, for what it tells them.
STARTED_FROM_VARIABLE = "MOORAGE_STARTED_FROM"

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
    """The configuration of a plane that was started before: while it runs, with the options of its command line."""
    path = path or default_config_path()
    if not path.exists():
        raise StartError(f"{path} does not exist; start a plane with `moorage up`, or name its file with --config")
    config = load(path)
    running = running_path(config)
    return load(running) if is_in_use(config.state) and running.exists() else config


def running_path(config: Config) -> Path:
    """The options in force, in a file: what the command line said is in it."""
    return config.state / "running.conf"


def take_state(state: Path) -> IO[str]:
    """The state directory, for the process that holds the answer open and for those that it forks.

    Raises `StartError` where another plane has it.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (state / "lock").open("a+", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        raise StartError(
            f"{state} is in use by another plane, pid {lock.read().strip()}: stop that one, or name another "
            "configuration with --config"
        ) from error
    lock.truncate(0)
    print(os.getpid(), file=lock, flush=True)
    return lock


def is_in_use(state: Path) -> bool:
    """Whether a plane of this machine runs with it."""
    try:
        with (state / "lock").open(encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


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
