"""Use cases of the proxy to images: reads, with the rights of the caller."""

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.compute.deps import ComputeDeps
from moorage.core.caller import Caller
from moorage.core.errors import NotBuilt, NotFound
from moorage.images.base import CallerView
from moorage.images.client import CallerImages, DatedImage


@dataclass(frozen=True)
class ImageProxy:
    deps: ComputeDeps

    @property
    def address(self) -> str:
        """The URL of the image service."""
        return self._images.address

    def show(self, caller: Caller, image_id: str) -> DatedImage:
        image = self._images.get(CallerView.of(caller), image_id)
        if image is None:
            raise NotFound("Image not found.", code="images.not_found")
        return image

    def page(
        self, caller: Caller, filters: Sequence[tuple[str, str]], *, limit: int, marker: str | None
    ) -> list[DatedImage]:
        """See `CallerImages.page`."""
        return self._images.page(CallerView.of(caller), filters, limit=limit, marker=marker)

    @property
    def _images(self) -> CallerImages:
        if self.deps.caller_images is None:
            raise NotBuilt("No image service is configured.")
        return self.deps.caller_images
