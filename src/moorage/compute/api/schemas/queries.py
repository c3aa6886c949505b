"""Query parameters that lists accept. As in Nova, early microversions ignore others, and later ones refuse them."""

from dataclasses import dataclass

_PAGE = ("limit", "marker")
_PERIOD = ("changes-since", "changes-before")


@dataclass(frozen=True)
class KnownQuery:
    """From microversion 2.`strict_since` on, parameters other than `names` are refused."""

    names: frozenset[str]
    strict_since: int = 75


def _known(*names: str, strict_since: int = 75) -> KnownQuery:
    return KnownQuery(frozenset(names), strict_since)


#: Of ``GET /servers`` and ``/servers/detail``.
SERVERS = _known(
    "user_id", "project_id", "tenant_id", "launch_index", "image_ref", "image", "kernel_id", "ramdisk_id", "hostname",
    "key_name", "power_state", "vm_state", "task_state", "host", "node", "flavor", "reservation_id", "launched_at",
    "terminated_at", "availability_zone", "name", "display_name", "description", "display_description", "locked_by",
    "uuid", "root_device_name", "config_drive", "access_ip_v4", "access_ip_v6", "auto_disk_config", "progress",
    "sort_key", "sort_dir", "all_tenants", "soft_deleted", "deleted", "status", "ip", "ip6", "created_at", "tags",
    "tags-any", "not-tags", "not-tags-any", "locked", *_PAGE, *_PERIOD,
)  # fmt: skip
FLAVORS = _known("is_public", "minRam", "minDisk", "sort_key", "sort_dir", "name", *_PAGE)
HYPERVISORS = _known("hypervisor_hostname_pattern", "with_servers", *_PAGE, strict_since=53)
HYPERVISOR = _known("with_servers", strict_since=53)
SERVICES = _known("host", "binary")
KEYPAIRS = _known("user_id", *_PAGE)
KEYPAIR = _known("user_id")
INSTANCE_ACTIONS = _known(*_PAGE, *_PERIOD, strict_since=58)
MIGRATIONS = _known(
    "hidden", "host", "instance_uuid", "source_compute", "status", "migration_type", "user_id", "project_id", *_PAGE,
    *_PERIOD, strict_since=59,
)  # fmt: skip
LIMITS = _known("tenant_id", "reserved")
QUOTA_SETS = _known("user_id")
USAGES = _known("start", "end", "detailed", *_PAGE)
USAGE = _known("start", "end", *_PAGE)
SERVER_GROUPS = _known("all_projects", "limit", "offset")
