"""Reads the directory of provider configuration files; the only part of this package that touches files.

Spec: docs/specs/provider-config.md, "Loading".
"""

import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from moorage.agent.provider_config.check import check, duplicates
from moorage.agent.provider_config.model import Fault, ProviderConfig
from moorage.agent.provider_config.yaml_text import YamlFault, read
from moorage.core.errors import StartError

log = logging.getLogger(__name__)

#: Of one file. Real ones have some 300 bytes per provider.
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 256
#: Of all files together: read and checked in some ten seconds.
MAX_TOTAL_BYTES = 8 << 20
#: Faults or fields that one message names.
MAX_SHOWN = 50


@dataclass(frozen=True)
class Report:
    """All that can be said of a directory. `configs` are in the order of the files, and empty with `faults`."""

    configs: tuple[ProviderConfig, ...]
    faults: tuple[Fault, ...]
    warnings: tuple[str, ...]


def load(directory: Path, *, allow_writable_by_others: bool = False) -> tuple[ProviderConfig, ...]:
    """The entries of all files. Raises `StartError` with every fault; logs what is ignored.

    Read once, when the agent starts: a changed file counts from the next start on. A directory that does not
    exist has no files.
    """
    report = check_all(directory, allow_writable_by_others=allow_writable_by_others)
    for warning in report.warnings:
        log.warning(warning)
    if report.faults:
        lines = "\n".join(f"  {line}" for line in _first(report.faults))
        raise StartError(
            f"the provider configuration in {directory} has {len(report.faults)} fault(s):\n{lines}",
            code="agent.provider_config",
            faults=report.faults,
        )
    log.info("provider configuration read", extra={"directory": str(directory), "entries": len(report.configs)})
    return report.configs


def check_all(directory: Path, *, allow_writable_by_others: bool = False, strict: bool = False) -> Report:
    """Everything that is wrong or ignored in `directory`, without raising.

    `strict` makes faults of fields that nobody knows: for whoever writes files, not for the agent, which must read
    what a later minor version brings.
    """
    configs: list[ProviderConfig] = []
    faults: list[Fault] = []
    warnings: list[str] = []
    try:
        names = sorted(path.name for path in directory.iterdir())
        faults += _permission_faults(directory, directory.stat(), allow_writable_by_others)
    except FileNotFoundError:
        return Report((), (), (f"{directory}: there is no such directory, so nothing is added to any provider",))
    except OSError as error:
        return Report((), (_unreadable(directory, error),), ())
    files = [name for name in names if name.endswith(".yaml") and not name.startswith(".")]
    warnings += [
        f"{directory / name}: is not read; name it *.yaml, or move it away"
        for name in names
        if name.lower().endswith((".yml", ".yaml")) and name not in files and not name.startswith(".")
    ]
    if len(files) > MAX_FILES:
        return Report((), (Fault(str(directory), f"has {len(files)} files", f"use at most {MAX_FILES}"),), ())
    if (total := sum(_size_bytes(directory / name) for name in files)) > MAX_TOTAL_BYTES:
        return Report((), (Fault(str(directory), f"has {total} bytes", f"use at most {MAX_TOTAL_BYTES}"),), ())
    for name in files:
        found, wrong, unknown = _file(directory / name, allow_writable_by_others)
        configs += found
        faults += wrong
        if unknown and strict:
            faults += [Fault(str(directory / name), f"{path} is not known", "remove it") for path in unknown]
        elif unknown:
            warnings.append(
                f"{directory / name}: fields that are not known here are ignored: {', '.join(_first(unknown))}"
            )
    faults += duplicates(configs)
    return Report(() if faults else tuple(configs), tuple(faults), tuple(warnings))


def _first(things: Sequence[object]) -> list[str]:
    """As many as a log line can bear."""
    more = [f"and {len(things) - MAX_SHOWN} more"] if len(things) > MAX_SHOWN else []
    return [str(thing) for thing in things[:MAX_SHOWN]] + more


@cache
def schema() -> Mapping[str, Any]:
    """The formal schema of major version 1, as shipped."""
    text = resources.files("moorage.agent").joinpath("schemas/provider_config_1.json").read_text("utf-8")
    loaded: Mapping[str, Any] = json.loads(text)
    return loaded


def _size_bytes(path: Path) -> int:
    """What would be read of it: nothing where it is too large by itself, or cannot be looked at."""
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size if size <= MAX_FILE_BYTES else 0


def _file(path: Path, allow_writable: bool) -> tuple[tuple[ProviderConfig, ...], list[Fault], tuple[str, ...]]:
    """(entries, faults, unknown fields)"""
    try:
        data, faults = _bytes(path, allow_writable)
    except OSError as error:
        return (), [_unreadable(path, error)], ()
    if data is None:
        return (), faults, ()
    try:
        document = read(data)
    except YamlFault as fault:
        return (), [*faults, Fault(str(path), fault.problem, fault.remedy, fault.place)], ()
    checked = check(document, str(path), schema())
    return checked.configs, [*faults, *checked.faults], checked.unknown


def _bytes(path: Path, allow_writable: bool) -> tuple[bytes | None, list[Fault]]:
    """What is in the file, at most `MAX_FILE_BYTES`; permissions are those of the file that was opened.

    O_NONBLOCK: a named pipe must not hold up the start.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None, [Fault(str(path), "is not a file", "move it away")]
        faults = list(_permission_faults(path, status, allow_writable))
        real = path.resolve()
        if real.parent != path.parent.resolve():
            faults += _permission_faults(real.parent, real.parent.stat(), allow_writable)
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        return None, [
            *faults,
            Fault(str(path), f"is larger than {MAX_FILE_BYTES} bytes", "split it into several files"),
        ]
    return data, faults


def _permission_faults(path: Path, status: os.stat_result, allow_writable: bool) -> Iterator[Fault]:
    """Whoever may write here decides what this host offers; that is the agent's own user, or root."""
    if allow_writable:
        return
    relax = "or set provider_config_writable_by_others in [compute]"
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        others = "everybody" if mode & stat.S_IWOTH else "its group"
        yield Fault(str(path), f"may be written by {others} (mode {mode:04o})", f"run `chmod go-w {path}`, {relax}")
    if status.st_uid not in (0, os.geteuid()):
        yield Fault(
            str(path),
            f"belongs to user {status.st_uid}, who may write it, and not to the agent's user {os.geteuid()}",
            f"run `chown {os.geteuid()} {path}`, {relax}",
        )


def _unreadable(path: Path, error: OSError) -> Fault:
    return Fault(str(path), f"cannot be read: {error.strerror}", f"let user {os.geteuid()} read it")
