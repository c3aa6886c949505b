"""Chooses the image to program: property filters for the search, the choice among the results, signed manifests.

Image properties used here (the names of the bitstream metadata spec, and Cyborg's)::

    region_uuid                      type of the region it was made for; an image without it is not programmed
    function_uuid, function_name     comma-separated, if it has several
    accel:function_id                Cyborg's name for function_uuid
    vendor, board, shell_id          must match the device, if given

Only public images, which an operator vouches for, and the project's own images are programmed. Community and shared
images are not, because every user can create those with false properties.

A manifest is one text that covers the data's digest, the region's type, the functions and the card, so that one
signature covers all of them. It consists of two properties of the image::

    bitstream_manifest            {"format": 1, "key": "vendor-2026", "properties": {"region_uuid": ...}, "sha512": ...}
    bitstream_manifest_signature  base64 of the signature of `signed_bytes`

The manifest's `properties` are those of `COVERED` that the image has, unchanged; docs/reference/bitstream-manifest.md
describes the format for other programs. Not here: keys and signatures (`moorage.accelerator.host.signatures`).

Pure: no I/O here.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from moorage.accelerator.model.devices import Bitstream, Device, Function
from moorage.accelerator.model.errors import BitstreamNotFound, MultipleBitstreams
from moorage.accelerator.model.naming import function_traits, normalized_id, same_id
from moorage.accelerator.model.profile import ProgramRequest
from moorage.core.names import is_custom
from moorage.images.base import HASH_ALGO, ImageRecord, ProjectView, PublicView, ServiceView

REGION = "region_uuid"


FUNCTION_ID = "function_uuid"


FUNCTION_NAME = "function_name"


CYBORG_FUNCTION_ID = "accel:function_id"


#: Each function of a loaded bitstream is published as a trait.
MAX_FUNCTIONS = 64


MANIFEST = "bitstream_manifest"


MANIFEST_SIGNATURE = "bitstream_manifest_signature"


#: The properties by which a bitstream is found and matched to a card.
COVERED = (REGION, FUNCTION_ID, FUNCTION_NAME, CYBORG_FUNCTION_ID, "vendor", "board", "shell_id")


_FORMAT = 1


#: Prefix of signed manifests, so that such a signature is never valid for another document, nor the reverse.
_PREFIX = b"moorage bitstream manifest 1\n"


_SHA512 = re.compile(r"[0-9a-f]{128}\Z")


_FIELDS = {"format", "key", "properties", HASH_ALGO}


@dataclass(frozen=True, slots=True)
class BitstreamTarget:
    """The target that a bitstream must fit: the region's type, its card if known, and the project that will use it."""

    region_type: str
    project_id: str
    device: Device | None = None
    deployable: str = ""  #: the region's name
    only_public: bool = False  #: the request comes from a server's image, which anybody may have created

    @property
    def view(self) -> ServiceView:
        """The view of images to search in: the project's, or public images if no project is given."""
        return ProjectView(self.project_id) if self.project_id else PublicView()

    def __str__(self) -> str:
        if self.device is None:
            return f"a region of type {self.region_type}"
        return f"region {self.deployable} ({self.device.model}, type {self.region_type})"


def property_filters(wanted: ProgramRequest, target: BitstreamTarget) -> Iterator[Mapping[str, str]]:
    """Property filters to try in order, until one of them finds an image that fits.

    R24: first function and region type together, then Cyborg's property, then the region type alone. The last one is
    needed because an image with several functions lists them in one property, which no equality filter matches.
    """
    region = {REGION: target.region_type}
    if wanted.function_id:
        yield {FUNCTION_ID: wanted.function_id} | region
        yield {CYBORG_FUNCTION_ID: wanted.function_id}
    else:
        yield {FUNCTION_NAME: wanted.function_name} | region
    yield region


def choose_image(images: Sequence[ImageRecord], wanted: ProgramRequest, target: BitstreamTarget) -> ImageRecord | None:
    """The one image that fits, or None. Raises `MultipleBitstreams` if several fit: the caller must choose (R25)."""
    fitting = {
        image.id: image
        for image in images
        if (not wanted.bitstream_id or image.id == wanted.bitstream_id)
        and rejection_reason(image, wanted, target) is None
    }
    if len(fitting) > 1:
        named = " and ".join(f"{image.id} ({image.name})" for image in sorted(fitting.values(), key=lambda i: i.id))
        raise MultipleBitstreams(
            f"{wanted} for {target} is in several images: {named}; name one by its id",
            images=sorted(fitting),
        )
    return next(iter(fitting.values()), None)


def rejection_reason(image: ImageRecord, wanted: ProgramRequest, target: BitstreamTarget) -> str | None:
    """The reason why `image` must not be programmed into `target`; None if it may be."""
    if image.status != "active":
        return f"it is {image.status}"
    if why := _access_refusal(image, target):
        return why
    region = image.properties.get(REGION, "")
    if not same_id(region, target.region_type):
        return f"it is made for region type {region or '(none given)'}"
    if target.device is not None and (why := _device_mismatch(image, target.device)):
        return why
    functions = functions_of(image)
    if not wanted.bitstream_id and not any(is_wanted_function(wanted, function) for function in functions):
        return "it does not have the function"
    return _unpublishable_functions(functions, "" if target.device is None else target.device.vendor)


def _device_mismatch(image: ImageRecord, device: Device) -> str:
    """The property that does not match `device`; empty if all match."""
    for name, have in (
        ("vendor", (device.vendor, device.vendor_id, f"0x{device.vendor_id}")),
        ("board", (device.board, device.model)),
        ("shell_id", (device.shell_id,)),
    ):
        needed = image.properties.get(name)
        if needed and normalized_id(needed) not in {normalized_id(value) for value in have}:
            return f"it is made for {name} {needed}"
    return ""


