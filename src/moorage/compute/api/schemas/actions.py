"""Schemas of the arguments of server actions, by the key in the body. Keys not listed take null or an empty object."""

from collections.abc import Mapping

from moorage.compute.api.schemas.flavors import NAME
from moorage.compute.api.schemas.servers import FQDN, HOSTNAME, IPV4, IPV6, METADATA_ITEMS
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_PASSWORD = {"type": "string"}
_IMAGE = {"type": "string", "minLength": 1}
_DESCRIPTION = {"type": ["string", "null"], "maxLength": 255}


def _schema(properties: Mapping[str, object], *required: str, null: bool = False) -> dict[str, object]:
    return {
        "type": ["object", "null"] if null else "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _grown(rows: list[tuple[Version, dict[str, object]]], *required: str, null: bool = False) -> VersionedSchema:
    """Each row adds properties to those before it; None removes one."""
    properties: dict[str, object] = {}
    versions: list[tuple[Version, Schema | None]] = []
    for since, added in rows:
        properties = {name: value for name, value in {**properties, **added}.items() if value is not None}
        versions.append((since, Schema(_schema(properties, *required, null=null))))
    return VersionedSchema(versions)


_HOST = {"type": ["string", "null"], "minLength": 1, "maxLength": 255}
_FLAG = {"type": ["boolean", "string"]}
_ZONE = {"type": "string", "minLength": 1, "maxLength": 255}


_REBUILD = _grown(
    [
        (
            Version(2, 1),
            {
                "imageRef": _IMAGE, "name": NAME, "adminPass": _PASSWORD, "metadata": METADATA_ITEMS,
                "preserve_ephemeral": {"type": ["boolean", "string"]},
                "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
                "accessIPv4": IPV4, "accessIPv6": IPV6,
            },
        ),
        (Version(2, 19), {"description": _DESCRIPTION}),
        (Version(2, 54), {"key_name": {"type": ["string", "null"], "minLength": 1, "maxLength": 255}}),
        (Version(2, 57), {"user_data": {"type": ["string", "null"], "maxLength": 65535}}),
        (Version(2, 63), {"trusted_image_certificates": {"type": "null"}}),
        (Version(2, 90), {"hostname": HOSTNAME}),
        (Version(2, 94), {"hostname": FQDN}),
    ],
    "imageRef",
)  # fmt: skip

ARGUMENTS: Mapping[str, VersionedSchema] = {
    "reboot": VersionedSchema(
        [
            (
                Version(2, 1),
                Schema(_schema({"type": {"enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]}}, "type")),
            )
        ]
    ),
    "lock": _grown(
        [
            (Version(2, 1), {}),
            (Version(2, 73), {"locked_reason": {"type": "string", "minLength": 1, "maxLength": 255}}),
        ],
        null=True,
    ),
    "os-getSerialConsole": _grown([(Version(2, 1), {"type": {"enum": ["serial"]}})], "type"),
    "os-getConsoleOutput": _grown(
        [(Version(2, 1), {"length": {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$", "minimum": -1}})]
    ),
    "os-resetState": _grown([(Version(2, 1), {"state": {"enum": ["active", "error"]}})], "state"),
    "rebuild": _REBUILD,
    "rescue": _grown([(Version(2, 1), {"adminPass": _PASSWORD, "rescue_image_ref": _IMAGE})], null=True),
    "changePassword": _grown([(Version(2, 1), {"adminPass": _PASSWORD})], "adminPass"),
    "createImage": _grown([(Version(2, 1), {"name": NAME, "metadata": METADATA_ITEMS})], "name"),
    "createBackup": _grown(
        [
            (
                Version(2, 1),
                {
                    "name": NAME,
                    "backup_type": {"type": "string"},
                    "rotation": {"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 0},
                    "metadata": METADATA_ITEMS,
                },
            )
        ],
        "name", "backup_type", "rotation",
    ),
    "unshelve": _grown(
        [
            (Version(2, 1), {}),
            (Version(2, 77), {"availability_zone": _ZONE}),
            (
                Version(2, 91),
                {"availability_zone": {**_ZONE, "type": ["string", "null"]}, "host": {**_HOST, "type": "string"}},
            ),
        ],
        null=True,
    ),
    "resize": _grown(
        [
            (
                Version(2, 1),
                {
                    "flavorRef": {"type": ["string", "integer"], "minLength": 1},
                    "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
                },
            )
        ],
        "flavorRef",
    ),
    "migrate": _grown([(Version(2, 1), {}), (Version(2, 56), {"host": _HOST})], null=True),
    "os-migrateLive": _grown(
        [
            (Version(2, 1), {"host": _HOST, "block_migration": _FLAG, "disk_over_commit": _FLAG}),
            (Version(2, 25), {"disk_over_commit": None}),
            (Version(2, 30), {"force": _FLAG}),
            (Version(2, 68), {"force": None}),
        ],
        "host", "block_migration",
    ),
    "evacuate": _grown(
        [
            (Version(2, 1), {"host": _HOST, "onSharedStorage": _FLAG, "adminPass": _PASSWORD}),
            (Version(2, 14), {"onSharedStorage": None}),
            (Version(2, 29), {"force": _FLAG}),
            (Version(2, 68), {"force": None}),
        ]
    ),
}  # fmt: skip


def _remote_console(protocols: list[str], types: list[str]) -> Schema:
    console = _schema({"protocol": {"enum": protocols}, "type": {"enum": types}}, "protocol", "type")
    return Schema(_schema({"remote_console": console}, "remote_console"))


_PROTOCOLS, _TYPES = ["vnc", "spice", "rdp", "serial"], ["novnc", "xvpvnc", "rdp-html5", "spice-html5", "serial"]
#: All that Nova knows; those that no host has are refused by name.
REMOTE_CONSOLE = VersionedSchema(
    [
        (Version(2, 6), _remote_console(_PROTOCOLS, _TYPES)),
        (Version(2, 8), _remote_console([*_PROTOCOLS, "mks"], [*_TYPES, "webmks"])),
    ]
)
