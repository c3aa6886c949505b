"""Reads the directory of provider configuration files; the only part of this package that touches files.

Spec: docs/evidence/specs/provider-config.md, "Loading".
"""

import errno
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path

from moorage.agent.provider_config.rules.check import check_document, duplicate_faults
from moorage.agent.provider_config.rules.model import ConfigFault, ProviderConfig
from moorage.agent.provider_config.rules.yaml_text import YamlFault, read_yaml
from moorage.core.errors import StartError
from moorage.core.json import Json

log = logging.getLogger(__name__)

#: Limit of one file. The entry of a provider takes about 300 bytes.
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 256
#: Limit of all files together; reading and checking this much takes half a minute.
MAX_TOTAL_BYTES = 8 << 20
#: Maximum number of faults or fields that one message lists.
MAX_SHOWN = 50


@dataclass(frozen=True)
class ProviderFiles:
    """The directory of the provider configuration files, and whether users other than the owner may write them."""

    directory: Path
    allow_writable_by_others: bool = False


@dataclass(frozen=True)
class LoadReport:
    """The result of checking a directory. `configs` are in the order of the files; empty if there are `faults`."""

    configs: tuple[ProviderConfig, ...]
    faults: tuple[ConfigFault, ...]
    warnings: tuple[str, ...]
    texts: Mapping[str, str] = field(default_factory=dict)  #: {file name: content}; empty if there are `faults`


def load_provider_files(files: ProviderFiles) -> LoadReport:
    """Reads and checks the files. Raises `StartError` with all faults; logs each warning.

    A directory that does not exist counts as empty.
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
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return StartError(
        f"the provider configuration in {directory} has {count}:\n{lines}",
        code="agent.provider_config",
        faults=tuple(faults),
    )


def check_directory(files: ProviderFiles, *, strict: bool = False) -> LoadReport:
    """Checks the files of a directory; returns their faults, and warnings about ignored files and fields.

    `strict` makes unknown fields faults. It is for commands that check files for their author; the agent must accept
    the fields of later minor versions.
    """
    directory = files.directory
    faults: list[ConfigFault] = []
    try:
        names = sorted(path.name for path in directory.iterdir())
        faults += _permission_faults(directory, directory.stat(), files.allow_writable_by_others)
    except FileNotFoundError:
        return LoadReport((), (), (f"{directory}: this directory does not exist, so nothing is added to any provider",))
    except OSError as error:
        return LoadReport((), (_unreadable_fault(directory, error),), ())
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
            data, file_faults = _read_file(directory / name, files.allow_writable_by_others)
        except OSError as error:
            data, file_faults = None, [_unreadable_fault(directory / name, error)]
        faults += file_faults
        if data is not None:
            contents[name] = data
    checked = check_contents(contents, directory, strict=strict)
    ignored = tuple(
        f"{directory / name}: is not read; name it *.yaml, or move it away"
        for name in names
        if name.lower().endswith((".yml", ".yaml")) and not is_config_file_name(name) and not name.startswith(".")
    )
    if faults:
        return LoadReport((), (*faults, *checked.faults), (*ignored, *checked.warnings))
    return replace(checked, warnings=(*ignored, *checked.warnings))


def check_contents(contents: Mapping[str, bytes], directory: Path, *, strict: bool = False) -> LoadReport:
    """Checks `contents`, {name: content}, as if these files were in `directory`; reads no file."""
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
            warnings.append(f"{path}: unknown fields are ignored: {', '.join(_first_lines(checked.unknown))}")
    faults += duplicate_faults(configs)
    if faults:
        return LoadReport((), tuple(faults), tuple(warnings))
    texts = {name: data.decode("utf-8") for name, data in contents.items()}
    return LoadReport(tuple(configs), (), tuple(warnings), texts)


def sample_file() -> str:
    """The sample file of the package, with comments."""
    return resources.files("moorage.agent").joinpath("samples/provider_config.yaml").read_text("utf-8")


def is_config_file_name(name: str) -> bool:
    """Whether the agent reads a file of this name."""
    return name.endswith(".yaml") and not name.startswith(".")


#: Name, inode, times and size of the directory and of each configuration file.
DirectoryStamp = tuple[tuple[str, int, int, int, int], ...]


def directory_stamp(directory: Path) -> DirectoryStamp:
    """The stamp; it differs from an earlier one if a file may have changed since then. Reads no file."""
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
    """The texts of the first `MAX_SHOWN` things, and a line with the number of the others."""
    more = [f"and {len(things) - MAX_SHOWN} more"] if len(things) > MAX_SHOWN else []
    return [str(thing) for thing in things[:MAX_SHOWN]] + more


@cache
def config_schema() -> Mapping[str, Json]:
    """The JSON schema of major version 1, from the package."""
    text = resources.files("moorage.agent").joinpath("schemas/provider_config_1.json").read_text("utf-8")
    loaded: Mapping[str, Json] = json.loads(text)
    return loaded


def _size_bytes(path: Path) -> int:
    """Size of the file; 0 if it is larger than `MAX_FILE_BYTES`, or its size cannot be read."""
    try:
        size = path.stat().st_size
    except OSError:
        return 0
    return size if size <= MAX_FILE_BYTES else 0


def _read_file(path: Path, allow_writable: bool) -> tuple[bytes | None, list[ConfigFault]]:
    """(content, faults). The content is None for a file larger than `MAX_FILE_BYTES`, or that is not a regular file.

    Checks the permissions of the open file. With O_NONBLOCK, a named pipe cannot block the agent's start.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None, [ConfigFault(str(path), f"is {_kind_of(status.st_mode)}, not a file", "move it away")]
        faults = list(_permission_faults(path, status, allow_writable))
        real = path.resolve()
        if real.parent != path.parent.resolve():
            faults += _permission_faults(real.parent, real.parent.stat(), allow_writable)
        # Not before: `fdopen` refuses the descriptor of a directory, and does not close it.
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        return None, [
            *faults,
            ConfigFault(str(path), f"is larger than {MAX_FILE_BYTES} bytes", "split it into several files"),
        ]
    return data, faults


