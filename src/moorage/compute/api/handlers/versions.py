"""Version documents, and the list of extensions, in which old clients look for names."""

from moorage.compute.api.handlers.views import ComputeRequest
from moorage.core.errors import NotFound
from moorage.core.json import Json, JsonObject
from moorage.wire.http import Response
from moorage.wire.microversion import Version, VersionRange

#: 2.100 is the newest of the 2025 releases. Later ones add volumes, and refuse unknown query parameters everywhere.
VERSIONS = VersionRange(
    service_type="compute",
    minimum=Version(2, 1),
    maximum=Version(2, 100),
    legacy_header="X-OpenStack-Nova-API-Version",
)


def index(request: ComputeRequest) -> Response:
    return Response(body={"versions": [_document(request)]})


def show(request: ComputeRequest) -> Response:
    described = {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"}
    document = _document(request, described)
    document["media-types"] = [
        {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
    ]
    return Response(body={"version": document})


def _document(request: ComputeRequest, *links: JsonObject) -> dict[str, Json]:
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": str(VERSIONS.maximum),
        "min_version": str(VERSIONS.minimum),
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": f"{request.base_url}/v2.1/"}, *links],
    }


#: (Nova's alias, Nova's name, description of the part that exists here).
_EXTENSIONS = (
    ("OS-DCF", "DiskConfig", "How a server's disk is partitioned."),
    ("OS-EXT-AZ", "ExtendedAvailabilityZone", "The availability zone that a server is in."),
    ("OS-EXT-IMG-SIZE", "ImageSize", "Size of an image in bytes."),
    ("OS-EXT-SRV-ATTR", "ExtendedServerAttributes", "Host, hypervisor and name on the host of a server."),
    ("OS-EXT-STS", "ExtendedStatus", "State, task and power state of a server."),
    ("OS-FLV-DISABLED", "FlavorDisabled", "Whether a flavor is disabled; none is."),
    ("OS-FLV-EXT-DATA", "FlavorExtraData", "Ephemeral disk of a flavor."),
    ("OS-SCH-HNT", "SchedulerHints", "Hints to the scheduler in a request for a server."),
    ("OS-SRV-USG", "ServerUsage", "Launch and end time of a server."),
    ("os-access-ips", "AccessIPs", "External addresses of a server, set by its owner."),
    ("os-admin-actions", "AdminActions", "Actions of administrators on servers."),
    ("os-aggregates", "Aggregates", "Groups of hosts."),
    ("os-availability-zone", "AvailabilityZone", "Zones of hosts."),
    ("os-config-drive", "ConfigDrive", "A drive with the data of a server for its guest."),
    ("os-console-output", "ConsoleOutput", "The latest console output."),
    ("os-remote-consoles", "Consoles", "Serial consoles of servers."),
    ("os-create-backup", "CreateBackup", "Images of a server's disk in rotation."),
    ("os-deferred-delete", "DeferredDelete", "Deleted servers that can be restored for a while."),
    ("os-evacuate", "Evacuate", "Rebuild of the servers of a dead host on other hosts."),
    ("os-extended-hypervisors", "ExtendedHypervisors", "Address and free disk of a hypervisor."),
    ("os-extended-quotas", "ExtendedQuotas", "Deletion of a project's limits, and limits below its usage."),
    ("os-extended-services", "ExtendedServices", "The reason why a service is disabled."),
    ("os-extended-services-delete", "ExtendedServicesDelete", "Deletion of services."),
    ("os-flavor-access", "FlavorAccess", "Which projects may use a flavor."),
    ("os-flavor-extra-specs", "FlavorExtraSpecs", "Additional requirements of a flavor."),
    ("os-flavor-manage", "FlavorManage", "Creation and deletion of flavors."),
    ("os-flavor-swap", "FlavorSwap", "Swap space of a flavor."),
    ("os-hosts", "Hosts", "Hosts; replaced by hypervisors and services."),
    ("os-hypervisor-status", "HypervisorStatus", "Whether a hypervisor is up and enabled."),
    ("os-hypervisors", "Hypervisors", "Hypervisors, their capacity and their servers."),
    ("os-instance-actions", "InstanceActions", "History of the actions on a server, with their events."),
    ("os-keypairs", "Keypairs", "Public keys of users for their guests, imported or generated."),
    ("os-lock-server", "LockServer", "Locks that protect a server against actions."),
    ("os-migrate-server", "MigrateServer", "Servers moved to another host."),
    ("os-migrations", "Migrations", "Moves of servers."),
    ("os-multiple-create", "MultipleCreate", "Several servers with one request."),
    ("os-pause-server", "PauseServer", "Servers paused and unpaused."),
    ("os-quota-class-sets", "QuotaClasses", "Default limits of projects."),
    ("os-quota-sets", "Quotas", "Limits of a project."),
    ("os-rescue", "Rescue", "A server booted from another disk."),
    ("os-server-diagnostics", "ServerDiagnostics", "Diagnostics of a guest."),
    ("os-server-groups", "ServerGroups", "Groups of servers that must be on the same host or on different hosts."),
    ("os-server-list-multi-status", "ServerListMultiStatus", "Several statuses in one query."),
    ("os-server-sort-keys", "ServerSortKeys", "Sorted lists of servers."),
    ("os-server-start-stop", "ServerStartStop", "Servers started and stopped."),
    ("os-services", "Services", "The compute service of each host."),
    ("os-shelve", "Shelve", "Servers stored as an image."),
    ("os-simple-tenant-usage", "SimpleTenantUsage", "Usage of a project over a period."),
    ("os-suspend-server", "SuspendServer", "Servers suspended and resumed."),
    ("os-used-limits", "UsedLimits", "Current usage next to each limit."),
    ("os-user-data", "UserData", "User data for the guest of a server."),
)


def index_extensions(request: ComputeRequest) -> Response:
    return Response(body={"extensions": [_extension(*row) for row in _EXTENSIONS]})


def show_extension(request: ComputeRequest, alias: str) -> Response:
    for row in _EXTENSIONS:
        if row[0] == alias:
            return Response(body={"extension": _extension(*row)})
    raise NotFound("The resource could not be found.")


def _extension(alias: str, name: str, description: str) -> dict[str, object]:
    """`namespace` and `updated` are the same for all extensions in Nova, too."""
    return {
        "alias": alias,
        "name": name,
        "description": description,
        "links": [],
        "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
        "updated": "2014-12-03T00:00:00Z",
    }
