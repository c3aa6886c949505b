"""Images in a directory: a JSON file and a data file each.

::

    <id>.json           the image, always complete (written to another file, then renamed)
    <id>.data           its data, always complete
    deleted/<id>        an empty file per deleted image; its id is never used again
    <upload id>.part    an upload in progress, locked by its writer; an unlocked file is a dead upload
    locks/              an image is changed only under the lock of its id's stripe

Ids ignore case; on disk they are in lower case. An id is never reused: servers and leases refer to images by id, and
must not get another project's image under an old id. So the ids of deleted images are kept forever.

Several processes may share the directory. Not here: permissions (`service`).
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, NotFound, TooLarge
from moorage.core.ids import Ids
from moorage.durable import sync_directory, write_durably
from moorage.images.base import CHUNK_BYTES, ImageRecord, ProjectView, ServiceView, lists, reads
from moorage.images.document import image_from_stored, stored_document
from moorage.images.model import Image, ImageStatus, abandon_upload, begin_upload, finish_upload
from moorage.images.private_directories import Stripes, ensure_private_directory, is_locked
from moorage.images.quota import ImageQuota

log = logging.getLogger(__name__)

#: Glance's default limit for the size of an image.
MAX_IMAGE_BYTES = 1 << 40

#: Ids become file names, so no other form is accepted.
_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")

#: The lock under which an upload's file is created, so that no process sees the file before it is locked. It shares no
#: stripe with an image, because ids begin with hexadecimal digits.
_UPLOADS_LOCK = "parts"

#: The share of its bytes that an upload of unknown length counts before they arrive, if the limits allow it.
_AHEAD = 1 / 16

#: The lock under which quotas are checked and uploads begin. Its holder may also take the lock of an image.
_QUOTA_LOCK = "room"  # processes of earlier releases lock the same name


class ImageDirectory:
    """An `ImageSource`; its other methods access all images, and `service` checks permissions."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        ids: Ids,
        max_image_bytes: int = MAX_IMAGE_BYTES,
        quota: ImageQuota | None = None,
    ) -> None:
        ensure_private_directory(directory)
        self._directory = directory
        self._clock = clock
        self._ids = ids
        self._max_image_bytes = max_image_bytes
        self._quota = quota or ImageQuota()
        self._stripes = Stripes(directory / "locks")
        self._deleted = directory / "deleted"
        ensure_private_directory(self._deleted)
        #: Cache of parsed files: id -> ((mtime, inode) of the file, image).
        self._read: dict[str, tuple[tuple[int, int], Image]] = {}
        self._clean_up()

    # ------------------------------------------------------------------------------------------ image source

    def find(self, view: ServiceView, properties: Mapping[str, str]) -> list[ImageRecord]:
        found = [image for image in self.images() if image.status == ImageStatus.ACTIVE and not image.hidden]
        records = [image.record() for image in sorted(found, key=lambda image: (image.created_at, image.id))]
        return [record for record in records if lists(view, record) and record.carries(properties)]

    def get(self, view: ServiceView, image_id: str) -> ImageRecord | None:
        image = self.image(image_id)
        if image is None:
            return None
        record = image.record()
        may = reads(view, record)
        if may is None and isinstance(view, ProjectView):
            may = view.project_id in image.members
        return record if may else None

    @contextlib.contextmanager
    def open(self, view: ServiceView, image_id: str) -> Iterator[Iterator[bytes]]:
        if self.get(view, image_id) is None:
            raise _not_found(image_id)
        with self.data(image_id) as file:
            yield iter(lambda: file.read(CHUNK_BYTES), b"")

    # ------------------------------------------------------------------------------------------------ images

    def images(self) -> list[Image]:
        names = {entry.name[:-5].lower() for entry in os.scandir(self._directory) if entry.name.endswith(".json")}
        return [image for name in names if (image := self.image(name)) is not None]

    def image(self, image_id: str) -> Image | None:
        if not _ID.match(image_id):
            return None
        image_id = image_id.lower()
        path = self._json(image_id)
        try:
            status = path.stat()
            mark = (status.st_mtime_ns, status.st_ino)
            known = self._read.get(image_id)
            if known is not None and known[0] == mark:
                return known[1]
            image = self._load(image_id)
        except FileNotFoundError:
            self._read.pop(image_id, None)
            return None
        except (ValueError, KeyError):
            log.exception("image file cannot be read; the image is not listed", extra={"file": str(path)})
            return None
        self._read[image_id] = (mark, image)
        return image

    def create(self, image: Image) -> None:
        """Raises `Conflict` if the id is or was in use, `TooLarge` if the project's quota is exhausted."""
        with self._stripes.hold(_QUOTA_LOCK), self._hold(image.id):
            self._quota.check_count(image.owner, sum(one.owner == image.owner for one in self.images()))
            if self._json(image.id).exists() or self._tombstone(image.id).exists():
                raise Conflict(f"Image ID {image.id} already exists!", code="images.exists")
            self._write(image)

    def change(self, image_id: str, decide: Callable[[Image], Image]) -> Image:
        """Replace the image by the result of `decide`, which gets the current image and may raise. Holds the image's
        lock.
        """
        with self._hold(image_id):
            changed = decide(self._existing(image_id))
            self._write(changed)
        return changed

    def remove(self, image_id: str, check: Callable[[Image], None]) -> None:
        """Delete the image. `check` gets the current image and may raise. Downloads in progress run to their end;
        uploads end without an image.
        """
        with self._hold(image_id):
            check(self._existing(image_id))
            # One atomic rename: the image never disappears before its id is marked as used.
            self._json(image_id).rename(self._tombstone(image_id))
            sync_directory(self._deleted)
            sync_directory(self._directory)
            self._data(image_id).unlink(missing_ok=True)
            os.truncate(self._tombstone(image_id), 0)

    # -------------------------------------------------------------------------------------------------- data

    def data(self, image_id: str) -> BinaryIO:
        """The data, open for reading. Raises `NotFound` if there is none yet."""
        image = self.image(image_id)
        if image is not None and image.status in (ImageStatus.ACTIVE, ImageStatus.DEACTIVATED):
            with contextlib.suppress(FileNotFoundError):
                return self._data(image_id).open("rb")
        raise NotFound(f"No image data found for image {image_id}", code="images.no_data")

    def upload(
        self,
        image_id: str,
        chunks: Iterable[bytes],
        *,
        size_bytes: int | None,
        check: Callable[[Image], None] = lambda image: None,
    ) -> Image:
        """Store the data and return the active image. No data is visible before all of it is on disk.

        `size_bytes`: the announced length, if known; otherwise each chunk counts against the quota before it is
        written. Raises `Invalid` for another length, `Conflict` if there is data already or another upload is in
        progress, `TooLarge` if the quota or the disk does not allow it. After an error, the upload can be repeated.
        """
        bound = self._max_image_bytes if size_bytes is None else size_bytes
        if bound > self._max_image_bytes:
            raise TooLarge(f"the data has {bound} bytes, but an image may have at most {self._max_image_bytes}")
        upload_id = self._ids.uuid()
        part = self._directory / f"{upload_id}.part"
        with self._locked_part(part) as out:
            try:
                with self._stripes.hold(_QUOTA_LOCK):
                    self.change(image_id, lambda image: self._begin(image, upload_id, check, size_bytes or 0))
                    # From now on the announced bytes count against the quota, although no block is written yet.
                    out.truncate(size_bytes or 0)
                if size_bytes is None:
                    chunks = self._counted(image_id, upload_id, chunks, out)
                size, md5, sha512 = self._stream(chunks, out, size_bytes)
                return self._finish(image_id, upload_id, part, size=size, md5=md5, sha512=sha512)
            except BaseException:  # also an interrupted upload must not count against the quota
                part.unlink(missing_ok=True)
                self._abandon(image_id, upload_id)
                raise

    def _locked_part(self, part: Path) -> BinaryIO:
        with self._stripes.hold(_UPLOADS_LOCK):
            out = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
            fcntl.flock(out, fcntl.LOCK_EX)
            return out

    def _begin(self, image: Image, upload_id: str, check: Callable[[Image], None], size_bytes: int) -> Image:
        check(image)
        self._count(image, size_bytes)
        if image.status == ImageStatus.SAVING and not is_locked(self._directory / f"{image.upload_id}.part"):
            image = abandon_upload(image, self._clock.now())
        return begin_upload(image, upload_id, self._clock.now())

    def _count(self, image: Image, total: int, *, counted: int = 0, ahead: int = 0) -> int:
        """The bytes that the image's upload may count: `total` and up to `ahead` more. `counted` are in its part
        already. The caller holds the lock of the quotas. Raises `TooLarge` if `total` exceeds the limits.
        """
        others = [one for one in self.images() if one.owner == image.owner and one.id != image.id]
        present, parts = sum(map(self._bytes_of, others)), list(self._directory.glob("*.part"))
        while True:
            try:
                self._quota.check_size(image.owner, present, total + ahead)
                self._quota.check_disk(self._directory, total + ahead - counted, parts)
            except TooLarge:
                if not ahead:
                    raise
                ahead //= 4
            else:
                return total + ahead

    def _counted(self, image_id: str, upload_id: str, chunks: Iterable[bytes], out: BinaryIO) -> Iterator[bytes]:
        """The chunks of an upload whose length is not known, each after its bytes count against the quota of uploads in
        other threads and processes: the size of the part is what counts.

        A large upload counts up to `_AHEAD` of its bytes ahead, because a project may have thousands of images to add
        up. An upload ends here, too, when its image was deleted: it would otherwise fill the disk for nothing.
        """
        total = counted = 0
        for chunk in chunks:
            total += len(chunk)
            if total > counted:
                with self._stripes.hold(_QUOTA_LOCK):
                    image = self._existing(image_id)
                    _check_upload(image, upload_id)
                    counted = self._count(image, total, counted=counted, ahead=int(total * _AHEAD))
                    out.truncate(counted)
            yield chunk

    def _bytes_of(self, image: Image) -> int:
        """The bytes of the image, or those of an upload in progress: announced, or counted so far."""
        if image.status == ImageStatus.SAVING:
            with contextlib.suppress(FileNotFoundError):
                return (self._directory / f"{image.upload_id}.part").stat().st_size
        return image.size_bytes or 0

    def _stream(self, chunks: Iterable[bytes], out: BinaryIO, size_bytes: int | None) -> tuple[int, str, str]:
        bound = self._max_image_bytes if size_bytes is None else size_bytes
        md5, sha512 = hashlib.md5(usedforsecurity=False), hashlib.sha512()
        written = 0
        for chunk in chunks:
            written += len(chunk)
            if written > bound:
                raise TooLarge(f"the data exceeds the {bound} bytes that were announced or are allowed")
            md5.update(chunk)
            sha512.update(chunk)
            out.write(chunk)
        if size_bytes is not None and written != size_bytes:
            raise Invalid(
                f"received {written} bytes of data instead of {size_bytes}: the upload was interrupted; repeat it",
                code="images.short_upload",
            )
        out.truncate(written)  # it may have counted more
        out.flush()
        os.fsync(out.fileno())
        return written, md5.hexdigest(), sha512.hexdigest()

    def _finish(self, image_id: str, upload_id: str, part: Path, *, size: int, md5: str, sha512: str) -> Image:
        def decide(image: Image) -> Image:
            _check_upload(image, upload_id)
            # Rename the data first: an active image always has its data.
            part.rename(self._data(image_id))
            sync_directory(self._directory)
            return finish_upload(image, size_bytes=size, md5=md5, sha512=sha512, now=self._clock.now())

        return self.change(image_id, decide)

    def _abandon(self, image_id: str, upload_id: str) -> None:
        """Return the image to queued, if it still waits for this upload."""
        with contextlib.suppress(NotFound), self._hold(image_id):
            image = self._existing(image_id)
            if image.upload_id == upload_id:
                self._write(abandon_upload(image, self._clock.now()))

    # ------------------------------------------------------------------------------------------------- files

    def _clean_up(self) -> None:
        """Clean up after killed processes (dead uploads, images waiting for them, data without an image) and after
        earlier releases (ids in upper case).
        """
        for path in self._directory.glob("*.json"):
            if _ID.match(path.stem) and path.stem != path.stem.lower():
                with self._hold(path.stem):
                    self._rename_to_lower_case(path.stem)
        with self._stripes.hold(_UPLOADS_LOCK):
            for part in self._directory.glob("*.part"):
                if not is_locked(part):
                    part.unlink(missing_ok=True)
        for image in self.images():
            if image.status == ImageStatus.SAVING and not is_locked(self._directory / f"{image.upload_id}.part"):
                self._abandon(image.id, image.upload_id or "")
        for data in self._directory.glob("*.data"):
            if not _ID.match(data.stem):
                continue
            with self._hold(data.stem):
                if not self._json(data.stem).exists():
                    data.unlink(missing_ok=True)

    def _rename_to_lower_case(self, old_id: str) -> None:
        """Rename the image's files to its id in lower case, under its lock. If another image has that id, the older
        one keeps it.
        """
        new_id = old_id.lower()
        if self._tombstone(new_id).exists() or self._is_older(new_id, than=old_id):
            self._set_aside(old_id, new_id)
        elif self._json(new_id).exists():
            self._set_aside(new_id, new_id)
        # There is nothing to rename if the image was set aside, or another process was faster.
        for suffix in ("data", "json"):  # the image last, so that its data is present before it
            with contextlib.suppress(FileNotFoundError):
                (self._directory / f"{old_id}.{suffix}").rename(self._directory / f"{new_id}.{suffix}")
        sync_directory(self._directory)

    def _is_older(self, one: str, *, than: str) -> bool:
        def created(name: str) -> str:
            try:
                return str(orjson.loads((self._directory / f"{name}.json").read_bytes())["created_at"])
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                return "never"  # sorts after every time

        return created(one) <= created(than) and created(one) != "never"

    def _set_aside(self, name: str, image_id: str) -> None:
        for suffix in ("json", "data"):
            with contextlib.suppress(FileNotFoundError):
                (self._directory / f"{name}.{suffix}").rename(self._directory / f"{name}.{suffix}.aside")
        sync_directory(self._directory)
        log.warning(
            "two images had ids that differ only in case; the later one was set aside: check its .aside files, and "
            "upload the image under another id if it is needed",
            extra={"image": image_id, "file": str(self._directory / f"{name}.json.aside")},
        )

    def _hold(self, image_id: str) -> AbstractContextManager[None]:
        """The lock for changes to the image. Raises `NotFound` for an invalid id, which must not become a file name."""
        if not _ID.match(image_id):
            raise _not_found(image_id)
        return self._stripes.hold(image_id)

    def _existing(self, image_id: str) -> Image:
        """Read the image from disk, not from the cache: decisions under the lock need the current state."""
        try:
            return self._load(image_id)
        except FileNotFoundError:
            raise _not_found(image_id) from None

    def _load(self, image_id: str) -> Image:
        return image_from_stored(orjson.loads(self._json(image_id).read_bytes()))

    def _write(self, image: Image) -> None:
        self._read.pop(image.id.lower(), None)
        write_durably(self._json(image.id), orjson.dumps(stored_document(image), option=orjson.OPT_INDENT_2))

    def _json(self, image_id: str) -> Path:
        return self._directory / f"{image_id.lower()}.json"

    def _data(self, image_id: str) -> Path:
        return self._directory / f"{image_id.lower()}.data"

    def _tombstone(self, image_id: str) -> Path:
        return self._deleted / image_id.lower()


def _check_upload(image: Image, upload_id: str) -> None:
    """Raises `Conflict` unless the image waits for this upload."""
    if image.upload_id != upload_id:
        raise Conflict(f"Image {image.id} was changed by another upload meanwhile", code="images.overtaken")


def _not_found(image_id: str) -> NotFound:
    return NotFound(f"No image found with ID {image_id}", code="images.not_found")
