"""The route table of the Compute API; the policy rules are in `policy_rules`.

Routes and actions that are refused with a message: `unsupported_routes` and `server_actions.NOT_BUILT`;
docs/wire/compute.md lists both.
"""

from collections.abc import Callable

from moorage.compute.api.handlers import (
    agents,
    aggregates,
    explanations,
    external_events,
    flavors,
    hypervisors,
    images,
    instance_actions,
    keypairs,
    migrations,
    quotas,
    server_actions,
    server_groups,
    server_subresources,
    servers,
    services,
    unsupported_routes,
    usages,
    versions,
)
from moorage.compute.api.handlers.views import check_query, error_response, word_schema_error
from moorage.compute.api.policy_rules import AGENT_RULE, EXPLAIN_RULE, MIGRATE_RULE, OWN, PROVIDER_CONFIG_RULE, RULES
from moorage.compute.api.schemas import actions as action_schemas
from moorage.compute.api.schemas import events as event_schemas
from moorage.compute.api.schemas import flavors as flavor_schemas
from moorage.compute.api.schemas import hosts as host_schemas
from moorage.compute.api.schemas import projects as project_schemas
from moorage.compute.api.schemas import queries
from moorage.compute.api.schemas import servers as server_schemas
from moorage.compute.service import ComputeService
from moorage.images.for_hosts import HostImages, image_routes
from moorage.jobs import job_api
from moorage.jobs.job_api import agent_route
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.http import Response, Route
from moorage.wire.microversion import Version

__all__ = ["AGENT_RULE", "API", "RULES"]


