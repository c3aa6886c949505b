"""Images as JSON: the document of the Image API, its patches, and the file format of the directory. Pure.

Source of the patches: Image API v2 reference, "HTTP PATCH media types"; refusals measured on Glance 33.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moorage.core.errors import Conflict, Forbidden, Invalid
from moorage.core.json import Json
from moorage.images.attributes import BASE, READ_ONLY, WRITABLE, is_reserved
from moorage.images.model import Image, ImageStatus, Member, MemberStatus, Visibility

PATCH_MEDIA_TYPE = "application/openstack-images-v2.1-json-patch"
#: The older form of an operation: ``{"replace": "/name", "value": "x"}``.
OLD_PATCH_MEDIA_TYPE = "application/openstack-images-v2.0-json-patch"
PATCH_MEDIA_TYPES = (OLD_PATCH_MEDIA_TYPE, PATCH_MEDIA_TYPE)

_PATCH_VERBS = ("add", "remove", "replace")


def image_document(image: Image) -> dict[str, Json]:
    """The document of the API; additional properties are on the same level as base attributes."""
    return dict(image.properties) | {
        "name": image.name,
        "disk_format": image.disk_format,
        "container_format": image.container_format,
        "visibility": image.visibility.value,
        "size": image.size_bytes,
        "virtual_size": image.size_bytes,
        "status": image.status.value,
        "checksum": image.md5,
        "protected": image.protected,
        "min_ram": image.min_ram_mb,
        "min_disk": image.min_disk_gb,
        "owner": image.owner,
        "os_hidden": image.hidden,
        "os_hash_algo": "sha512" if image.sha512 else None,
        "os_hash_value": image.sha512,
        "id": image.id,
        "created_at": _time(image.created_at),
        "updated_at": _time(image.updated_at),
        "tags": sorted(image.tags),
        "self": f"/v2/images/{image.id}",
        "file": f"/v2/images/{image.id}/file",
        "schema": "/v2/schemas/image",
    }


def refuse_read_only(names: Mapping[str, Json]) -> None:
    """Raises `Forbidden` if a creation sets an attribute that only the service sets."""
    for name in names:
        if name in READ_ONLY - {"id"} or is_reserved(name):
            raise Forbidden(f"Attribute '{name}' is read-only.", code="images.read_only")


def image_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Image` for the attributes that a client set in `document`, which matches the schema."""
    return {
        "name": document.get("name"),
        "owner": document.get("owner"),
        "visibility": Visibility(document.get("visibility", Visibility.SHARED)),
        "protected": document.get("protected", False),
        "hidden": document.get("os_hidden", False),
        "disk_format": document.get("disk_format"),
        "container_format": document.get("container_format"),
        "min_disk_gb": document.get("min_disk", 0),
        "min_ram_mb": document.get("min_ram", 0),
        "tags": frozenset(document.get("tags", ())),
        "properties": {name: value for name, value in document.items() if name not in BASE},
    }


def stored_document(image: Image) -> dict[str, Json]:
    """The document in the directory's file: all attributes of the image."""
    return {
        "format": 1,
        "id": image.id,
        "created_at": image.created_at.isoformat(),
        "updated_at": image.updated_at.isoformat(),
        "name": image.name,
        "owner": image.owner,
        "status": image.status.value,
        "visibility": image.visibility.value,
        "protected": image.protected,
        "os_hidden": image.hidden,
        "disk_format": image.disk_format,
        "container_format": image.container_format,
        "min_disk": image.min_disk_gb,
        "min_ram": image.min_ram_mb,
        "size": image.size_bytes,
        "md5": image.md5,
        "sha512": image.sha512,
        "tags": sorted(image.tags),
        "properties": dict(image.properties),
        "upload_id": image.upload_id,
        "members": {
            project: {
                "status": one.status.value,
                "created_at": one.created_at.isoformat(),
                "updated_at": one.updated_at.isoformat(),
            }
            for project, one in image.members.items()
        },
    }


def image_from_stored(document: Mapping[str, Any]) -> Image:
    base = {name: value for name, value in document.items() if name in WRITABLE}
    arguments = image_arguments(base) | {"properties": dict(document["properties"])}
    return Image(
        id=document["id"].lower(),  # earlier releases kept the client's case
        created_at=datetime.fromisoformat(document["created_at"]),
        updated_at=datetime.fromisoformat(document["updated_at"]),
        status=ImageStatus(document["status"]),
        size_bytes=document["size"],
        md5=document["md5"],
        sha512=document["sha512"],
        upload_id=document["upload_id"],
        # Files from before the introduction of members have none.
        members={project: _member(one) for project, one in document.get("members", {}).items()},
        **arguments,
    )


def member_document(image: Image, project_id: str) -> dict[str, Json]:
    member = image.members[project_id]
    return {
        "image_id": image.id,
        "member_id": project_id,
        "status": member.status.value,
        "created_at": _time(member.created_at),
        "updated_at": _time(member.updated_at),
        "schema": "/v2/schemas/member",
    }


def _member(document: Mapping[str, str]) -> Member:
    return Member(
        MemberStatus(document["status"]),
        datetime.fromisoformat(document["created_at"]),
        datetime.fromisoformat(document["updated_at"]),
    )


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class PatchOperation:
    verb: str  #: add, remove or replace
    name: str  #: a base attribute or an additional property
    value: object = None


def decode_patch(document: object, media_type: str = PATCH_MEDIA_TYPE) -> list[PatchOperation]:
    """Raises `Invalid` unless `document` is a list of operations on attributes, in the form of `media_type`."""
    if not isinstance(document, list):
        raise Invalid("Request body must be a JSON array of operation objects.")
    return [_decode_operation(row, media_type == OLD_PATCH_MEDIA_TYPE) for row in document]


def apply_patch(shown: Mapping[str, object], operations: Sequence[PatchOperation]) -> dict[str, object]:
    """The image's document after all operations.

    Raises `Forbidden` for a read-only attribute, `Conflict` for a missing property.
    """
    result: dict[str, object] = dict(shown)
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


def _decode_operation(row: object, is_old_form: bool) -> PatchOperation:
    if not isinstance(row, dict):
        raise Invalid("Operations must be JSON objects.")
    verb, path = _old_verb_and_path(row) if is_old_form else (row.get("op"), row.get("path"))
    if verb not in _PATCH_VERBS:
        raise Invalid(f"Invalid operation: `{verb}`. It must be one of the following: {', '.join(_PATCH_VERBS)}.")
    if not isinstance(path, str):
        raise Invalid("Unable to find '`path`' in JSON Schema change")
    if not path.startswith("/") or path.count("/") > 1 or path == "/":
        raise Invalid(f"Invalid JSON pointer for this resource: '{path}'")
    if verb != "remove" and "value" not in row:
        raise Invalid(f'Operation "{verb}" requires a member named "value".')
    return PatchOperation(verb, path[1:].replace("~1", "/").replace("~0", "~"), row.get("value"))


def _old_verb_and_path(row: Mapping[str, object]) -> tuple[str, object]:
    verbs = [verb for verb in _PATCH_VERBS if verb in row]
    if len(verbs) != 1:
        names = ", ".join(f'"{verb}"' for verb in _PATCH_VERBS)
        raise Invalid(f"An operation of {OLD_PATCH_MEDIA_TYPE} must have exactly one of the members {names}.")
    return verbs[0], row[verbs[0]]
