"""The Compute API's route table and its policy, by Nova's rule names.

A member owns the servers of the project; hosts, aggregates, the making of flavors and everybody else's servers
are the administrator's (and other services'). Not built, with a message: `server_actions.NOT_BUILT`, server groups,
setting quotas.
"""

from collections.abc import Callable

from moorage.compute.handlers import agents, aggregates, flavors, hosts, projects, server_actions, servers, versions
from moorage.compute.handlers.views import error, word_schema_error
from moorage.compute.schemas import flavors as flavor_schemas
from moorage.compute.schemas import hosts as host_schemas
from moorage.compute.schemas import servers as server_schemas
from moorage.compute.service import ComputeService
from moorage.identity.policy import RuleTable, admin, admin_or_service, member, reader
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema, Versioned
from moorage.wire.call import Reply, Route
from moorage.wire.microversion import Version

_OWN = "os_compute_api:"


def _route(
    method: str,
    path: str,
    handler: Callable[..., Reply],
    rule: str,
    schema: Schema | Versioned | None = None,
    *,
    since: int | None = None,
    until: int | None = None,
) -> Route[ComputeService]:
    return Route(
        method,
        f"/v2.1{path}",
        handler,
        _OWN + rule,
        schema=schema,
        since=None if since is None else Version(2, since),
        until=None if until is None else Version(2, until),
    )


_VERSIONS: list[Route[ComputeService]] = [
    Route("GET", "/", versions.index, None),
    Route("GET", "/v2.1", versions.show, None),
    Route("GET", "/v2.1/", versions.show, None),
]

_FLAVORS = [
    _route("GET", "/flavors", flavors.index, "flavors:index"),
    _route("GET", "/flavors/detail", flavors.detail, "flavors:index"),
    _route("POST", "/flavors", flavors.create, "os-flavor-manage:create", flavor_schemas.CREATE),
    _route("GET", "/flavors/{flavor_id}", flavors.show, "flavors:show"),
    _route("PUT", "/flavors/{flavor_id}", flavors.update, "os-flavor-manage:update", flavor_schemas.UPDATE, since=55),
    _route("DELETE", "/flavors/{flavor_id}", flavors.delete, "os-flavor-manage:delete"),
    _route("GET", "/flavors/{flavor_id}/os-extra_specs", flavors.index_specs, "os-flavor-extra-specs:index"),
    _route(
        "POST", "/flavors/{flavor_id}/os-extra_specs", flavors.create_specs, "os-flavor-extra-specs:create",
        flavor_schemas.EXTRA_SPECS,
    ),
    _route("GET", "/flavors/{flavor_id}/os-extra_specs/{key}", flavors.show_spec, "os-flavor-extra-specs:show"),
    _route(
        "PUT", "/flavors/{flavor_id}/os-extra_specs/{key}", flavors.update_spec, "os-flavor-extra-specs:update",
        flavor_schemas.EXTRA_SPEC,
    ),
    _route("DELETE", "/flavors/{flavor_id}/os-extra_specs/{key}", flavors.delete_spec, "os-flavor-extra-specs:delete"),
    _route("GET", "/flavors/{flavor_id}/os-flavor-access", flavors.index_access, "os-flavor-access"),
    _route("POST", "/flavors/{flavor_id}/action", flavors.act, "os-flavor-access:change", flavor_schemas.ACCESS),
]  # fmt: skip

_METADATA = "/servers/{server_id}/metadata"
_SERVERS = [
    _route("GET", "/servers", servers.index, "servers:index"),
    _route("GET", "/servers/detail", servers.detail, "servers:detail"),
    _route("POST", "/servers", servers.create, "servers:create", server_schemas.CREATE),
    _route("GET", "/servers/{server_id}", servers.show, "servers:show"),
    _route("PUT", "/servers/{server_id}", servers.update, "servers:update", server_schemas.UPDATE),
    _route("DELETE", "/servers/{server_id}", servers.delete, "servers:delete"),
    _route("POST", "/servers/{server_id}/action", server_actions.act, "servers:action", server_schemas.ACTION),
    _route("GET", _METADATA, servers.index_metadata, "server-metadata:index"),
    _route("POST", _METADATA, servers.add_metadata, "server-metadata:create", server_schemas.METADATA),
    _route("PUT", _METADATA, servers.replace_metadata, "server-metadata:update_all", server_schemas.METADATA),
    _route("GET", _METADATA + "/{key}", servers.show_metadata_item, "server-metadata:show"),
    _route(
        "PUT", _METADATA + "/{key}", servers.set_metadata_item, "server-metadata:update", server_schemas.METADATA_ITEM
    ),
    _route("DELETE", _METADATA + "/{key}", servers.delete_metadata_item, "server-metadata:delete"),
    _route("GET", "/servers/{server_id}/tags", servers.index_tags, "os-server-tags:index", since=26),
    _route("GET", "/servers/{server_id}/ips", servers.index_addresses, "ips:index"),
    _route("GET", "/servers/{server_id}/os-instance-actions", server_actions.index, "os-instance-actions:list"),
    _route(
        "GET", "/servers/{server_id}/os-instance-actions/{request_id}", server_actions.show, "os-instance-actions:show"
    ),
]  # fmt: skip

