"""Manifests of bitstreams: one text that says of the data's digest, the region's type, the functions and the card that they
belong together, so that one signature covers all of them.

Two properties of an image::

    bitstream_manifest            {"format": 1, "key": "vendor-2026", "properties": {"region_uuid": ...}, "sha512": ...}
    bitstream_manifest_signature  base64 of the signature of `signed_bytes`

`properties` are those of `COVERED` that the image has, word by word: what an image says of itself beside its manifest does
not count. Not here: keys and signatures (`signatures`).

Pure: no I/O here. docs/reference/bitstream-manifest.md is the format for others.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.accelerator.model.bitstream import CYBORG_FUNCTION_ID, FUNCTION_ID, FUNCTION_NAME, REGION
from moorage.images.base import HASH_ALGO

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
        document: Any = json.loads(text, object_pairs_hook=_once)
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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two equal names they take."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name is in it twice")
    return document
