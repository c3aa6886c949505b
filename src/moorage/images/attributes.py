"""The attributes of an image that are no properties of it: one table, for our own image service and for its clients.

Base attributes say what an image is: whose, for whom, which bytes. Only the Image API sets them, by its own rules and with
the rights of whoever asks. What travels another way (the metadata of createImage, say) carries additional properties.
"""

from collections.abc import Iterable, Iterator, Mapping

import orjson

from moorage.core.errors import Invalid

#: Attributes that clients may set, by their name on the wire.
WRITABLE = frozenset(
    {
        "name", "visibility", "protected", "os_hidden", "owner", "container_format", "disk_format", "min_ram",
        "min_disk", "tags",
    }
)  # fmt: skip

#: Attributes that we set; `id` may be chosen once, at the creation.
READ_ONLY = frozenset(
    {
        "id", "status", "checksum", "os_hash_algo", "os_hash_value", "size", "virtual_size", "created_at", "updated_at",
        "direct_url", "self", "file", "schema", "stores", "locations",
    }
)  # fmt: skip

BASE = WRITABLE | READ_ONLY

#: Names that Glance keeps for itself, beside the base attributes; and how others of them begin.
RESERVED = frozenset({"location", "deleted", "deleted_at"})
RESERVED_PREFIX = "os_glance_"


def is_reserved(name: str) -> bool:
    """Whether no client may set it, also not as a property."""
    return name in RESERVED or name.startswith(RESERVED_PREFIX)


def is_base(name: str) -> bool:
    """Whether only the Image API's own rules say who sets it. Everything else is an additional property.

    Databases of image services may take names that differ in case for the same.
    """
    lower = name.lower()
    return lower in BASE or is_reserved(lower)


def refuse_base(properties: Iterable[str], where: str) -> None:
    """Raises `Invalid` naming the base attributes among `properties`; `where` says what carried them."""
    if named := sorted(name for name in properties if is_base(name)):
        raise Invalid(
            f"{where} must not set {', '.join(named)}: those are attributes of an image, not properties of it; set them "
            "through the image service where it lets you",
            code="images.base_attribute",
        )


#: Properties that are the id of another image.
_IMAGE_IDS = ("kernel_id", "ramdisk_id")
#: Properties that are JSON and may name other images in it.
_DISKS = ("block_device_mapping", "mappings")
#: Each is looked up when a server is asked for.
MAX_NAMED_IMAGES = 16


def named_images(properties: Mapping[str, str]) -> dict[str, str]:
    """{image id: the property that names it}: the other images that a server of this image would read.

    Raises `Invalid` for more than `MAX_NAMED_IMAGES`. What is no JSON names none: nothing reads it.
    """
    named = {properties[name]: name for name in _IMAGE_IDS if properties.get(name)}
    for name in _DISKS:
        named |= dict.fromkeys(_image_ids_in(properties.get(name, "")), name)
    if len(named) > MAX_NAMED_IMAGES:
        raise Invalid(f"an image may name {MAX_NAMED_IMAGES} other images in its properties, not {len(named)}")
    return named


def _image_ids_in(text: str) -> Iterator[str]:
    try:
        disks = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    for disk in disks if isinstance(disks, list) else [disks]:
        if isinstance(disk, dict):
            found = [disk.get("image_id"), disk.get("uuid") if disk.get("source_type") == "image" else None]
            yield from (str(image_id) for image_id in found if image_id)