def _unpublishable_functions(functions: Sequence[Function], vendor: str) -> str | None:
    """The reason why the functions cannot be traits; None if they can. Images of any user must not break a host's
    update of Placement.
    """
    if len(functions) > MAX_FUNCTIONS:
        return f"it names {len(functions)} functions; at most {MAX_FUNCTIONS} can be published"
    for function in functions:
        if not f"{function.id}{function.name}".isprintable() or not all(
            map(is_custom, function_traits(vendor, function))
        ):
            return "it names a function that cannot be a trait: the name is too long or not printable"
    return None


def bitstream_not_found(
    wanted: ProgramRequest, target: BitstreamTarget, images: Sequence[ImageRecord]
) -> BitstreamNotFound:
    """The error for a failed search, with the reason for each image that was considered. Private images of other
    projects are not mentioned.
    """
    known = [image for image in images if _may_know(image, target)]
    reasons = [f"{image.id} ({image.name}): {rejection_reason(image, wanted, target)}" for image in known]
    seen = f"; rejected {'; '.join(reasons)}" if reasons else "; no image matches the search"
    return BitstreamNotFound(f"no image fits {wanted} for {target}{seen}")


def _access_refusal(image: ImageRecord, target: BitstreamTarget) -> str:
    """The reason why the image's visibility forbids its use for `target`; empty if it does not."""
    if not _may_use(image, target):
        return (
            f"it is {image.visibility} and belongs to another project; only public images and the project's own images "
            "are programmed; ask an operator to publish it"
        )
    if target.only_public and image.visibility != "public":
        return f"it is {image.visibility}, but a server's image may only request public ones"
    return ""


def _may_use(image: ImageRecord, target: BitstreamTarget) -> bool:
    return image.is_public or (bool(target.project_id) and image.owner == target.project_id)


def _may_know(image: ImageRecord, target: BitstreamTarget) -> bool:
    """Whether a message to the project may name the image. All projects may read community images."""
    return _may_use(image, target) or image.visibility == "community"


def carries_bitstream(bitstream: Bitstream | None, wanted: ProgramRequest) -> bool:
    """Whether `bitstream` is the wanted image, or has the wanted function."""
    if bitstream is None:
        return False
    if wanted.bitstream_id:
        return same_id(bitstream.image_id, wanted.bitstream_id)
    return any(is_wanted_function(wanted, function) for function in bitstream.functions)


def is_wanted_function(wanted: ProgramRequest, function: Function) -> bool:
    if wanted.function_id:
        return same_id(wanted.function_id, function.id)
    return bool(wanted.function_name) and wanted.function_name == function.name


def functions_of(image: ImageRecord) -> tuple[Function, ...]:
    """The functions of the image: ids and names are paired by their position in the two lists."""
    ids = _split_list(image.properties.get(FUNCTION_ID) or image.properties.get(CYBORG_FUNCTION_ID))
    names = _split_list(image.properties.get(FUNCTION_NAME))
    return tuple(Function(identity, name) for identity, name in zip_longest(ids, names, fillvalue=""))


def bitstream_of(image: ImageRecord) -> Bitstream:
    return Bitstream(
        digest=(image.hash_value or "").lower(),
        image_id=image.id,
        image_name=image.name,
        functions=functions_of(image),
        public=image.is_public,
        owner=image.owner,
    )


def _split_list(text: str | None) -> list[str]:
    return [part for part in (piece.strip() for piece in (text or "").split(",")) if part]


@dataclass(frozen=True, slots=True)
class Manifest:
    key: str  #: name of the signer's key; the file ``<key>.pem`` on hosts
    sha512: str  #: of the data, lower-case hex
    properties: Mapping[str, str]  #: those of `COVERED` that the image has


def encode_manifest(manifest: Manifest) -> str:
    document = {
        "format": _FORMAT,
        "key": manifest.key,
        "properties": dict(manifest.properties),
        HASH_ALGO: manifest.sha512,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def signed_bytes(text: str) -> bytes:
    """The bytes to sign for the manifest `text`."""
    return _PREFIX + text.encode()


def decode_manifest(text: str) -> Manifest:
    """Raises `ValueError` with the reason."""
    try:
        document: object = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not valid JSON: {error}") from error
    if not isinstance(document, dict) or set(document) != _FIELDS:
        raise ValueError(f"it must have {', '.join(sorted(_FIELDS))} and nothing else")
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT}")
    if not isinstance(document[HASH_ALGO], str) or not _SHA512.match(document[HASH_ALGO]):
        raise ValueError(f"its {HASH_ALGO} must be 128 hexadecimal digits in lower case")
    given = document["properties"]
    if not isinstance(given, dict) or not all(name in COVERED and isinstance(given[name], str) for name in given):
        raise ValueError(f"its properties must be strings with the names {', '.join(COVERED)}")
    return Manifest(str(document["key"]), document[HASH_ALGO], given)


def manifest_mismatch(manifest: Manifest, digest: str, properties: Mapping[str, str]) -> str:
    """The first difference between the manifest and an image with this sha512 and these properties, or ``""``."""
    if digest.lower() != manifest.sha512:
        return f"the data's {HASH_ALGO} is {digest[:16]}..., but its manifest says {manifest.sha512[:16]}..."
    for name in COVERED:
        have, signed = properties.get(name) or "", manifest.properties.get(name) or ""
        if have != signed:
            return f"{name} is {have or '(not given)'}, but its manifest says {signed or '(not given)'}"
    return ""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses duplicate names, because JSON parsers differ in which of them they use."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name occurs twice")
    return document
