"""Base images of this host: each is fetched once, verified, and shared by all guests whose disks are made from it.

``<directory>/base/<sha512>`` are hard links to files of the image cache: a disk keeps its base image when the cache
removes the file. A base image is removed with the last disk that needs it.

The agent reads images on behalf of the server's project, so it gets no image that this project may not use.
"""

import json
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.virt.driver import VirtError
from moorage.agent.virt.libvirt_calls import run_program
from moorage.images.base import ImageRecord, ImageSource, ProjectView
from moorage.images.cache import DigestCache

#: {disk_format of an image: QEMU's name}. An image in another format must be converted before its upload.
FORMATS = {"raw": "raw", "ami": "raw", "qcow2": "qcow2"}
_DIGEST = re.compile(r"[0-9a-f]{128}\Z")
#: Exit codes of ``qemu-img check``: no fault, only leaked clusters, corruption.
_CLEAN, _LEAKED, _CORRUPT = 0, 3, 2
_BACKING_FILE_KEYS = ("backing-filename", "full-backing-filename")


@dataclass(frozen=True)
class BaseImage:
    digest: str
    path: Path
    format: str  #: ``raw`` or ``qcow2``
    virtual_bytes: int


class BaseImages:
    """Thread-safe. One agent uses `directory`."""

    def __init__(self, directory: Path, cache: DigestCache, source: ImageSource) -> None:
        self._directory = directory / "base"
        self._cache = cache
        self._source = source
        self._lock = threading.Lock()
        #: {digest: number of present `hold_base` contexts}: a new disk's base that no ``guest.json`` names yet.
        self._pinned: Counter[str] = Counter()
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)

    def image_record(self, view: ProjectView, image_id: str) -> ImageRecord:
        """Raises `VirtError` if the image does not exist, or `view` may not read it."""
        record = self._source.get(view, image_id)
        if record is None:
            raise VirtError(
                f"no disk can be made from image {image_id}: the image service does not have it, or not for project "
                f"{view.project_id}"
            )
        return record

    @contextmanager
    def hold_base(self, view: ProjectView, record: ImageRecord) -> Iterator[BaseImage]:
        """Fetches the base image, and keeps it while the context lasts; later it stays while a ``guest.json`` names it.

        Raises `VirtError` for an image that QEMU must not open.
        """
        format_name = FORMATS.get(record.disk_format)
        if format_name is None:
            raise VirtError(
                f"image {record.id} has the disk format {record.disk_format or 'none'!r}; this host takes "
                f"{', '.join(sorted(FORMATS))}: convert it (qemu-img convert) and upload it again"
            )
        digest = (record.hash_value or "").lower()
        with self._pin(digest):
            path = self._directory / digest
            if not (_DIGEST.match(digest) and path.exists()):
                path = self._fetch(view, record, format_name)
            yield BaseImage(digest, path, format_name, _virtual_bytes(record, path, format_name))

    def copy_file(self, view: ProjectView, image_id: str, to: Path) -> None:
        """Copy a kernel or an initial RAM disk to `to`."""
        with self._cache.open(self.image_record(view, image_id), self._source, view) as cached:
            part = to.with_name(f"{to.name}.part")
            with part.open("wb") as out:
                shutil.copyfileobj(cached.file, out)
            part.chmod(0o644)
            part.rename(to)

    def remove_unused(self, used: Callable[[], Iterable[str]]) -> None:
        """Removes the base images that no guest uses. `used` returns the digests that a ``guest.json`` names."""
        with self._lock:
            kept = self._pinned.keys() | set(used())
            for path in self._directory.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    @contextmanager
    def _pin(self, digest: str) -> Iterator[None]:
        with self._lock:
            self._pinned[digest] += 1
        try:
            yield
        finally:
            with self._lock:
                self._pinned[digest] -= 1
                self._pinned += Counter()  # removes digests with count 0

    def _fetch(self, view: ProjectView, record: ImageRecord, format_name: str) -> Path:
        with self._cache.open(record, self._source, view) as cached:
            # Check before linking: everything in base/ is safe to use.
            _virtual_bytes(record, cached.path, format_name)
            _check_undamaged(record, cached.path, format_name)
            path = self._directory / cached.digest
            with self._lock:
                if not path.exists():
                    cached.path.chmod(0o644)
                    os.link(cached.path, path)
            return path


def _virtual_bytes(record: ImageRecord, path: Path, format_name: str) -> int:
    """Virtual size of the disk in the file.

    Raises `VirtError` for a qcow2 file that names other files of this host, because QEMU would show those to the guest.
    """
    found = json.loads(run_program(["qemu-img", "info", "--output=json", "-f", format_name, path], bounded=True))
    data = (found.get("format-specific") or {}).get("data") or {}
    if any(found.get(name) for name in _BACKING_FILE_KEYS) or data.get("data-file"):
        raise VirtError(f"image {record.id} refers to another file; upload it as a single file (qemu-img convert)")
    if found.get("encrypted"):
        raise VirtError(f"image {record.id} is encrypted, and this host has no keys")
    return int(found["virtual-size"])


def _check_undamaged(record: ImageRecord, path: Path, format_name: str) -> None:
    """Raises `VirtError` for a damaged file. The digest does not show that a file was truncated before its upload, and
    the guest would fail later.
    """
    if format_name != "qcow2":
        return
    command: list[str | Path] = ["qemu-img", "check", "--output=json", "-f", format_name, path]
    found = json.loads(run_program(command, bounded=True, ok_codes=(_CLEAN, _LEAKED, _CORRUPT)))
    if damaged := found.get("corruptions", 0):
        raise VirtError(
            f"image {record.id} is damaged: {damaged} of its clusters are missing or used twice (see qemu-img check); "
            "make it again and upload that"
        )