_HOSTS = [
    _route("GET", "/os-hypervisors", hosts.index_hypervisors, "os-hypervisors:list"),
    _route("GET", "/os-hypervisors/detail", hosts.detail_hypervisors, "os-hypervisors:list-detail"),
    _route("GET", "/os-hypervisors/statistics", hosts.statistics, "os-hypervisors:statistics", until=87),
    _route("GET", "/os-hypervisors/{hypervisor_id}", hosts.show_hypervisor, "os-hypervisors:show"),
    _route("GET", "/os-hypervisors/{hypervisor_id}/search", hosts.search_hypervisors, "os-hypervisors:search", until=52),
    _route("GET", "/os-hypervisors/{hypervisor_id}/servers", hosts.servers_of_hypervisors, "os-hypervisors:servers", until=52),
    _route("GET", "/os-services", hosts.index_services, "os-services:list"),
    _route("PUT", "/os-services/{service_id}", hosts.update_service, "os-services:update", host_schemas.SERVICE, since=53),
    _route("GET", "/os-availability-zone", hosts.index_zones, "os-availability-zone:list"),
    _route("GET", "/os-availability-zone/detail", hosts.detail_zones, "os-availability-zone:detail"),
    _route("GET", "/os-aggregates", aggregates.index, "os-aggregates:index"),
    _route("POST", "/os-aggregates", aggregates.create, "os-aggregates:create", host_schemas.AGGREGATE_CREATE),
    _route("GET", "/os-aggregates/{aggregate_id}", aggregates.show, "os-aggregates:show"),
    _route(
        "PUT", "/os-aggregates/{aggregate_id}", aggregates.update, "os-aggregates:update", host_schemas.AGGREGATE_UPDATE
    ),
    _route("DELETE", "/os-aggregates/{aggregate_id}", aggregates.delete, "os-aggregates:delete"),
    _route(
        "POST", "/os-aggregates/{aggregate_id}/action", aggregates.act, "os-aggregates:action",
        host_schemas.AGGREGATE_ACTION,
    ),
]  # fmt: skip

_PROJECTS = [
    _route("GET", "/os-keypairs", projects.index_keypairs, "os-keypairs:index"),
    _route("POST", "/os-keypairs", projects.create_keypair, "os-keypairs:create", flavor_schemas.KEYPAIR),
    _route("GET", "/os-keypairs/{name}", projects.show_keypair, "os-keypairs:show"),
    _route("DELETE", "/os-keypairs/{name}", projects.delete_keypair, "os-keypairs:delete"),
    _route("GET", "/limits", projects.show_limits, "limits"),
    _route("GET", "/os-quota-sets/{project_id}", projects.show_quota, "os-quota-sets:show"),
    _route("GET", "/os-quota-sets/{project_id}/defaults", projects.default_quota, "os-quota-sets:defaults"),
    _route("GET", "/os-quota-sets/{project_id}/detail", projects.detail_quota, "os-quota-sets:detail"),
    _route("PUT", "/os-quota-sets/{project_id}", projects.no_quota_update, "os-quota-sets:update"),
    _route("DELETE", "/os-quota-sets/{project_id}", projects.no_quota_update, "os-quota-sets:delete"),
    _route("GET", "/os-simple-tenant-usage", projects.index_usage, "os-simple-tenant-usage:list"),
    _route("GET", "/os-simple-tenant-usage/{project_id}", projects.show_usage, "os-simple-tenant-usage:show"),
    _route("GET", "/os-server-groups", projects.no_server_groups, "os-server-groups:index"),
    _route("POST", "/os-server-groups", projects.no_server_groups, "os-server-groups:create"),
    _route("GET", "/os-server-groups/{group_id}", projects.no_server_groups, "os-server-groups:show"),
    _route("DELETE", "/os-server-groups/{group_id}", projects.no_server_groups, "os-server-groups:delete"),
]