def _route(
    method: str,
    path: str,
    handler: Callable[..., Response],
    rule: str,
    schema: Schema | VersionedSchema | None = None,
    *,
    since: int | None = None,
    until: int | None = None,
    query: queries.KnownQuery | None = None,
) -> Route[ComputeService]:
    """`since`, `until`: minor microversions."""
    return Route(
        method,
        f"/v2.1{path}",
        handler,
        OWN + rule,
        schema=schema,
        since=None if since is None else Version(2, since),
        until=None if until is None else Version(2, until),
        before_schema=None if query is None else check_query(query),
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

_SERVER = "/servers/{server_id}"
_METADATA = f"{_SERVER}/metadata"
_TAGS = f"{_SERVER}/tags"
_SERVERS = [
    _route("GET", "/servers", servers.index, "servers:index", query=queries.SERVERS),
    _route("GET", "/servers/detail", servers.detail, "servers:detail", query=queries.SERVERS),
    _route("POST", "/servers", servers.create, "servers:create", server_schemas.CREATE),
    _route("GET", _SERVER, servers.show, "servers:show"),
    _route("PUT", _SERVER, servers.update, "servers:update", server_schemas.UPDATE),
    _route("DELETE", _SERVER, servers.delete, "servers:delete"),
    _route("POST", f"{_SERVER}/action", server_actions.act, "servers:action", server_schemas.ACTION),
    _route("GET", _METADATA, servers.index_metadata, "server-metadata:index"),
    _route("POST", _METADATA, servers.add_metadata, "server-metadata:create", server_schemas.METADATA),
    _route("PUT", _METADATA, servers.replace_metadata, "server-metadata:update_all", server_schemas.METADATA),
    _route("GET", _METADATA + "/{key}", servers.show_metadata_item, "server-metadata:show"),
    _route(
        "PUT", _METADATA + "/{key}", servers.set_metadata_item, "server-metadata:update", server_schemas.METADATA_ITEM
    ),
    _route("DELETE", _METADATA + "/{key}", servers.delete_metadata_item, "server-metadata:delete"),
    _route("GET", _TAGS, server_subresources.index_tags, "os-server-tags:index", since=26),
    _route("PUT", _TAGS, server_subresources.replace_tags, "os-server-tags:update_all", server_schemas.TAGS, since=26),
    _route("DELETE", _TAGS, server_subresources.remove_tags, "os-server-tags:delete_all", since=26),
    _route("GET", _TAGS + "/{tag}", server_subresources.show_tag, "os-server-tags:show", since=26),
    _route("PUT", _TAGS + "/{tag}", server_subresources.add_tag, "os-server-tags:update", since=26),
    _route("DELETE", _TAGS + "/{tag}", server_subresources.remove_tag, "os-server-tags:delete", since=26),
    _route("GET", f"{_SERVER}/ips", server_subresources.index_addresses, "ips:index"),
    _route("GET", _SERVER + "/ips/{label}", server_subresources.show_addresses, "ips:show"),
    _route("GET", f"{_SERVER}/os-interface", server_subresources.index_interfaces, "os-attach-interfaces:list"),
    _route("GET", _SERVER + "/os-interface/{key}", server_subresources.show_interface, "os-attach-interfaces:show"),
    _route(
        "POST", f"{_SERVER}/os-interface", server_subresources.attach_interface, "os-attach-interfaces:create",
        server_schemas.ATTACH_INTERFACE,
    ),
    _route(
        "DELETE", _SERVER + "/os-interface/{key}", server_subresources.detach_interface, "os-attach-interfaces:delete",
    ),
    _route(
        "GET", f"{_SERVER}/os-volume_attachments", server_subresources.index_volumes, "os-volumes-attachments:index",
    ),
    _route(
        "GET", _SERVER + "/os-volume_attachments/{key}", server_subresources.show_volume, "os-volumes-attachments:show",
    ),
    _route(
        "GET", f"{_SERVER}/os-security-groups", server_subresources.index_security_groups, "os-security-groups:list",
    ),
    _route("GET", f"{_SERVER}/shares", server_subresources.index_shares, "os-server-shares:index", since=97),
    _route("GET", _SERVER + "/shares/{key}", server_subresources.show_share, "os-server-shares:show", since=97),
    _route("GET", f"{_SERVER}/migrations", migrations.index_of_server, "servers:migrations:index", since=23),
    _route(
        "GET", _SERVER + "/migrations/{migration_id}", migrations.show_of_server, "servers:migrations:show", since=23,
    ),
    _route("GET", f"{_SERVER}/topology", server_subresources.topology, "server-topology:index", since=78),
    _route(
        "POST", f"{_SERVER}/remote-consoles", server_actions.create_console, "os-remote-consoles",
        action_schemas.REMOTE_CONSOLE, since=6,
    ),
    _route("GET", f"{_SERVER}/diagnostics", server_subresources.diagnostics, "os-server-diagnostics"),
    _route("GET", f"{_SERVER}/os-server-password", server_subresources.show_password, "os-server-password:show"),
    _route("DELETE", f"{_SERVER}/os-server-password", server_subresources.clear_password, "os-server-password:clear"),
    _route(
        "GET", f"{_SERVER}/os-instance-actions", instance_actions.index, "os-instance-actions:list",
        query=queries.INSTANCE_ACTIONS,
    ),
    _route("GET", _SERVER + "/os-instance-actions/{request_id}", instance_actions.show, "os-instance-actions:show"),
]  # fmt: skip

_HYPERVISOR = "/os-hypervisors/{hypervisor_id}"
_HOSTS = [
    _route("GET", "/os-hypervisors", hypervisors.index, "os-hypervisors:list", query=queries.HYPERVISORS),
    _route(
        "GET", "/os-hypervisors/detail", hypervisors.detail, "os-hypervisors:list-detail", query=queries.HYPERVISORS,
    ),
    _route("GET", "/os-hypervisors/statistics", hypervisors.statistics, "os-hypervisors:statistics", until=87),
    _route("GET", _HYPERVISOR, hypervisors.show, "os-hypervisors:show", query=queries.HYPERVISOR),
    _route("GET", f"{_HYPERVISOR}/search", hypervisors.search, "os-hypervisors:search", until=52),
    _route("GET", f"{_HYPERVISOR}/servers", hypervisors.servers, "os-hypervisors:servers", until=52),
    _route("GET", f"{_HYPERVISOR}/uptime", hypervisors.uptime, "os-hypervisors:uptime", until=87),
    _route("GET", "/os-services", services.index, "os-services:list", query=queries.SERVICES),
    _route(
        "PUT", "/os-services/{service_id}", services.update_named, "os-services:update", host_schemas.SERVICE_NAMED,
        until=52,
    ),
    _route("PUT", "/os-services/{service_id}", services.update, "os-services:update", host_schemas.SERVICE, since=53),
    _route("DELETE", "/os-services/{service_id}", services.delete, "os-services:delete"),
    _route("GET", "/os-hosts", services.index_hosts, "os-hosts:list", until=42),
    _route("GET", "/os-hosts/{host}", services.show_host, "os-hosts:show", until=42),
    _route("GET", "/os-availability-zone", aggregates.index_zones, "os-availability-zone:list"),
    _route("GET", "/os-availability-zone/detail", aggregates.detail_zones, "os-availability-zone:detail"),
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

_QUOTA_SET = "/os-quota-sets/{project_id}"
_QUOTA_CLASS = "/os-quota-class-sets/{name}"
_EVENTS = "os-server-external-events:create"
_PROJECTS = [
    _route("GET", "/os-keypairs", keypairs.index, "os-keypairs:index", query=queries.KEYPAIRS),
    _route("POST", "/os-keypairs", keypairs.create, "os-keypairs:create", project_schemas.KEYPAIR),
    _route("GET", "/os-keypairs/{name}", keypairs.show, "os-keypairs:show", query=queries.KEYPAIR),
    _route("DELETE", "/os-keypairs/{name}", keypairs.delete, "os-keypairs:delete", query=queries.KEYPAIR),
    _route("GET", "/limits", quotas.show_limits, "limits", query=queries.LIMITS),
    _route("GET", _QUOTA_SET, quotas.show, "os-quota-sets:show", query=queries.QUOTA_SETS),
    _route(
        "PUT", _QUOTA_SET, quotas.update, "os-quota-sets:update", project_schemas.QUOTA_SET, query=queries.QUOTA_SETS
    ),
    _route("DELETE", _QUOTA_SET, quotas.reset, "os-quota-sets:delete", query=queries.QUOTA_SETS),
    _route("GET", f"{_QUOTA_SET}/defaults", quotas.defaults, "os-quota-sets:defaults"),
    _route("GET", f"{_QUOTA_SET}/detail", quotas.detail, "os-quota-sets:detail", query=queries.QUOTA_SETS),
    _route("GET", _QUOTA_CLASS, quotas.show_class, "os-quota-class-sets:show"),
    _route("PUT", _QUOTA_CLASS, quotas.update_class, "os-quota-class-sets:update", project_schemas.QUOTA_CLASS_SET),
    _route("GET", "/os-simple-tenant-usage", usages.index, "os-simple-tenant-usage:list", query=queries.USAGES),
    _route(
        "GET", "/os-simple-tenant-usage/{project_id}", usages.show, "os-simple-tenant-usage:show", query=queries.USAGE
    ),
    _route("POST", "/os-server-external-events", external_events.create, _EVENTS, event_schemas.EVENTS),
    _route("GET", "/os-migrations", migrations.index, "os-migrations:index", query=queries.MIGRATIONS),
    _route("GET", "/extensions", versions.index_extensions, "extensions"),
    _route("GET", "/extensions/{alias}", versions.show_extension, "extensions"),
    _route("GET", "/os-server-groups", server_groups.index, "os-server-groups:index"),
    _route("POST", "/os-server-groups", server_groups.create, "os-server-groups:create", project_schemas.SERVER_GROUP),
    _route("GET", "/os-server-groups/{group_id}", server_groups.show, "os-server-groups:show"),
    _route("DELETE", "/os-server-groups/{group_id}", server_groups.delete, "os-server-groups:delete"),
]

_IMAGE = "/images/{image_id}"
_UNTIL, _METADATA_UNTIL = unsupported_routes.PROXIES_UNTIL, unsupported_routes.IMAGE_METADATA_UNTIL
_IMAGES = [
    _route("GET", "/images", images.index, "images:index", until=_UNTIL),
    _route("GET", "/images/detail", images.detail, "images:index", until=_UNTIL),
    _route("GET", _IMAGE, images.show, "images:show", until=_UNTIL),
    _route("GET", f"{_IMAGE}/metadata", images.index_metadata, "images:show", until=_METADATA_UNTIL),
    _route("GET", _IMAGE + "/metadata/{key}", images.show_metadata_item, "images:show", until=_METADATA_UNTIL),
]

_UNSUPPORTED = [
    _route(method, row.path, row.handler, "moorage:absent", since=row.since, until=row.until)
    for row in unsupported_routes.UNSUPPORTED_ROUTES
    for method in row.methods.split()
]


def images_for_hosts(service: ComputeService) -> HostImages:
    return service.images_for_hosts


_HOST = "/agent/v1/hosts/{host}"
_AGENTS: list[Route[ComputeService]] = [
    agent_route("PUT", _HOST, agents.register_host, AGENT_RULE, host_schemas.REGISTER, effect="routine"),
    agent_route("POST", f"{_HOST}/jobs", agents.claim_jobs, AGENT_RULE, job_api.CLAIM, effect="routine"),
    agent_route("GET", f"{_HOST}/servers", agents.expected_servers, AGENT_RULE),
    agent_route("GET", _HOST + "/servers/{server_id}", agents.server_on_host, AGENT_RULE),
    agent_route(
        "PUT",
        _HOST + "/servers/{server_id}/ports/{port_id}",
        agents.bind_device,
        AGENT_RULE,
        host_schemas.PORT_DEVICE,
    ),
    agent_route("POST", _HOST + "/servers/{server_id}/reboot", agents.reboot_server, AGENT_RULE),
    agent_route(
        "PUT", f"{_HOST}/domains", agents.report_domains, AGENT_RULE, host_schemas.DOMAIN_REPORT, effect="routine"
    ),
    agent_route(
        "PUT",
        f"{_HOST}/device-faults",
        agents.report_device_faults,
        AGENT_RULE,
        host_schemas.DEVICE_FAULTS,
        effect="routine",
    ),
    *image_routes(AGENT_RULE, images_for_hosts),
    agent_route("PUT", _HOST + "/images/{image_id}/file", agents.upload_disk_image, AGENT_RULE, reads="stream"),
    agent_route("DELETE", _HOST + "/images/{image_id}", agents.withdraw_disk_image, AGENT_RULE, reads="none"),
    agent_route("PUT", "/agent/v1/jobs/{job_id}", agents.report_job, AGENT_RULE, job_api.REPORT),
]

_OWN_ROUTES: list[Route[ComputeService]] = [
    Route(
        "POST",
        "/moorage/v1/explain-server",
        explanations.of_new_server,
        EXPLAIN_RULE,
        schema=server_schemas.EXPLAIN,
        effect="none",
    ),
    Route(
        "POST",
        "/moorage/v1/migrate-flavors",
        flavors.migrate_bare_metal_flavors,
        MIGRATE_RULE,
        schema=flavor_schemas.MIGRATE_FLAVORS,
    ),
    Route("GET", "/moorage/v1/servers/{server_id}/explanation", explanations.of_server, EXPLAIN_RULE),
    Route(
        "POST",
        "/moorage/v1/hosts/{host}/provider-config",
        agents.order_provider_config,
        PROVIDER_CONFIG_RULE,
        schema=host_schemas.PROVIDER_CONFIG_ORDER,
    ),
    Route(
        "GET",
        "/moorage/v1/hosts/{host}/provider-config/{order_id}",
        agents.show_provider_config_order,
        PROVIDER_CONFIG_RULE,
    ),
]

API: ServiceApi[ComputeService] = ServiceApi(
    name="compute",
    routes=[*_VERSIONS, *_FLAVORS, *_SERVERS, *_HOSTS, *_PROJECTS, *_IMAGES, *_UNSUPPORTED, *_AGENTS, *_OWN_ROUTES],
    error_shape=error_response,
    versions=versions.VERSIONS,
    schema_error_message=word_schema_error,
    # As Nova; its older clients read only the second one.
    request_id_headers=("x-openstack-request-id", "x-compute-request-id"),
)
