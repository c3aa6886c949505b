"""The interface of images for other packages: a record, and a source that finds, describes and streams images."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from moorage.core.errors import Conflict

if TYPE_CHECKING:
    from moorage.images.views import ServiceView

#: The only trusted digest; Glance's default, and the one that our own service computes.
HASH_ALGO = "sha512"

CHUNK_BYTES = 1 << 20


class DigestMismatch(Conflict):
    """The data does not match the digest or size in the image's record, and must not be used."""

    code = "images.digest_mismatch"


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image as its source describes it.

    `properties` are the additional properties only (``accel:function_id``, ``region_uuid``, ``hw_disk_bus``);
    `size_bytes`, `hash_algo` and `hash_value` are None until the image has data (status ``active``).
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
    disk_format: str = ""  #: ``raw``, ``qcow2``, ``aki`` ...; empty: unknown
    min_disk_gb: int = 0  #: minimum disk of a server of the image
    min_ram_mb: int = 0

    @property
    def is_public(self) -> bool:
        """Whether an operator published it. Community images do not count, because any project can create one."""
        return self.visibility == "public"

    def carries(self, properties: Mapping[str, str]) -> bool:
        """Whether it has all of these additional properties; ``{"tag": "FPGA"}`` matches a tag."""
        return all(
            value in self.tags if name == "tag" else self.properties.get(name) == value
            for name, value in properties.items()
        )


class ImageSource(Protocol):
    """A source of images for background work with a service's credentials. Each call names its view (`views`)."""

    def find(self, view: "ServiceView", properties: Mapping[str, str]) -> list[ImageRecord]:
        """Active images that `view` lists and that have all of `properties`, by creation time. ``{"tag": "FPGA"}``
        matches a tag. Raises `ValueError` for a base attribute among the properties.
        """
        ...

    def get(self, view: "ServiceView", image_id: str) -> ImageRecord | None:
        """None if there is no such image, or `view` may not read it."""
        ...

    def open(self, view: "ServiceView", image_id: str) -> AbstractContextManager[Iterator[bytes]]:
        """The data in chunks, not verified. Raises `NotFound` if `get` would return None, or the image has no data."""
        ...
