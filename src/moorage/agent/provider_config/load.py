"""Reads the directory of provider configuration files; the only part of this package that touches files.

Spec: docs/evidence/specs/provider-config.md, "Loading".
"""

import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from moorage.agent.provider_config.rules.check import check_document, duplicate_faults
from moorage.agent.provider_config.rules.model import ConfigFault, ProviderConfig
from moorage.agent.provider_config.rules.yaml_text import YamlFault, read_yaml
from moorage.core.errors import StartError

log = logging.getLogger(__name__)

#: Of one file. Real ones have some 300 bytes per provider.
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 256
#: Of all files together: read and checked in half a minute.
MAX_TOTAL_BYTES = 8 << 20
#: Faults or fields that one message names.
MAX_SHOWN = 50


@dataclass(frozen=True)
class ProviderFiles:
    """Where the provider configuration files are."""

    directory: Path
    allow_writable_by_others: bool = False


@dataclass(frozen=True)
class LoadReport:
    """All that can be said of a directory. `configs` are in the order of the files, and empty with `faults`."""

    configs: tuple[ProviderConfig, ...]
    faults: tuple[ConfigFault, ...]
    warnings: tuple[str, ...]
    texts: Mapping[str, str] = field(default_factory=dict)  #: {name of a file: what is in it}; empty with `faults`


def load_provider_files(files: ProviderFiles) -> LoadReport:
    """What the files say. Raises `StartError` with every fault; logs what is ignored.

    A directory that does not exist has no files.
    """
    report = check_directory(files)
    for warning in report.warnings:
        log.warning(warning)
    if report.faults:
        raise refusal_error(files.directory, report.faults)
    log.info("provider configuration read", extra={"directory": str(files.directory), "entries": len(report.configs)})
    return report


def refusal_error(directory: Path, faults: Sequence[ConfigFault]) -> StartError:
    lines = "\n".join(f"  {line}" for line in _first_lines(faults))
    return StartError(
        f"the provider configuration in {directory} has {len(faults)} fault(s):\n{lines}",
        code="agent.provider_config",
        faults=tuple(faults),
    )


def check_directory(files: ProviderFiles, *, strict: bool = False) -> LoadReport:
    """Everything that is wrong or ignored in a directory, without raising.

    `strict` makes faults of fields that nobody knows: for whoever writes files, not for the agent, which must read
    what a later minor version brings.
    """
    directory = files.directory
    faults: list[ConfigFault] = []
    try:
        names = sorted(path.name for path in directory.iterdir())
        faults += _permission_faults(directory, directory.stat(), files.allow_writable_by_others)
    except FileNotFoundError:
        return LoadReport((), (), (f"{directory}: there is no such directory, so nothing is added to any provider",))
    except OSError as error:
        return LoadReport((), (_unreadable(directory, error),), ())
    read_names = [name for name in names if is_config_file_name(name)]
    if len(read_names) > MAX_FILES:
        return LoadReport(
            (), (ConfigFault(str(directory), f"has {len(read_names)} files", f"use at most {MAX_FILES}"),), ()
        )
    if (total := sum(_size_bytes(directory / name) for name in read_names)) > MAX_TOTAL_BYTES:
        return LoadReport(
            (), (ConfigFault(str(directory), f"has {total} bytes", f"use at most {MAX_TOTAL_BYTES}"),), ()
        )
    contents: dict[str, bytes] = {}
    for name in read_names:
        try:
            data, wrong = _read_file(directory / name, files.allow_writable_by_others)
        except OSError as error:
            data, wrong = None, [_unreadable(directory / name, error)]
        faults += wrong
        if data is not None:
            contents[name] = data
    judged = check_contents(contents, directory, strict=strict)
    others = tuple(
        f"{directory / name}: is not read; name it *.yaml, or move it away"
        for name in names
        if name.lower().endswith((".yml", ".yaml")) and not is_config_file_name(name) and not name.startswith(".")
    )
    if faults:
        return LoadReport((), (*faults, *judged.faults), (*others, *judged.warnings))
    return replace(judged, warnings=(*others, *judged.warnings))


