"""A plane's configuration file and state directory: defaults, creation at the first start, and the lock."""

import dataclasses
import fcntl
import os
import re
import time
from pathlib import Path
from typing import IO

import click

from moorage.config import SIMULATED_PROVIDER_CONFIG, Config, load_config
from moorage.core.errors import StartError
from moorage.default_paths import default_state_directory
from moorage.durable import write_durably

#: Set by `moorage up` for its worker process; also read by the other commands.
CONFIG_VARIABLE = "MOORAGE_CONFIG"

#: How long a start waits for the lock: a plane that was killed holds it until the kernel has ended all its threads.
LOCK_WAIT_S = 1.0

#: Set for the worker process: the configuration file that the user named, for messages.
STARTED_FROM_VARIABLE = "MOORAGE_STARTED_FROM"

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=CONFIG_VARIABLE,
    help="Configuration file. [default: moorage.conf in ~/.local/state/moorage]",
)


def default_config_path() -> Path:
    return default_state_directory() / "moorage.conf"


def open_config(path: Path | None) -> Config:
    """The configuration of an existing plane. While the plane runs, this includes its command-line options."""
    path = path or default_config_path()
    if not path.exists():
        raise StartError(f"{path} does not exist; run `moorage up` to create it, or name another file with --config")
    config = load_config(path)
    running = running_path(config)
    return load_config(running) if is_in_use(config.state) and running.exists() else config


def running_path(config: Config) -> Path:
    """The file with the current options, including those from the command line."""
    return config.state / "running.conf"


def take_state(state: Path) -> IO[str]:
    """Locks the state directory. The lock lasts while this process, or one that it forked, keeps the result open.

    Raises `StartError` if another plane holds it, and goes on to hold it for `LOCK_WAIT_S`.
    """
    _make_directory(state, state)
    try:
        lock = (state / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise _unusable_state(state, error) from error
    deadline = time.monotonic() + LOCK_WAIT_S
    while not _is_locked(lock):
        if time.monotonic() >= deadline:
            lock.seek(0)
            raise StartError(
                f"{state} is in use by another plane, pid {lock.read().strip()}: stop it, or name another "
                "configuration with --config"
            )
        time.sleep(0.02)
    lock.truncate(0)
    print(os.getpid(), file=lock, flush=True)
    return lock


def _unusable_state(state: Path, error: OSError) -> StartError:
    about = "" if error.filename in (None, str(state)) else f"{error.filename}: "
    return StartError(
        f"{state} cannot be the state directory: {about}{error.strerror}; name a directory that this user may write, "
        "as [plane] state_path or with --config"
    )


def _is_locked(lock: IO[str]) -> bool:
    """Takes the lock, if it is free."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_in_use(state: Path) -> bool:
    """Whether a plane on this machine uses the state directory."""
    try:
        with (state / "lock").open(encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise _unusable_state(state, error) from error
    return False


def open_or_make_config(path: Path | None, *, port: int | None, clock: str | None) -> Config:
    """The configuration in `path`, with the given options. The first start writes the file, with these options."""
    path = path or default_config_path()
    if not path.exists():
        _write_first(path, port, clock)
    config = load_config(path)
    if port is not None:
        config = dataclasses.replace(config, server=dataclasses.replace(config.server, port=port))
    if clock is not None:
        config = dataclasses.replace(config, plane=dataclasses.replace(config.plane, clock=clock))
    if config.provider_config == config.state / SIMULATED_PROVIDER_CONFIG:
        _make_directory(config.provider_config, config.state)
    return config


def _make_directory(directory: Path, state: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unusable_state(state, error) from error


def _write_first(path: Path, port: int | None, clock: str | None) -> None:
    _make_directory(path.parent, path.parent)
    lines = ["# Options that differ from the defaults; `moorage config show` explains all of them."]
    if clock is not None:
        lines += ["", "[plane]", f"clock = {clock}"]
    if port is not None:
        lines += ["", "[server]", f"port = {port}"]
    write_durably(path, "".join(f"{line}\n" for line in lines).encode())


_PERIOD = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\Z")


def parse_period(text: str) -> int:
    """Parses a period such as ``1d2h30m5s`` or ``90s`` to seconds. Raises `StartError`."""
    match = _PERIOD.match(text)
    if not text or match is None:
        raise StartError(f"{text!r} is not a period; use a form such as 90s, 45m, 2h or 1d12h")
    days, hours, minutes, secs = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs
