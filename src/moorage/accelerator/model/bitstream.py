"""Which image to program: what to search for, and which of the images found fits the device.

Image properties read here (the names of the bitstream metadata spec, and Cyborg's own)::

    region_uuid                      type of the region it was made for; without it nothing is programmed
    function_uuid, function_name     comma-separated where it carries several
    accel:function_id                Cyborg's name for function_uuid
    vendor, board, shell_id          must match the device where they are given

Only public images, which an operator vouches for, and images of the project itself are programmed: anybody can make a
community image, or share one with everybody, and say of it what is not so.

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
from moorage.images.base import HASH_ALGO, ImageRecord
from moorage.images.views import ProjectView, PublicView, ServiceView

REGION = "region_uuid"


FUNCTION_ID = "function_uuid"


FUNCTION_NAME = "function_name"


CYBORG_FUNCTION_ID = "accel:function_id"


#: Each of them is a trait while the bitstream is loaded.
MAX_FUNCTIONS = 64


MANIFEST = "bitstream_manifest"


MANIFEST_SIGNATURE = "bitstream_manifest_signature"


#: By which a bitstream is found, and held against a card.
COVERED = (REGION, FUNCTION_ID, FUNCTION_NAME, CYBORG_FUNCTION_ID, "vendor", "board", "shell_id")


_FORMAT = 1


#: So that a signed manifest is a signature of nothing else, and nothing else is one of a manifest.
_PREFIX = b"moorage bitstream manifest 1\n"


_SHA512 = re.compile(r"[0-9a-f]{128}\Z")


_FIELDS = {"format", "key", "properties", HASH_ALGO}


@dataclass(frozen=True, slots=True)
class BitstreamTarget:
    """What a bitstream must fit: the type of the region and, where that is known, its card; and who wants to use it."""

    region_type: str
    project_id: str
    device: Device | None = None
    deployable: str = ""  #: the region's name
    only_public: bool = False  #: it is asked for by a server's image, which anybody may have made

    @property
    def view(self) -> ServiceView:
        """Of the images: those that the project may use; where none is named, public ones."""
        return ProjectView(self.project_id) if self.project_id else PublicView()

    def __str__(self) -> str:
        if self.device is None:
            return f"a region of type {self.region_type}"
        return f"region {self.deployable} ({self.device.model}, type {self.region_type})"


def property_filters(wanted: ProgramRequest, target: BitstreamTarget) -> Iterator[Mapping[str, str]]:
    """The property filters to try in turn, until one of them has found an image that fits.

    R24: function and region type together. Then Cyborg's property; then the region type alone, because an image
    with several functions lists them in one property that no equality finds.
    """
    region = {REGION: target.region_type}
    if wanted.function_id:
        yield {FUNCTION_ID: wanted.function_id} | region
        yield {CYBORG_FUNCTION_ID: wanted.function_id}
    else:
        yield {FUNCTION_NAME: wanted.function_name} | region
    yield region


def choose_image(images: Sequence[ImageRecord], wanted: ProgramRequest, target: BitstreamTarget) -> ImageRecord | None:
    """The one image that fits, None where none does. Raises `MultipleBitstreams`: the choice is not ours (R25)."""
    fitting = {
        image.id: image
        for image in images
        if (not wanted.bitstream_id or image.id == wanted.bitstream_id)
        and rejection_reason(image, wanted, target) is None
    }
    if len(fitting) > 1:
        named = " and ".join(f"{image.id} ({image.name})" for image in sorted(fitting.values(), key=lambda i: i.id))
        raise MultipleBitstreams(
            f"{wanted} for {target} is in several images: {named}; name one of them by its id",
            images=sorted(fitting),
        )
    return next(iter(fitting.values()), None)


def rejection_reason(image: ImageRecord, wanted: ProgramRequest, target: BitstreamTarget) -> str | None:
    """Why `image` must not be programmed into `target`; None where it may."""
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
        return "it does not carry the function"
    return _unpublishable_functions(functions, "" if target.device is None else target.device.vendor)


def _device_mismatch(image: ImageRecord, device: Device) -> str:
    """Which other card it is made for; empty where it may be for this one."""
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
    """Anybody can put an image before everybody; what its properties say must not keep a host from publishing."""
    if len(functions) > MAX_FUNCTIONS:
        return f"it names {len(functions)} functions, {MAX_FUNCTIONS} at most can be told of"
    for function in functions:
        if not f"{function.id}{function.name}".isprintable() or not all(
            map(is_custom, function_traits(vendor, function))
        ):
            return "it names a function by what cannot be a trait: too long, or not printable"
    return None


def bitstream_not_found(
    wanted: ProgramRequest, target: BitstreamTarget, images: Sequence[ImageRecord]
) -> BitstreamNotFound:
    """Names what was searched and why each image that came near was not taken; images of others stay unknown."""
    known = [image for image in images if _may_know(image, target)]
    reasons = [f"{image.id} ({image.name}): {rejection_reason(image, wanted, target)}" for image in known]
    seen = f"; looked at {'; '.join(reasons)}" if reasons else "; no image answers to that"
    return BitstreamNotFound(f"no image fits {wanted} for {target}{seen}")


def _access_refusal(image: ImageRecord, target: BitstreamTarget) -> str:
    """Why its visibility keeps it from `target`; empty where it does not."""
    if not _may_use(image, target):
        return (
            f"it is {image.visibility} and belongs to another project; only public images and those of the project itself "
            "are programmed: have an operator publish it"
        )
    if target.only_public and image.visibility != "public":
        return f"it is {image.visibility}, and a server's image may ask for a public one only"
    return ""


def _may_use(image: ImageRecord, target: BitstreamTarget) -> bool:
    return image.is_public or (bool(target.project_id) and image.owner == target.project_id)


def _may_know(image: ImageRecord, target: BitstreamTarget) -> bool:
    """Everybody may read a community image."""
    return _may_use(image, target) or image.visibility == "community"


def carries_bitstream(bitstream: Bitstream | None, wanted: ProgramRequest) -> bool:
    """Is it what is wanted?"""
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
    """Ids and names are paired by their place in the two lists."""
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
    key: str  #: the name of the signer's key, on hosts ``<key>.pem``
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
    """What a signature of the manifest `text` is made of."""
    return _PREFIX + text.encode()


def decode_manifest(text: str) -> Manifest:
    """Raises `ValueError` with what is wrong."""
    try:
        document: Any = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if not isinstance(document, dict) or set(document) != _FIELDS:
        raise ValueError(f"it must have {', '.join(sorted(_FIELDS))} and nothing else")
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT}")
    if not isinstance(document[HASH_ALGO], str) or not _SHA512.match(document[HASH_ALGO]):
        raise ValueError(f"its {HASH_ALGO} is none: 128 digits, lower-case")
    given = document["properties"]
    if not isinstance(given, dict) or not all(name in COVERED and isinstance(given[name], str) for name in given):
        raise ValueError(f"its properties are texts by the names {', '.join(COVERED)}")
    return Manifest(str(document["key"]), document[HASH_ALGO], given)


def manifest_mismatch(manifest: Manifest, digest: str, properties: Mapping[str, str]) -> str:
    """How an image with data of this sha512 and these properties is another one; empty where it is that of the manifest."""
    if digest.lower() != manifest.sha512:
        return f"the data's {HASH_ALGO} is {digest[:16]}..., and its manifest says {manifest.sha512[:16]}..."
    for name in COVERED:
        have, signed = properties.get(name) or "", manifest.properties.get(name) or ""
        if have != signed:
            return f"{name} is {have or '(not given)'}, and its manifest says {signed or '(not given)'}"
    return ""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two equal names they take."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name is in it twice")
    return document
