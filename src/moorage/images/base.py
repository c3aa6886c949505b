"""What the rest of the house knows of images: a record, and a source that finds, describes and streams them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from moorage.core.errors import Conflict

#: The only digest that is trusted; Glance's default, and what our own service computes.
HASH_ALGO = "sha512"

CHUNK_BYTES = 1 << 20


class DigestMismatch(Conflict):
    """The bytes are not those that the image's record promises. Nothing may be done with them."""

    code = "images.digest_mismatch"


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image as its source describes it.

    `properties` are the additional properties only (``accel:function_id``, ``region_uuid``, ``hw_disk_bus``);
    `size_bytes`, `hash_algo` and `hash_value` are None until the data is there (status ``active``).
    """

    id: str
    name: str
    visibility: str  #: public, community, shared or private
    owner: str  #: a project; empty for an image without one
    status: str  #: queued, saving, active, ...
    size_bytes: int | None
    hash_algo: str | None
    hash_value: str | None
    properties: Mapping[str, str]
    tags: frozenset[str]
    disk_format: str = ""  #: ``raw``, ``qcow2``, ``aki`` ...; empty where the record does not say
    min_disk_gb: int = 0  #: what a server of it must have at least
    min_ram_mb: int = 0

    @property
    def is_for_everybody(self) -> bool:
        """Whether every project may use it, so that its functions may be published as traits."""
        return self.visibility in ("public", "community")


class ImageSource(Protocol):
    def find(self, properties: Mapping[str, str]) -> list[ImageRecord]:
        """Active images that carry all of `properties`, by creation. ``{"tag": "FPGA"}`` asks for a tag."""
        ...

    def get(self, image_id: str) -> ImageRecord | None: ...

    def open(self, image_id: str) -> AbstractContextManager[Iterator[bytes]]:
        """The data in chunks, not yet verified. Raises `NotFound` where there is no such image or no data."""
        ...
