"""A real disk that is small enough to fill: a file system in memory, mounted for the test."""

import ctypes
import errno
import os
from pathlib import Path
from typing import IO, Self

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2


class NoMount(Exception):
    """Raised if the file system cannot be mounted: only root may mount, and not on every machine."""


class SmallDisk:
    def __init__(self, place: Path, size_mb: int) -> None:
        self.place = place
        self._size_mb = size_mb
        self._ballast = place / "ballast"

    def __enter__(self) -> Self:
        self.place.mkdir(parents=True, exist_ok=True)
        options = f"size={self._size_mb}m,mode=755".encode()
        if _LIBC.mount(b"moorage-test", os.fsencode(self.place), b"tmpfs", 0, options):
            raise NoMount(os.strerror(ctypes.get_errno()))
        return self

    def __exit__(self, *_error: object) -> None:
        _LIBC.umount2(os.fsencode(self.place), _MNT_DETACH)

    def fill(self) -> None:
        """Fills it to the last byte."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for block in (1 << 20, 4096):
                while _takes(ballast, bytes(block)):
                    pass

    def free_space(self) -> None:
        self._ballast.unlink()


def _takes(file: IO[bytes], block: bytes) -> bool:
    try:
        return file.write(block) == len(block)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return False
        raise
