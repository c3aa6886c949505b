"""Finds the image of a bitstream: for hosts, which load it, and for the service, which reports whether there is one.

`model.bitstream` decides which of the images fits.
Spec: docs/evidence/specs/accelerator-attach.md
"""

from moorage.accelerator.model.bitstream import BitstreamTarget, bitstream_not_found, choose_image, property_filters
from moorage.accelerator.model.errors import ChecksumMismatch
from moorage.accelerator.model.profile import ProgramRequest
from moorage.images.base import HASH_ALGO, ImageRecord, ImageSource


def find_image(images: ImageSource, wanted: ProgramRequest, target: BitstreamTarget) -> ImageRecord:
    """Returns the one image that fits `target`.

    Raises `BitstreamNotFound`, `MultipleBitstreams`, `ChecksumMismatch`.
    """
    image = _find_by_id(images, wanted, target) if wanted.bitstream_id else _search(images, wanted, target)
    if image.hash_algo != HASH_ALGO or not image.hash_value:
        raise ChecksumMismatch(
            f"image {image.id} ({image.name}) has no {HASH_ALGO} of its data, so it cannot be verified and is not "
            "programmed"
        )
    return image


def _find_by_id(images: ImageSource, wanted: ProgramRequest, target: BitstreamTarget) -> ImageRecord:
    image = images.get(target.view, wanted.bitstream_id)
    found = [image] if image is not None else []
    chosen = choose_image(found, wanted, target)
    if chosen is None:
        raise bitstream_not_found(wanted, target, found)
    return chosen


def _search(images: ImageSource, wanted: ProgramRequest, target: BitstreamTarget) -> ImageRecord:
    seen: dict[str, ImageRecord] = {}
    for properties in property_filters(wanted, target):
        found = images.find(target.view, properties)
        seen |= {image.id: image for image in found}
        if chosen := choose_image(found, wanted, target):
            return chosen
    raise bitstream_not_found(wanted, target, list(seen.values()))
