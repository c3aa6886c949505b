"""Images from an image service over the Image API v2: a real Glance, or our own."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote

from moorage.core.errors import NotFound, RemoteError
from moorage.images.base import ImageRecord
from moorage.images.document import BASE
from moorage.wire.client import ServiceClient


class GlanceImages:
    """An `ImageSource`. `http` leads to the endpoint of the catalogue, without ``/v2``."""

    def __init__(self, http: ServiceClient, *, page_size: int = 100) -> None:
        self._http = http
        self._page_size = page_size

    def find(self, properties: Mapping[str, str], *, status: str = "active") -> list[ImageRecord]:
        """`status`: one, or ``in:`` several."""
        asked = [("status", status), ("visibility", "all"), ("sort", "created_at:asc")]
        asked.append(("limit", str(self._page_size)))
        rows = self._http.rows("/v2/images", "images", [*asked, *properties.items()], more="next")
        return [record_of(row) for row in rows]

    def get(self, image_id: str) -> ImageRecord | None:
        try:
            return record_of(self._http.get(_path(image_id)))
        except NotFound:
            return None

    def is_shared_with(self, image_id: str, project_id: str) -> bool:
        """Whether the project is a member of the image, whatever it said to that: by its id it may use it."""
        try:
            rows = self._http.get(f"{_path(image_id)}/members")["members"]
        except (NotFound, RemoteError):
            return False  # private after all, or gone: who asks has no claim to it
        return any(row["member_id"] == project_id for row in rows)

    @contextmanager
    def open(self, image_id: str) -> Iterator[Iterator[bytes]]:
        with ExitStack() as stack:
            try:
                chunks = stack.enter_context(self._http.download(f"{_path(image_id)}/file"))
            except RemoteError as error:
                if error.status == 204:  # Glance's answer before there is data
                    raise NotFound(f"No image data found for image {image_id}", code="images.no_data") from error
                raise
            yield chunks


def record_of(document: Mapping[str, Any]) -> ImageRecord:
    """From the API's document of one image."""
    return ImageRecord(
        id=document["id"],
        name=document.get("name") or "",
        visibility=document["visibility"],
        owner=document.get("owner") or "",
        status=document["status"],
        size_bytes=document.get("size"),
        hash_algo=document.get("os_hash_algo"),
        hash_value=document.get("os_hash_value"),
        properties={name: value for name, value in document.items() if name not in BASE and isinstance(value, str)},
        tags=frozenset(document.get("tags", ())),
        disk_format=document.get("disk_format") or "",
        min_disk_gb=document.get("min_disk") or 0,
        min_ram_mb=document.get("min_ram") or 0,
    )


def _path(image_id: str) -> str:
    """Raises `NotFound` for what would lead to something else than an image: quoting leaves dots as they are."""
    if image_id in ("", ".", ".."):
        raise NotFound(f"there is no image {image_id!r}")
    return f"/v2/images/{quote(image_id, safe='')}"
