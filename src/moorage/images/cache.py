"""A cache of image data on this host, by sha512, with a limit on its size.

Data is fetched once, and verified when it is written and at each use.

On disk: ``<directory>/<sha512>`` complete files, ``<sha512>.part`` being written, ``locks/<first two digits>``. All
of it belongs to one user (0700). Several threads and processes may share a directory: a fetch holds the lock of the
digest's stripe, a reader holds a shared lock on its file, and only unlocked files are evicted.
"""

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from moorage.core.clock import Clock
from moorage.core.errors import Invalid, TooLarge
from moorage.images.base import CHUNK_BYTES, HASH_ALGO, DigestMismatch, ImageRecord, ImageSource, ServiceView
from moorage.images.private_directories import Stripes, ensure_private_directory

_DIGEST = re.compile(r"[0-9a-f]{128}\Z")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class CachedFile:
    """Verified data. `path` is valid inside the context that returned it."""

    path: Path
    file: BinaryIO  #: open for reading, at its start
    size_bytes: int
    digest: str


class DigestCache:
    """`max_bytes`: the limit for all complete files together; the least recently used are evicted first."""

    def __init__(self, directory: Path, *, max_bytes: int, clock: Clock) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._clock = clock
        ensure_private_directory(directory)
        self._stripes = Stripes(directory / "locks")
        self._dir = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._remove_abandoned_parts()

    def close(self) -> None:
        os.close(self._dir)

    @contextlib.contextmanager
    def open(self, image: ImageRecord, source: ImageSource, view: ServiceView) -> Iterator[CachedFile]:
        """The data of `image`; fetched from `source` in `view` if it is not cached. `view` must be the one that read
        the record.

        Raises `Invalid` for an image without a sha512, `TooLarge` for one above the cache's limit, and
        `DigestMismatch` if the source's data does not match the record (nothing is kept then).
        """
        digest = _digest_of(image)
        file = self._verified(digest)
        if file is None:
            with self._stripes.hold(digest):
                file = self._verified(digest) or self._fetch(digest, image, source, view)
        with file:
            size_bytes = os.fstat(file.fileno()).st_size
            yield CachedFile(self._directory / digest, file, size_bytes, digest)

    def size_bytes(self) -> int:
        return sum(size for _, size, _ in self._complete())

    def digests(self) -> list[str]:
        """Digests of the cached files, least recently used first."""
        return [name for _, _, name in self._complete()]

    def _verified(self, digest: str) -> BinaryIO | None:
        """The locked file of `digest`, at its start; None if it is not cached, or was damaged and therefore removed."""
        try:
            file = os.fdopen(os.open(digest, _READ, dir_fd=self._dir), "rb")
        except FileNotFoundError:
            return None
        fcntl.flock(file, fcntl.LOCK_SH)
        if _sha512(file) != digest:
            file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(digest, dir_fd=self._dir)
            return None
        file.seek(0)
        moment = self._clock.now().timestamp()
        os.utime(file.fileno(), (moment, moment))
        # If the file was evicted between open and lock, the descriptor is valid, but the path is gone.
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()
        return None

    def _fetch(self, digest: str, image: ImageRecord, source: ImageSource, view: ServiceView) -> BinaryIO:
        """Stream, verify and rename, under the stripe's lock. Returns the locked file."""
        limit = self._max_bytes if image.size_bytes is None else image.size_bytes
        if limit > self._max_bytes:
            raise TooLarge(
                f"image {image.id} has {limit} bytes, but this host's image cache holds only {self._max_bytes}",
                code="images.cache_too_small",
            )
        self._evict_for(image.size_bytes or 0)
        part = f"{digest}.part"
        try:
            with os.fdopen(os.open(part, _WRITE | os.O_TRUNC, 0o600, dir_fd=self._dir), "wb") as out:
                self._write(out, image, source.open(view, image.id), digest, limit)
                out.flush()
                os.fsync(out.fileno())
            os.rename(part, digest, src_dir_fd=self._dir, dst_dir_fd=self._dir)
            os.fsync(self._dir)
        except BaseException:  # also an interrupted download must not leave a part that takes space
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=self._dir)
            raise
        file = self._verified(digest)
        if file is None:
            raise DigestMismatch(f"the data of image {image.id} changed on this host's disk right after it was fetched")
        self._evict_for(0)
        return file

    def _write(
        self, out: BinaryIO, image: ImageRecord, data: AbstractContextManager[Iterator[bytes]], digest: str, limit: int
    ) -> None:
        found = hashlib.sha512()
        written = 0
        with data as chunks:
            for chunk in chunks:
                written += len(chunk)
                if written > limit:
                    raise DigestMismatch(f"image {image.id} sent more than the allowed {limit} bytes")
                found.update(chunk)
                out.write(chunk)
        if image.size_bytes is not None and written != image.size_bytes:
            raise DigestMismatch(f"image {image.id} sent {written} bytes instead of {image.size_bytes}")
        if found.hexdigest() != digest:
            raise DigestMismatch(
                f"the data of image {image.id} has the {HASH_ALGO} {found.hexdigest()[:16]}..., but its record says "
                f"{digest[:16]}...: it was changed, or damaged in transit"
            )

    def _evict_for(self, needed: int) -> None:
        files = self._complete()
        total = sum(size for _, size, _ in files) + needed
        for _, size, name in files:
            if total <= self._max_bytes:
                return
            if self._evict(name):
                total -= size

    def _evict(self, name: str) -> bool:
        try:
            fd = os.open(name, _READ, dir_fd=self._dir)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=self._dir)
        except BlockingIOError:  # in use by a reader
            return False
        except FileNotFoundError:
            return True
        finally:
            os.close(fd)
        return True

    def _complete(self) -> list[tuple[int, int, str]]:
        """(last use, size, digest) of each complete file, least recently used first."""
        rows = []
        for name in self._names():
            if _DIGEST.match(name):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=self._dir, follow_symlinks=False)
                    rows.append((status.st_mtime_ns, status.st_size, name))
        return sorted(rows)

    def _remove_abandoned_parts(self) -> None:
        for name in self._names():
            if name.endswith(".part"):
                with contextlib.suppress(BlockingIOError, FileNotFoundError), self._stripes.hold(name, wait=False):
                    os.unlink(name, dir_fd=self._dir)

    def _names(self) -> list[str]:
        return os.listdir(self._dir)  # noqa: PTH208 - by descriptor: the path may be replaced


def _digest_of(image: ImageRecord) -> str:
    digest = (image.hash_value or "").lower()
    if image.hash_algo != HASH_ALGO or not _DIGEST.match(digest):
        raise Invalid(
            f"image {image.id} ({image.name}) has no {HASH_ALGO} of its data, so it cannot be verified; "
            f"upload it again to an image service that computes it",
            code="images.no_digest",
        )
    return digest


def _sha512(file: BinaryIO) -> str:
    found = hashlib.sha512()
    while chunk := file.read(CHUNK_BYTES):
        found.update(chunk)
    return found.hexdigest()
