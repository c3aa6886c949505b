"""What other features ask of images: one by its id."""

from moorage.images.base import ImageRecord
from moorage.images.glance import GlanceImages
from moorage.wire.client import ServiceClient

__all__ = ["ImageLookup", "ImageRecord"]


class ImageLookup:
    """`http` leads to the image endpoint of the catalogue, without ``/v2``; a Glance or our own service."""

    def __init__(self, http: ServiceClient) -> None:
        self._images = GlanceImages(http)

    def get(self, image_id: str) -> ImageRecord | None:
        """None where there is no such image, or its credentials may not see it."""
        return self._images.get(image_id)
