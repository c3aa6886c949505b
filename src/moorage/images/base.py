"""What the rest of the house knows of images: a record, and a source that finds, describes and streams them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from moorage.core.errors import Conflict

if TYPE_CHECKING:
    from moorage.images.views import ServiceView

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
    def is_public(self) -> bool:
        """Whether an operator published it. (Anybody can make a community image, so those count as their owner's.)"""
        return self.visibility == "public"

    def carries(self, properties: Mapping[str, str]) -> bool:
        """Whether it has all of these additional properties; ``{"tag": "FPGA"}`` asks for a tag."""
        return all(
            value in self.tags if name == "tag" else self.properties.get(name) == value
            for name, value in properties.items()
        )


class ImageSource(Protocol):
    """Images for work that runs later, with a service's credentials: each call says whose view it has (`views`)."""

    def find(self, view: "ServiceView", properties: Mapping[str, str]) -> list[ImageRecord]:
        """Active images that `view` lists and that carry all of `properties`, by creation. ``{"tag": "FPGA"}`` asks for
        a tag. Raises `ValueError` for a base attribute among the properties.
        """
        ...

    def get(self, view: "ServiceView", image_id: str) -> ImageRecord | None:
        """None where there is no such image, or `view` may not read it."""
        ...

    def open(self, view: "ServiceView", image_id: str) -> AbstractContextManager[Iterator[bytes]]:
        """The data in chunks, not yet verified. Raises `NotFound` where `get` finds nothing, or there is no data."""
        ...
