"""JSON schemas of images and members; also served at ``/v2/schemas``.

Source: Image API v2 reference, "Image schemas" and "Sharing".
"""

from typing import TYPE_CHECKING

from moorage.images.model import MemberStatus
from moorage.wire.body import Schema

if TYPE_CHECKING:
    import jsonschema

_UUID = "^([0-9a-fA-F]){8}-([0-9a-fA-F]){4}-([0-9a-fA-F]){4}-([0-9a-fA-F]){4}-([0-9a-fA-F]){12}$"
_CONTAINER_FORMATS = [None, "ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed"]
_DISK_FORMATS = [None, "ami", "ari", "aki", "vhd", "vhdx", "vmdk", "raw", "qcow2", "vdi", "iso", "ploop"]


def _text(description: str, length: int, *, ours: bool = False) -> dict[str, object]:
    return {"type": ["null", "string"], "maxLength": length, "description": description} | _read_only(ours)


def _read_only(ours: bool) -> dict[str, object]:
    return {"readOnly": True} if ours else {}


_PROPERTIES: dict[str, object] = {
    "id": {"type": "string", "pattern": _UUID, "description": "Chosen by the creator of the image, or by the service"},
    "name": _text("Name for display; need not be unique", 255),
    "status": {"type": "string", "readOnly": True, "enum": ["queued", "saving", "active", "deactivated"]},
    "visibility": {"type": "string", "enum": ["community", "public", "private", "shared"]},
    "protected": {"type": "boolean", "description": "Whether it cannot be deleted"},
    "os_hidden": {"type": "boolean", "description": "Whether lists leave it out"},
    "checksum": _text("MD5 of the data", 32, ours=True),
    "os_hash_algo": _text("Algorithm of os_hash_value", 64, ours=True),
    "os_hash_value": _text("Digest of the data, hexadecimal", 128, ours=True),
    "owner": _text("Id of a project", 255),
    "size": {"type": ["null", "integer"], "readOnly": True, "description": "Bytes of the data"},
    "virtual_size": {"type": ["null", "integer"], "readOnly": True, "description": "Bytes of the disk"},
    "container_format": {"type": ["null", "string"], "enum": _CONTAINER_FORMATS},
    "disk_format": {"type": ["null", "string"], "enum": _DISK_FORMATS},
    "created_at": {"type": "string", "readOnly": True},
    "updated_at": {"type": "string", "readOnly": True},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 255}, "maxItems": 128},
    "min_ram": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "description": "MB of a server"},
    "min_disk": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "description": "GB of a server"},
    "self": {"type": "string", "readOnly": True},
    "file": {"type": "string", "readOnly": True},
    "schema": {"type": "string", "readOnly": True},
}

#: Glance limits names to 255 characters and values to the size of a TEXT column.
_DOCUMENT: dict[str, object] = {
    "name": "image",
    "type": "object",
    "properties": _PROPERTIES,
    "propertyNames": {"minLength": 1, "maxLength": 255},
    "additionalProperties": {"type": "string", "maxLength": 65535},
    "maxProperties": 128 + len(_PROPERTIES),
    "links": [
        {"rel": "self", "href": "{self}"},
        {"rel": "enclosure", "href": "{file}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}

IMAGE = Schema(_DOCUMENT)


def _collection(name: str, item: dict[str, object]) -> dict[str, object]:
    names = ("first", "next", "schema")
    return {
        "name": name,
        "properties": {name: {"type": "array", "items": item}} | {link: {"type": "string"} for link in names},
        "links": [
            {"rel": "first", "href": "{first}"},
            {"rel": "next", "href": "{next}"},
            {"rel": "describedby", "href": "{schema}"},
        ],
    }


IMAGES_DOCUMENT = _collection("images", _DOCUMENT)

#: Clients build their objects from it.
MEMBER_DOCUMENT: dict[str, object] = {
    "name": "member",
    "properties": {
        "member_id": {"type": "string", "description": "Id of a project"},
        "image_id": {"type": "string", "pattern": _UUID},
        "status": {"type": "string", "enum": [one.value for one in MemberStatus]},
        "created_at": {"type": "string"},
        "updated_at": {"type": "string"},
        "schema": {"type": "string", "readOnly": True},
    },
}
MEMBERS_DOCUMENT = _collection("members", MEMBER_DOCUMENT)


def schema_error_text(error: "jsonschema.ValidationError") -> str:
    """The message of a ``jsonschema.ValidationError``, beginning as Glance's."""
    place = "/".join(str(step) for step in error.absolute_path)
    return f"Provided object does not match schema 'image': {error.message}" + (f" (at {place})" if place else "")


#: Glance ignores other keys, and openstacksdk sends some.
NEW_MEMBER = Schema(
    {
        "type": "object",
        "required": ["member"],
        "properties": {"member": {"type": "string", "minLength": 1, "maxLength": 255}},
    }
)
MEMBER_ANSWER = Schema(
    {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"enum": [one.value for one in MemberStatus]}},
    }
)
