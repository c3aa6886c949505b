"""Files put into the directory of provider configuration, as one set, while nobody reads half of it.

Whoever changes several files holds the directory (an exclusive flock on it, as long as the process has it open);
the agent looks in between. The lock is advice: the agent does not wait long for it, for whoever may look into a
directory can lock it.
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

#: What the agent waits for somebody who changes files, and how often it looks.
PATIENCE_S = 5.0
_LOOK_S = 0.05


@contextlib.contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """For who changes the files; waits for the one before."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def wait_until_free(directory: Path, clock: Clock) -> None:
    """For who reads them: nobody is changing several files now, or has been at it for too long."""
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
    """{name: what is in it} of the files that count, for putting them back. Raises `StartError`."""
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
    """`directory` holds exactly `wanted` of the files that count; to be called in `hold_directory`.

    Each file is replaced as a whole, new ones before old ones go. Raises `StartError` where the directory cannot be
    written.
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
            f"{error.filename or directory}: cannot be written: {error.strerror}; run this as the user whom the "
            "directory belongs to"
        ) from error


@contextlib.contextmanager
def replaced_files(directory: Path, wanted: Mapping[str, bytes]) -> Iterator[None]:
    """`wanted` in the place of the present files, nobody else changing them; as it was where what is done then fails.

    Raises `StartError` where there is no such directory, or it cannot be read or written.
    """
    if not directory.is_dir():
        raise StartError(f"{directory}: there is no such directory; make it, writable for its owner alone")
    with hold_directory(directory):
        present = read_contents(directory)
        try:
            install_files(directory, wanted)
            yield
        except BaseException:
            install_files(directory, present)
            raise


def _replace(path: Path, data: bytes) -> None:
    """Readable by all, writable by its owner: what the agent accepts."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o644)
    draft.rename(path)