def _permission_faults(path: Path, status: os.stat_result, allow_writable: bool) -> Iterator[ConfigFault]:
    """A fault if a user other than root and the agent's may write `path`, and so could change this host's
    inventories.
    """
    if allow_writable:
        return
    or_allow = "or set provider_config_writable_by_others in [compute]"
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        others = "everybody" if mode & stat.S_IWOTH else "its group"
        yield ConfigFault(
            str(path), f"may be written by {others} (mode {mode:04o})", f"run `chmod go-w {path}`, {or_allow}"
        )
    if status.st_uid not in (0, os.geteuid()):
        yield ConfigFault(
            str(path),
            f"belongs to user {status.st_uid}, and not to the agent's user {os.geteuid()}",
            f"run `chown {os.geteuid()} {path}`, {or_allow}",
        )


def _kind_of(mode: int) -> str:
    return {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe"}.get(stat.S_IFMT(mode), "a device or a socket")


def _unreadable_fault(path: Path, error: OSError) -> ConfigFault:
    """The fault with the remedy that fits `error`: only EACCES has to do with permissions."""
    if error.errno in (errno.ENOENT, errno.ELOOP) and path.is_symlink():
        return ConfigFault(
            str(path),
            f"is a link to {path.readlink()}, which leads to no file",
            "remove the link, or correct its target",
        )
    remedies = {
        errno.EACCES: f"let user {os.geteuid()} read it, or name another directory in [compute] "
        "provider_config_location",
        errno.ENOENT: "it was just removed: run this again",
        errno.ENOTDIR: "name a directory in provider_config_location of [compute]",
        errno.ENXIO: "move it away",
    }
    remedy = remedies.get(error.errno or 0, "see the kernel's log: the disk or file system may be damaged")
    return ConfigFault(str(path), f"cannot be read: {error.strerror}", remedy)
