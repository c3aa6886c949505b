"""``application/openstack-images-v2.1-json-patch``: what a client changes about an image. Pure.

Source: Image API v2 reference, "HTTP PATCH media types"; refusals measured on Glance 33.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.core.errors import Conflict, Forbidden, Invalid
from moorage.images.attributes import BASE, READ_ONLY, is_reserved

PATCH_MEDIA_TYPE = "application/openstack-images-v2.1-json-patch"

_PATCH_VERBS = ("add", "remove", "replace")


@dataclass(frozen=True, slots=True)
class PatchOperation:
    verb: str  #: add, remove or replace
    name: str  #: a base attribute or an additional property
    value: Any = None


def decode_patch(document: object) -> list[PatchOperation]:
    """Raises `Invalid` for what is no list of operations on attributes."""
    if not isinstance(document, list):
        raise Invalid("Request body must be a JSON array of operation objects.")
    return [_decode_operation(row) for row in document]


def apply_patch(shown: Mapping[str, Any], operations: Sequence[PatchOperation]) -> dict[str, Any]:
    """The image's document after all operations. Raises `Forbidden` (read-only) and `Conflict` (no such property)."""
    result = dict(shown)
    for operation in operations:
        name = operation.name
        if name in READ_ONLY or is_reserved(name):
            raise Forbidden(f"Attribute '{name}' is read-only.", code="images.read_only")
        if operation.verb != "add" and name not in result:
            raise Conflict(f"Property {name} does not exist.", code="images.no_property")
        if operation.verb == "remove":
            if name in BASE:
                raise Forbidden(f"Property {name} may not be removed.", code="images.base_property")
            del result[name]
        else:
            result[name] = operation.value
    return result


def _decode_operation(row: object) -> PatchOperation:
    if not isinstance(row, dict):
        raise Invalid("Operations must be JSON objects.")
    verb, path = row.get("op"), row.get("path")
    if verb not in _PATCH_VERBS:
        raise Invalid(f"Invalid operation: `{verb}`. It must be one of the following: {', '.join(_PATCH_VERBS)}.")
    if not isinstance(path, str):
        raise Invalid("Unable to find '`path`' in JSON Schema change")
    if not path.startswith("/") or path.count("/") > 1 or path == "/":
        raise Invalid(f"Invalid JSON pointer for this resource: '{path}'")
    if verb != "remove" and "value" not in row:
        raise Invalid(f'Operation "{verb}" requires a member named "value".')
    return PatchOperation(verb, path[1:].replace("~1", "/").replace("~0", "~"), row.get("value"))