def check_contents(contents: Mapping[str, bytes], directory: Path, *, strict: bool = False) -> LoadReport:
    """The same of files that need not be there: {name: what would be in it}, as if they were in `directory`."""
    configs: list[ProviderConfig] = []
    faults: list[ConfigFault] = []
    warnings: list[str] = []
    for name, data in sorted(contents.items()):
        path = directory / name
        try:
            checked = check_document(read_yaml(data), str(path), config_schema())
        except YamlFault as fault:
            faults.append(ConfigFault(str(path), fault.problem, fault.remedy, fault.place))
            continue
        configs += checked.configs
        faults += checked.faults
        if checked.unknown and strict:
            faults += [ConfigFault(str(path), f"{unknown} is not known", "remove it") for unknown in checked.unknown]
        elif checked.unknown:
            warnings.append(
                f"{path}: fields that are not known here are ignored: {', '.join(_first_lines(checked.unknown))}"
            )
    faults += duplicate_faults(configs)
    if faults:
        return LoadReport((), tuple(faults), tuple(warnings))
    texts = {name: data.decode("utf-8") for name, data in contents.items()}
    return LoadReport(tuple(configs), (), tuple(warnings), texts)


def sample_file() -> str:
    """A file that explains itself, as shipped."""
    return resources.files("moorage.agent").joinpath("samples/provider_config.yaml").read_text("utf-8")


def is_config_file_name(name: str) -> bool:
    """Whether a file of this name counts."""
    return name.endswith(".yaml") and not name.startswith(".")


#: Of each file that counts and of the directory: whatever is done to one of them changes it.
DirectoryStamp = tuple[tuple[str, int, int, int, int], ...]


def directory_stamp(directory: Path) -> DirectoryStamp:
    """Compared with an earlier one it tells whether anything may have changed; nothing is read for it."""
    try:
        names = sorted(path.name for path in directory.iterdir() if is_config_file_name(path.name))[: MAX_FILES + 1]
    except OSError:
        return ()
    return tuple(_stamp_of(directory / name) for name in (".", *names))


def _stamp_of(path: Path) -> tuple[str, int, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return path.name, 0, 0, 0, 0
    return path.name, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _first_lines(things: Sequence[object]) -> list[str]:
    """As many as a log line can bear."""
    more = [f"and {len(things) - MAX_SHOWN} more"] if len(things) > MAX_SHOWN else []
    return [str(thing) for thing in things[:MAX_SHOWN]] + more


@cache
def config_schema() -> Mapping[str, Any]:
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


def _read_file(path: Path, allow_writable: bool) -> tuple[bytes | None, list[ConfigFault]]:
    """What is in the file, at most `MAX_FILE_BYTES`; permissions are those of the file that was opened.

    O_NONBLOCK: a named pipe must not hold up the start.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None, [ConfigFault(str(path), "is not a file", "move it away")]
        faults = list(_permission_faults(path, status, allow_writable))
        real = path.resolve()
        if real.parent != path.parent.resolve():
            faults += _permission_faults(real.parent, real.parent.stat(), allow_writable)
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        return None, [
            *faults,
            ConfigFault(str(path), f"is larger than {MAX_FILE_BYTES} bytes", "split it into several files"),
        ]
    return data, faults


def _permission_faults(path: Path, status: os.stat_result, allow_writable: bool) -> Iterator[ConfigFault]:
    """Whoever may write here decides what this host offers; that is the agent's own user, or root."""
    if allow_writable:
        return
    relax = "or set provider_config_writable_by_others in [compute]"
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        others = "everybody" if mode & stat.S_IWOTH else "its group"
        yield ConfigFault(
            str(path), f"may be written by {others} (mode {mode:04o})", f"run `chmod go-w {path}`, {relax}"
        )
    if status.st_uid not in (0, os.geteuid()):
        yield ConfigFault(
            str(path),
            f"belongs to user {status.st_uid}, who may write it, and not to the agent's user {os.geteuid()}",
            f"run `chown {os.geteuid()} {path}`, {relax}",
        )


def _unreadable(path: Path, error: OSError) -> ConfigFault:
    return ConfigFault(str(path), f"cannot be read: {error.strerror}", f"let user {os.geteuid()} read it")
