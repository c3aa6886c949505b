"""Base attributes of images, as opposed to additional properties: one table for our image service and its clients.

Base attributes are, for example, the owner, the visibility and the digest. Only the Image API sets them, by its own
rules and with the rights of the caller. Other ways, such as the metadata of createImage, may only set additional
properties.
"""

from collections.abc import Iterable, Iterator, Mapping

import orjson

from moorage.core.errors import Invalid

#: Attributes that clients may set, by name on the wire.
WRITABLE = frozenset(
    {
        "name", "visibility", "protected", "os_hidden", "owner", "container_format", "disk_format", "min_ram",
        "min_disk", "tags",
    }
)  # fmt: skip

#: Attributes that the service sets; clients may choose `id`, at creation only.
READ_ONLY = frozenset(
    {
        "id", "status", "checksum", "os_hash_algo", "os_hash_value", "size", "virtual_size", "created_at", "updated_at",
        "direct_url", "self", "file", "schema", "stores", "locations",
    }
)  # fmt: skip

BASE = WRITABLE | READ_ONLY

#: Names that Glance reserves in addition to the base attributes, and the prefix of further reserved names.
RESERVED = frozenset({"location", "deleted", "deleted_at"})
RESERVED_PREFIX = "os_glance_"


def is_reserved(name: str) -> bool:
    """Whether the name is reserved: clients may not set it, not even as a property."""
    return name in RESERVED or name.startswith(RESERVED_PREFIX)


def is_base(name: str) -> bool:
    """Whether the name is that of a base attribute. All other names are additional properties.

    Ignores case, because databases of image services may not distinguish case in names.
    """
    lower = name.lower()
    return lower in BASE or is_reserved(lower)


#: Query parameters of a list that are not properties, in addition to the base attributes.
_QUERY_WORDS = frozenset(
    {"limit", "marker", "sort", "sort_key", "sort_dir", "member_status", "size_min", "size_max", "tag"}
)


def is_filter_property(name: str) -> bool:
    """Whether a list can be filtered by `name` as an additional property."""
    return not is_base(name) and name not in _QUERY_WORDS


def refuse_base(properties: Iterable[str], where: str) -> None:
    """Raises `Invalid` naming the base attributes among `properties`; `where` says what carried them."""
    if named := sorted(name for name in properties if is_base(name)):
        raise Invalid(
            f"{where} must not set {', '.join(named)}: those are base attributes, not properties; set them "
            "through the image service if it allows that",
            code="images.base_attribute",
        )


#: Properties whose value is the id of another image.
_IMAGE_IDS = ("kernel_id", "ramdisk_id")
#: Properties in JSON that may name other images.
_DISKS = ("block_device_mapping", "mappings")
#: Each named image is looked up when a server is created.
MAX_NAMED_IMAGES = 16


def named_images(properties: Mapping[str, str]) -> dict[str, str]:
    """The other images that a server of this image would read: {image id: the property that names it}.

    Raises `Invalid` for more than `MAX_NAMED_IMAGES`. Invalid JSON names no images, because no program can read it.
    """
    named = {properties[name]: name for name in _IMAGE_IDS if properties.get(name)}
    for name in _DISKS:
        named |= dict.fromkeys(_image_ids_in(properties.get(name, "")), name)
    if len(named) > MAX_NAMED_IMAGES:
        raise Invalid(f"an image may name at most {MAX_NAMED_IMAGES} other images in its properties, not {len(named)}")
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