AGENT_RULE = "moorage:agent"
_AGENTS: list[Route[ComputeService]] = [
    Route("PUT", "/agent/v1/hosts/{host}", agents.register, AGENT_RULE, schema=host_schemas.REGISTER),
    Route("POST", "/agent/v1/hosts/{host}/jobs", agents.claim, AGENT_RULE, schema=host_schemas.CLAIM),
    Route("PUT", "/agent/v1/jobs/{job_id}", agents.report, AGENT_RULE, schema=host_schemas.REPORT),
]

#: Reading one's own, and what everybody may know.
_FOR_READERS = (
    "flavors:index", "flavors:show", "os-flavor-extra-specs:index", "os-flavor-extra-specs:show",
    "servers:index", "servers:detail", "servers:show", "server-metadata:index", "server-metadata:show",
    "os-server-tags:index", "ips:index", "os-instance-actions:list", "os-instance-actions:show",
    "os-availability-zone:list", "os-keypairs:index", "os-keypairs:show", "limits", "os-quota-sets:show",
    "os-quota-sets:defaults", "os-quota-sets:detail", "os-simple-tenant-usage:show", "os-server-groups:index",
    "os-server-groups:show",
)  # fmt: skip
#: Changing one's own.
_FOR_MEMBERS = (
    "servers:create", "servers:update", "servers:delete", "servers:action", "servers:start", "servers:stop",
    "servers:reboot", "os-pause-server:pause", "os-pause-server:unpause", "os-lock-server:lock",
    "os-lock-server:unlock", "os-console-output", "os-deferred-delete:force", "server-metadata:create",
    "server-metadata:update", "server-metadata:update_all", "server-metadata:delete", "os-keypairs:create",
    "os-keypairs:delete", "os-server-groups:create", "os-server-groups:delete",
)  # fmt: skip
#: What reservations and accelerators need of compute, besides administrators.
_FOR_SERVICES = (
    "servers:index:get_all_tenants", "servers:detail:get_all_tenants", "os-extended-server-attributes",
    "servers:show:host_status", "os-flavor-manage:create", "os-flavor-manage:update", "os-flavor-manage:delete",
    "os-flavor-extra-specs:create", "os-flavor-extra-specs:update", "os-flavor-extra-specs:delete", "os-flavor-access",
    "os-flavor-access:change", "os-hypervisors:list", "os-hypervisors:list-detail", "os-hypervisors:show",
    "os-hypervisors:search", "os-hypervisors:servers", "os-hypervisors:statistics", "os-services:list",
    "os-availability-zone:detail", "os-aggregates:index", "os-aggregates:show", "os-aggregates:create",
    "os-aggregates:update", "os-aggregates:delete", "os-aggregates:action", "os-aggregates:add_host",
    "os-aggregates:remove_host", "os-aggregates:set_metadata",
)  # fmt: skip
_FOR_ADMINS = (
    "servers:create:forced_host", "os-lock-server:unlock:unlock_override", "os-admin-actions:reset_state",
    "os-instance-actions:events", "os-services:update", "os-keypairs:others", "limits:other_project",
    "os-quota-sets:others", "os-quota-sets:update", "os-quota-sets:delete", "os-simple-tenant-usage:list",
)  # fmt: skip

RULES = RuleTable(
    {_OWN + name: reader for name in _FOR_READERS}
    | {_OWN + name: member for name in _FOR_MEMBERS}
    | {_OWN + name: admin_or_service for name in _FOR_SERVICES}
    | {_OWN + name: admin for name in _FOR_ADMINS}
    | {AGENT_RULE: admin_or_service}
)

API: ServiceApi[ComputeService] = ServiceApi(
    name="compute",
    routes=[*_VERSIONS, *_FLAVORS, *_SERVERS, *_HOSTS, *_PROJECTS, *_AGENTS],
    error_shape=error,
    versions=versions.VERSIONS,
    word_schema_error=word_schema_error,
)
