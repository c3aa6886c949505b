"""Reads images for the callers of another service, with the callers' own rights: one by its id, and pages of lists.

The image service decides what a caller may see; the credentials of the other service are not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from moorage.core.errors import Forbidden, Invalid, RemoteError
from moorage.images.base import ImageRecord
from moorage.images.glance import GlanceImages, record_from_document
from moorage.images.views import CallerView
from moorage.wire.client import ServiceClient

_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class DatedImage:
    record: ImageRecord
    created_at: str  #: ``2026-11-20T16:54:59Z``, as `updated_at`
    updated_at: str


class CallerImages:
    """`http` uses the catalogue's image endpoint, without ``/v2``; `address` is its URL, for links."""

    def __init__(self, http: ServiceClient, address: str) -> None:
        self._images = GlanceImages(http)
        self.address = address

    def get(self, view: CallerView, image_id: str) -> DatedImage | None:
        """None if there is no such image, or the caller may not read it."""
        document = self._images.document(view, image_id)
        return None if document is None else _dated(document)

    def page(
        self, view: CallerView, filters: Sequence[tuple[str, str]], *, limit: int, marker: str | None
    ) -> list[DatedImage]:
        """Up to `limit` images behind the image `marker`, newest first. `filters`: of the Image API.

        Raises `Invalid` for a filter or marker that the image service rejects, `Forbidden` if it rejects the caller.
        """
        query = [*filters, ("limit", str(max(1, min(limit, _PAGE_SIZE))))]
        if marker is not None:
            query.append(("marker", marker))
        try:
            rows = islice(self._images.http(view).paged_rows("/v2/images", "images", query, more="next"), limit)
            return [_dated(row) for row in rows]
        except RemoteError as error:
            message = str(error.fields.get("detail") or "the image service rejects the request")
            if error.status == 400:
                raise Invalid(message) from error
            if error.status == 403:
                raise Forbidden(message) from error
            raise


def _dated(document: dict[str, Any]) -> DatedImage:
    record = record_from_document(document)
    return DatedImage(record, str(document.get("created_at") or ""), str(document.get("updated_at") or ""))
