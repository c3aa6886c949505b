"""Replaces the files in the provider configuration directory as one set, so that the agent never reads half of it.

A command that changes several files holds the directory: an exclusive flock, which ends with its process. The lock is
advisory: the agent waits for it only `PATIENCE_S`, because every user who may read the directory can lock it.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from moorage.agent.provider_config.load import MAX_FILE_BYTES, MAX_FILES, is_config_file_name
from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.durable import sync_directory

#: How long the agent waits for a command that changes files, and how often it checks.
PATIENCE_S = 5.0
_LOOK_S = 0.05


@contextlib.contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """Hold the directory to change its files; waits until no other command holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def wait_until_free(directory: Path, clock: Clock) -> None:
    """Before reading: wait until no command holds the directory, `PATIENCE_S` at most."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(int(PATIENCE_S / _LOOK_S)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                clock.sleep(_LOOK_S)
            else:
                return
    finally:
        os.close(descriptor)


def read_contents(directory: Path) -> dict[str, bytes]:
    """{name: content} of the configuration files, to restore them. Raises `StartError`."""
    try:
        names = sorted(path.name for path in directory.iterdir() if is_config_file_name(path.name))[: MAX_FILES + 1]
        found = {}
        for name in names:
            with (directory / name).open("rb") as file:
                found[name] = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return found


def install_files(directory: Path, wanted: Mapping[str, bytes]) -> None:
    """Make `wanted` the only configuration files in `directory`. Call it within `hold_directory`.

    Each file is replaced as a whole; new files are written before old ones are removed. Raises `StartError` if the
    directory cannot be written.
    """
    try:
        present = read_contents(directory)
        for name, data in sorted(wanted.items()):
            if present.get(name) != data:
                _replace(directory / name, data)
        for name in sorted(present.keys() - wanted.keys()):
            (directory / name).unlink()
        sync_directory(directory)
    except OSError as error:
        raise StartError(
            f"{error.filename or directory}: cannot be written: {error.strerror}; run this as the owner of the "
            "directory"
        ) from error


@contextlib.contextmanager
def replaced_files(directory: Path, wanted: Mapping[str, bytes]) -> Iterator[None]:
    """Replace the present files by `wanted` and hold the directory; restore the old files if the context raises.

    Raises `StartError` if the directory does not exist, or cannot be read or written.
    """
    if not directory.is_dir():
        raise StartError(f"{directory}: this directory does not exist; create it, writable only for its owner")
    with hold_directory(directory):
        present = read_contents(directory)
        try:
            install_files(directory, wanted)
            yield
        except BaseException:
            install_files(directory, present)
            raise


def _replace(path: Path, data: bytes) -> None:
    """Write a file that all may read and only its owner may write, as the agent requires."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o644)
    draft.rename(path)
