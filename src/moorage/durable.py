"""Small files that are replaced as a whole, and are still there after a kill or a power cut.

Not here: files that grow (databases, logs, uploads), and who may write when: that is the caller's lock.
"""

import errno
import os
import zlib
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """`path` has its old content or `content`, whatever happens in between; private to this user.

    Written beside, fsync, rename, fsync of the directory: durable when this returns.
    """
    _replace(path, content, is_durable=True)
    sync_directory(path.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """As `write_durably` where a kill is all that is to be survived: a power cut may take it. Waits for no disk."""
    _replace(path, content, is_durable=False)


def _replace(path: Path, content: bytes, *, is_durable: bool) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)  # a crash left it, perhaps with another mode
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if is_durable:
            os.fsync(descriptor)
    draft.rename(path)


def sync_directory(path: Path) -> None:
    """Makes a rename in it last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DurableDocument:
    """A small document that is written very often: durable by one wait for the disk, where `write_durably` needs three.

    The file has two places of the same size, written in turn and where they are: its metadata does not change. Each
    holds a line ``<checksum> <number>``, the document, and spaces. A power cut may leave half of what was being written;
    then its checksum is wrong, and the other place has the document before it, which was the last that counted.
    """

    #: A place has room for so many times what the document needs when the file is made.
    _ROOM = 4
    _LEAST_BYTES = 4096

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = -1
        self._size = 0
        #: Bytes of each place that may be other than spaces.
        self._used = [0, 0]
        self._descriptor: int | None = None

    def read(self) -> bytes | None:
        """The document as it was written last; the whole file where it is another one; None where there is none."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        half = len(raw) // 2
        found = max((place for place in (_decode_slot(raw[:half]), _decode_slot(raw[half:])) if place), default=None)
        if found is None:
            return raw
        self._number, content = found
        self._size, self._used = half, [half, half]
        return content

    def write(self, content: bytes) -> None:
        """Durable when this returns."""
        line = f" {self._number + 1:020}\n".encode()
        checked = line + content + b"\n"
        place = f"{zlib.crc32(checked):08x}".encode() + checked
        if len(place) > self._size:
            self._make(place)
        else:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            which = (self._number + 1) % 2
            needed = place.ljust(self._used[which])
            self._used[which] = len(needed)
            if os.pwrite(self._descriptor, needed, self._size * which) != len(needed):
                raise OSError(errno.EIO, "the file could not be written to its end", str(self._path))
            os.fdatasync(self._descriptor)
            self._used[which] = len(place)
        self._number += 1

    def _make(self, place: bytes) -> None:
        self.close()
        size = max(self._LEAST_BYTES, 1 << (len(place) * self._ROOM).bit_length())
        places = [b"".ljust(size), b"".ljust(size)]
        places[(self._number + 1) % 2] = place.ljust(size)
        write_durably(self._path, b"".join(places))
        self._size, self._used = size, [size, size]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _decode_slot(place: bytes) -> tuple[int, bytes] | None:
    """(number, document) of one that is whole."""
    checked = place[8:].rstrip(b" ")
    if place[:8] != f"{zlib.crc32(checked):08x}".encode():
        return None
    line, _, content = checked.partition(b"\n")
    return int(line), content[:-1]
