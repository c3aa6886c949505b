"""Replaces all provider configuration files at once, and records the files that are in force.

The agent never reads a part of the new files.

A command that changes files holds an exclusive `flock` on the directory, which the kernel releases when the process
ends. The agent waits for the lock for at most `MAX_WAIT_S`, because every user who may read the directory can lock it.

`CurrentConfigSet` is the host's file with the files in force, unchanged, and the set that was in force before;
`moorage provider-config undo` restores the latter.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from moorage.agent.provider_config.load import MAX_FILE_BYTES, MAX_FILES, is_config_file_name
from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.durable import sync_directory, write_durably

#: Longest time that the agent waits for a command that changes files, and the pause between its attempts.
MAX_WAIT_S = 5.0
_POLL_S = 0.05


@contextlib.contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """Waits until no other command holds the directory, and holds it while the context lasts."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def wait_until_free(directory: Path, clock: Clock) -> None:
    """Waits until no command holds the directory, at most `MAX_WAIT_S`. Call it before reading the files."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(int(MAX_WAIT_S / _POLL_S)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                clock.sleep(_POLL_S)
            else:
                return
    finally:
        os.close(descriptor)


def read_contents(directory: Path) -> dict[str, bytes]:
    """{name: content} of the present configuration files. Raises `StartError` if they cannot be read."""
    try:
        names = sorted(path.name for path in directory.iterdir() if is_config_file_name(path.name))[: MAX_FILES + 1]
        found = {}
        for name in names:
            if not (directory / name).is_file():  # a named pipe would block the command
                raise StartError(f"{directory / name}: is not a file; move it away")
            with (directory / name).open("rb") as file:
                found[name] = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return found


def install_files(directory: Path, wanted: Mapping[str, bytes]) -> None:
    """Makes `wanted` the only configuration files in `directory`. Call it within `hold_directory`.

    Replaces each file atomically, and writes new files before it removes old ones. Raises `StartError` if the
    directory cannot be written.
    """
    try:
        present = read_contents(directory)
        for name, data in sorted(wanted.items()):
            if present.get(name) != data:
                _replace_file(directory / name, data)
        for name in sorted(present.keys() - wanted.keys()):
            (directory / name).unlink()
        sync_directory(directory)
    except OSError as error:
        raise StartError(
            f"{error.filename or directory}: cannot be written: {error.strerror}; run this command as the "
            "owner of the directory"
        ) from error


@contextlib.contextmanager
def replaced_files(directory: Path, wanted: Mapping[str, bytes]) -> Iterator[None]:
    """Replaces the present files by `wanted` and holds the directory; restores the old files if the context raises.

    Raises `StartError` if the directory does not exist, or cannot be read or written.
    """
    if not directory.is_dir():
        raise StartError(f"{directory}: this directory does not exist; create it, writable only for its owner")
    with hold_directory(directory):
        present = read_contents(directory)
        try:
            install_files(directory, wanted)
            yield
        except BaseException:  # also Ctrl-C must leave the files that were there before
            install_files(directory, present)
            raise


def _replace_file(path: Path, data: bytes) -> None:
    """Writes a file that only its owner may write, as the agent requires, and that all users may read."""
    new_file = path.with_name(f".{path.name}.new")
    new_file.unlink(missing_ok=True)
    descriptor = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o644)
    new_file.rename(path)


class ConfigFileSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    taken_at: datetime  #: when it was put in force
    files: dict[str, str]  #: {name: content}


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    in_force: ConfigFileSet
    before: ConfigFileSet | None


_VERSION = 1


class CurrentConfigSet:
    """Reads its file once, and writes it when other files take effect."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        document = self._read()
        #: None: no files were ever in force.
        self.in_force = document.in_force if document else None
        self.before = document.before if document else None

    def put_in_force(self, files: Mapping[str, str], now: datetime) -> bool:
        """Records `files` as the set in force; the record is durable on return. Returns False if they were already."""
        if self.in_force is not None and self.in_force.files == files:
            return False
        in_force, before = ConfigFileSet(now, dict(files)), self.in_force
        document = _Document(_VERSION, in_force, before)
        write_durably(self._path, msgspec.json.format(msgspec.json.encode(document), indent=1))
        self.in_force, self.before = in_force, before
        return True

    def _read(self) -> _Document | None:
        try:
            document = msgspec.json.decode(self._path.read_bytes(), type=_Document)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StartError(
                f"{self._path}: cannot be read: {error}; restore it, or remove it (then the last change of the "
                "provider configuration cannot be undone)"
            ) from error
        if document.version != _VERSION:
            raise StartError(f"{self._path}: has version {document.version}, but this agent writes {_VERSION}")
        return document
