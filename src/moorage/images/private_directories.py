"""Private directories on disk: accessible to one user only, with locks between threads and processes."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from moorage.core.errors import StartError


def ensure_private_directory(path: Path) -> None:
    """Create the directory with mode 0700 if it is missing. Raises `StartError` if others can read or write it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StartError(f"{path} is not a directory; images need a directory of their own there")
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise StartError(
            f"{path} (mode {stat.S_IMODE(status.st_mode):04o}, uid {status.st_uid}) can be read or written by "
            f"others; make it private: chown {os.geteuid()} {path}; chmod 0700 {path}"
        )


class Stripes:
    """Locks by name, between the threads and the processes that share `directory`.

    Names that begin with the same two characters share a lock, so the number of locks is bounded. A thread may hold
    two locks only if all callers take them in the same order.
    """

    def __init__(self, directory: Path) -> None:
        ensure_private_directory(directory)
        self._directory = directory

    @contextlib.contextmanager
    def hold(self, name: str, *, wait: bool = True) -> Iterator[None]:
        """Raises `BlockingIOError` if `wait` is false and the lock is held elsewhere."""
        if not name[:2].isalnum():
            raise ValueError(f"{name!r} is not a valid lock name")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._directory / name[:2].lower(), flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(lock)


def is_locked(path: Path) -> bool:
    """Whether a lock on the file is held. False if the file does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
