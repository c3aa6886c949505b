"""Writes small files as a whole, so that they survive a kill or a power cut.

Not here: files that grow (databases, logs, uploads), and locks between writers, which are the caller's task.
"""

import errno
import os
import zlib
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Replaces the content of `path`, with mode 0600. After a crash the file has either the old content or the new.

    Writes a new file, fsyncs it, renames it and fsyncs the directory: the content is durable when this returns.
    """
    _replace(path, content, is_durable=True)
    sync_directory(path.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Like `write_durably`, but without fsync: the file survives a kill, not necessarily a power cut."""
    _replace(path, content, is_durable=False)


def _replace(path: Path, content: bytes, *, is_durable: bool) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)  # left by a crash, perhaps with another mode
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if is_durable:
            os.fsync(descriptor)
    draft.rename(path)


def sync_directory(path: Path) -> None:
    """Makes renames in this directory durable (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DurableDocument:
    """A small document that is written very often. A write waits for the disk once; `write_durably` waits three times.

    The file has two slots of the same size, which are overwritten in turn, so its metadata does not change. Each slot
    holds a line ``<checksum> <number>``, the document, and spaces. A power cut may leave a half-written slot; its
    checksum is then wrong, and the other slot has the previous document, the last one that was acknowledged.
    """

    #: A slot is created this many times as large as the first document.
    _GROWTH_FACTOR = 4
    _MIN_SLOT_BYTES = 4096

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = -1
        self._size = 0
        #: Bytes of each slot that may be other than spaces.
        self._used = [0, 0]
        self._descriptor: int | None = None

    def read(self) -> bytes | None:
        """The last document written; the whole content of a file in another format; None if there is no file."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        half = len(raw) // 2
        found = max((slot for slot in (_decode_slot(raw[:half]), _decode_slot(raw[half:])) if slot), default=None)
        if found is None:
            return raw
        self._number, content = found
        self._size, self._used = half, [half, half]
        return content

    def write(self, content: bytes) -> None:
        """Durable when this returns."""
        line = f" {self._number + 1:020}\n".encode()
        checked = line + content + b"\n"
        slot = f"{zlib.crc32(checked):08x}".encode() + checked
        if len(slot) > self._size:
            self._create(slot)
        else:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            which = (self._number + 1) % 2
            needed = slot.ljust(self._used[which])
            self._used[which] = len(needed)
            if os.pwrite(self._descriptor, needed, self._size * which) != len(needed):
                raise OSError(errno.EIO, "the file could not be written to its end", str(self._path))
            os.fdatasync(self._descriptor)
            self._used[which] = len(slot)
        self._number += 1

    def _create(self, slot: bytes) -> None:
        self.close()
        size = max(self._MIN_SLOT_BYTES, 1 << (len(slot) * self._GROWTH_FACTOR).bit_length())
        slots = [b"".ljust(size), b"".ljust(size)]
        slots[(self._number + 1) % 2] = slot.ljust(size)
        write_durably(self._path, b"".join(slots))
        self._size, self._used = size, [size, size]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _decode_slot(slot: bytes) -> tuple[int, bytes] | None:
    """(number, document) of a slot whose checksum is right; None otherwise."""
    checked = slot[8:].rstrip(b" ")
    if slot[:8] != f"{zlib.crc32(checked):08x}".encode():
        return None
    line, _, content = checked.partition(b"\n")
    return int(line), content[:-1]
