"""Routes that Nova has or had, and this service does not have. Each answers with a message.

410: Nova itself removed it; 501: Nova has it and this service does not. docs/wire/compute.md lists them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from moorage.compute.api.handlers.views import ComputeRequest
from moorage.core.errors import Gone, NotBuilt
from moorage.wire.http import Response

#: The last microversion with Nova's proxies to images, volumes and networks; later they are not found.
PROXIES_UNTIL = 35
#: The same for the metadata of images.
IMAGE_METADATA_UNTIL = 38
_IMAGES = "The proxy to images only reads; change images through the image service in the service catalogue."
_VOLUMES = "There is no volume service: volumes, snapshots of volumes and booting from them are not offered."
_NETWORKS = "Floating IPs and security groups are not offered; for networks and ports use the network service."
_REMOVED = "Nova removed this API; it has no replacement here."
_NETWORKS_REMOVED = "Nova removed this API; use the network service for networks."


@dataclass(frozen=True)
class UnsupportedRoute:
    """One path, with the methods that Nova has or had."""

    path: str
    methods: str  #: separated by blanks
    message: str
    status: int = 501
    since: int | None = None  #: minor microversion, as `until`
    until: int | None = None

    @property
    def handler(self) -> Callable[..., Response]:
        error = Gone if self.status == 410 else NotBuilt

        def refuse(request: ComputeRequest, **_path: str) -> Response:
            raise error(self.message)

        return refuse


def _gone(path: str, methods: str, message: str = _REMOVED) -> UnsupportedRoute:
    return UnsupportedRoute(path, methods, message, 410)


UNSUPPORTED_ROUTES: tuple[UnsupportedRoute, ...] = (
    _gone("/os-agents", "GET POST"),
    _gone("/os-agents/{key}", "PUT DELETE"),
    _gone("/os-cells", "GET POST"),
    _gone("/os-cells/{key}", "GET PUT DELETE POST"),
    _gone("/os-cells/{key}/capacities", "GET"),
    _gone("/os-certificates", "POST"),
    _gone("/os-certificates/{key}", "GET"),
    _gone("/os-cloudpipe", "GET POST"),
    _gone("/os-cloudpipe/{key}", "PUT"),
    _gone("/os-fixed-ips/{key}", "GET"),
    _gone("/os-fixed-ips/{key}/action", "POST"),
    _gone("/os-floating-ip-dns", "GET"),
    _gone("/os-floating-ip-dns/{key}", "PUT DELETE"),
    _gone("/os-floating-ip-dns/{key}/entries/{entry}", "GET PUT DELETE"),
    _gone("/os-floating-ips-bulk", "GET POST"),
    _gone("/os-floating-ips-bulk/{key}", "GET PUT"),
    _gone("/os-fping", "GET"),
    _gone("/os-fping/{key}", "GET"),
    _gone("/os-networks", "GET POST", _NETWORKS_REMOVED),
    _gone("/os-networks/{key}", "GET DELETE POST", _NETWORKS_REMOVED),
    _gone("/os-networks/{key}/action", "POST", _NETWORKS_REMOVED),
    _gone("/os-security-group-default-rules", "GET POST"),
    _gone("/os-security-group-default-rules/{key}", "GET DELETE"),
    _gone("/os-tenant-networks", "GET POST", _NETWORKS_REMOVED),
    _gone("/os-tenant-networks/{key}", "GET DELETE", _NETWORKS_REMOVED),
    _gone("/servers/{server_id}/consoles", "GET POST"),
    _gone("/servers/{server_id}/consoles/{key}", "GET DELETE"),
    _gone("/servers/{server_id}/os-virtual-interfaces", "GET"),
    UnsupportedRoute("/images/{image_id}", "DELETE", _IMAGES, until=PROXIES_UNTIL),
    UnsupportedRoute("/images/{image_id}/metadata", "POST PUT", _IMAGES, until=IMAGE_METADATA_UNTIL),
    UnsupportedRoute("/images/{image_id}/metadata/{key}", "PUT DELETE", _IMAGES, until=IMAGE_METADATA_UNTIL),
    UnsupportedRoute("/os-volumes", "GET POST", _VOLUMES, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-volumes/{key}", "GET DELETE", _VOLUMES, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-snapshots", "GET POST", _VOLUMES, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-snapshots/{key}", "GET DELETE", _VOLUMES, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-volumes_boot", "GET POST", "This path was an alias of /servers; use /servers."),
    UnsupportedRoute("/os-volumes_boot/{key}", "GET PUT DELETE", "This path was an alias of /servers; use /servers."),
    UnsupportedRoute("/os-volumes_boot/{key}/action", "POST", "This path was an alias of /servers; use /servers."),
    UnsupportedRoute("/os-assisted-volume-snapshots", "POST", _VOLUMES),
    UnsupportedRoute("/os-assisted-volume-snapshots/{key}", "DELETE", _VOLUMES),
    UnsupportedRoute("/servers/{server_id}/os-volume_attachments", "POST", _VOLUMES),
    UnsupportedRoute("/servers/{server_id}/os-volume_attachments/{key}", "PUT DELETE", _VOLUMES),
    UnsupportedRoute("/os-floating-ip-pools", "GET", _NETWORKS, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-floating-ips", "GET POST", _NETWORKS, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-floating-ips/{key}", "GET DELETE", _NETWORKS, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-security-groups", "GET POST", _NETWORKS, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-security-groups/{key}", "GET PUT DELETE", _NETWORKS, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-security-group-rules", "POST", _NETWORKS, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-security-group-rules/{key}", "DELETE", _NETWORKS, until=PROXIES_UNTIL),
    UnsupportedRoute("/os-baremetal-nodes", "GET POST", "Bare metal nodes are not proxied.", until=PROXIES_UNTIL),
    UnsupportedRoute(
        "/os-baremetal-nodes/{key}", "GET DELETE", "Bare metal nodes are not proxied.", until=PROXIES_UNTIL,
    ),
    UnsupportedRoute(
        "/os-baremetal-nodes/{key}/action", "POST", "Bare metal nodes are not proxied.", until=PROXIES_UNTIL,
    ),
    UnsupportedRoute(
        "/os-aggregates/{aggregate_id}/images", "POST",
        "Images are not cached in advance; a host fetches an image when a server needs it.", since=81,
    ),
    UnsupportedRoute(
        "/os-hosts/{host}", "PUT",
        "Use os-services to enable, disable or force down the compute service of a host.", until=42,
    ),
    UnsupportedRoute("/os-hosts/{host}/{action}", "GET", "This service cannot start, stop or reboot a host.", until=42),
    UnsupportedRoute(
        "/os-instance_usage_audit_log", "GET", "There is no audit log of usage; see os-simple-tenant-usage.",
    ),
    UnsupportedRoute(
        "/os-instance_usage_audit_log/{key}", "GET", "There is no audit log of usage; see os-simple-tenant-usage.",
    ),
    UnsupportedRoute("/os-console-auth-tokens/{key}", "GET", "There are no graphical consoles."),
    UnsupportedRoute("/servers/{server_id}/shares", "POST", "There is no shared file system service.", since=97),
    UnsupportedRoute(
        "/servers/{server_id}/shares/{key}", "DELETE", "There is no shared file system service.", since=97,
    ),
    UnsupportedRoute(
        "/servers/{server_id}/migrations/{migration_id}/action", "POST",
        "This service cannot force a live migration to complete.", since=22,
    ),
    UnsupportedRoute(
        "/servers/{server_id}/migrations/{migration_id}", "DELETE",
        "This service cannot abort a live migration.", since=24,
    ),
)  # fmt: skip
