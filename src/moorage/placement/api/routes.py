"""The route table of Placement 1.0 to 1.39, and the policy rules."""

from collections.abc import Callable
from functools import partial
from inspect import unwrap
from typing import Any

from moorage.identity.policy import Rule, RuleTable, admin, admin_or_service, agent, has_role, in_project, service
from moorage.placement.api.error_shape import error_shape
from moorage.placement.api.handlers import (
    allocations,
    answers,
    candidates,
    cloud_summary,
    history,
    inventories,
    providers,
    resource_classes,
    traits,
)
from moorage.placement.api.handlers.agents import CHECKS, with_agent_check
from moorage.placement.api.handlers.answers import body_error_text, with_stale_reads
from moorage.placement.api.openapi import ABOUT, DOCUMENT_PATH
from moorage.placement.api.schemas import allocation as allocation_schemas
from moorage.placement.api.schemas import inventory as inventory_schemas
from moorage.placement.api.schemas import names as name_schemas
from moorage.placement.api.schemas import provider as provider_schemas
from moorage.placement.service.service import PlacementService
from moorage.wire.app import ServiceApi
from moorage.wire.http import Response, Route
from moorage.wire.microversion import Version
from moorage.wire.openapi import openapi_route


def _get(path: str, handler: Callable[..., Response], rule: str, minor: int = 0) -> Route[PlacementService]:
    return Route(
        "GET",
        path,
        with_stale_reads(with_agent_check(handler)),
        f"placement:{rule}",
        since=Version(1, minor),
        reads="none",
    )


def _write(
    method: str,
    path: str,
    handler: Callable[..., Response],
    rule: str,
    minor: int = 0,
    schema: Any = None,
    before_schema: Callable[..., None] | None = None,
) -> Route[PlacementService]:
    return Route(
        method,
        path,
        with_agent_check(handler),
        f"placement:{rule}",
        schema=schema,
        since=Version(1, minor),
        before_schema=before_schema,
        reads="json" if schema is not None else "none",
    )


_post, _put, _delete = partial(_write, "POST"), partial(_write, "PUT"), partial(_write, "DELETE")

_PROVIDER = "/resource_providers/{uuid}"

ROUTES: list[Route[PlacementService]] = [
    Route("GET", "/", answers.show_versions, None, reads="none"),
    # providers
    _get("/resource_providers", providers.list_providers, "resource_providers:list"),
    _post(
        "/resource_providers", providers.create_provider, "resource_providers:create", schema=provider_schemas.CREATE
    ),
    _get(_PROVIDER, providers.show_provider, "resource_providers:show"),
    _put(
        _PROVIDER,
        providers.update_provider,
        "resource_providers:update",
        schema=provider_schemas.UPDATE,
        before_schema=providers.check_provider_exists,
    ),
    _delete(_PROVIDER, providers.delete_provider, "resource_providers:delete"),
    # inventories
    _get(f"{_PROVIDER}/inventories", inventories.list_inventories, "resource_providers:inventories:list"),
    _post(
        f"{_PROVIDER}/inventories",
        inventories.create_inventory,
        "resource_providers:inventories:create",
        schema=inventory_schemas.CREATE,
        before_schema=providers.check_provider_exists,
    ),
    _put(
        f"{_PROVIDER}/inventories",
        inventories.replace_inventories,
        "resource_providers:inventories:update",
        schema=inventory_schemas.SET,
        before_schema=providers.check_provider_exists,
    ),
    _delete(f"{_PROVIDER}/inventories", inventories.delete_inventories, "resource_providers:inventories:delete", 5),
    Route(
        "DELETE",
        f"{_PROVIDER}/inventories",
        with_agent_check(inventories.refuse_delete_inventories),
        "placement:resource_providers:inventories:delete",
        until=Version(1, 4),
        reads="none",
    ),
    _get(
        f"{_PROVIDER}/inventories/{{resource_class}}", inventories.show_inventory, "resource_providers:inventories:show"
    ),
    _put(
        f"{_PROVIDER}/inventories/{{resource_class}}",
        inventories.update_inventory,
        "resource_providers:inventories:update",
        schema=inventory_schemas.UPDATE,
        before_schema=providers.check_provider_exists,
    ),
    _delete(
        f"{_PROVIDER}/inventories/{{resource_class}}",
        inventories.delete_inventory,
        "resource_providers:inventories:delete",
    ),
    # usages, aggregates, traits and allocations of a provider
    _get(f"{_PROVIDER}/usages", allocations.provider_usages, "resource_providers:usages"),
    _get(f"{_PROVIDER}/aggregates", providers.show_aggregates, "resource_providers:aggregates:list", 1),
    _put(
        f"{_PROVIDER}/aggregates",
        providers.set_aggregates,
        "resource_providers:aggregates:update",
        1,
        schema=name_schemas.PROVIDER_AGGREGATES,
        before_schema=providers.check_provider_exists,
    ),
    _get(f"{_PROVIDER}/traits", traits.show_provider_traits, "resource_providers:traits:list", 6),
    _put(
        f"{_PROVIDER}/traits",
        traits.set_provider_traits,
        "resource_providers:traits:update",
        6,
        schema=name_schemas.PROVIDER_TRAITS,
    ),
    _delete(f"{_PROVIDER}/traits", traits.clear_provider_traits, "resource_providers:traits:delete", 6),
    _get(f"{_PROVIDER}/allocations", allocations.show_provider_allocations, "resource_providers:allocations:list"),
    # names
    _get("/resource_classes", resource_classes.list_classes, "resource_classes:list", 2),
    _post(
        "/resource_classes",
        resource_classes.create_class,
        "resource_classes:create",
        2,
        schema=name_schemas.RESOURCE_CLASS,
    ),
    _get("/resource_classes/{name}", resource_classes.show_class, "resource_classes:show", 2),
    _put("/resource_classes/{name}", resource_classes.ensure_class, "resource_classes:update", 7),
    Route(
        "PUT",
        "/resource_classes/{name}",
        with_agent_check(resource_classes.rename_class),
        "placement:resource_classes:update",
        schema=name_schemas.RESOURCE_CLASS,
        since=Version(1, 2),
        until=Version(1, 6),
    ),
    _delete("/resource_classes/{name}", resource_classes.delete_class, "resource_classes:delete", 2),
    _get("/traits", traits.list_traits, "traits:list", 6),
    Route(
        "GET",
        "/traits/{name}",
        with_agent_check(traits.show_trait),
        "placement:traits:show",
        since=Version(1, 6),
        reads="none",
    ),
    _put("/traits/{name}", traits.create_trait, "traits:update", 6),
    _delete("/traits/{name}", traits.delete_trait, "traits:delete", 6),
    # allocations
    _get("/allocations/{consumer_uuid}", allocations.show_consumer_allocations, "allocations:list"),
    _put(
        "/allocations/{consumer_uuid}",
        allocations.replace_consumer_allocations,
        "allocations:update",
        schema=allocation_schemas.PUT,
        before_schema=allocations.check_consumer_uuid,
    ),
    _delete("/allocations/{consumer_uuid}", allocations.delete_allocations, "allocations:delete"),
    _post("/allocations", allocations.replace_allocations, "allocations:manage", 13, schema=allocation_schemas.POST),
    _post("/reshaper", allocations.reshape, "reshaper:reshape", 30, schema=allocation_schemas.RESHAPE),
    _get("/usages", allocations.project_usages, "usages", 9),
    # candidates
    _get("/allocation_candidates", candidates.list_candidates, "allocation_candidates:list", 10),
    _get("/moorage/v1/explain", candidates.explain_candidates, "allocation_candidates:list"),
    # cloud summary and trees with their allocations: for callers that may see all projects, as for events
    _get("/moorage/v1/survey", cloud_summary.show_cloud_summary, "survey:show"),
    _get("/moorage/v1/trees", cloud_summary.list_trees, "survey:show"),
    _get("/moorage/v1/trees/{uuid}", cloud_summary.show_tree, "survey:show"),
    # changes of all projects: for callers that may list the allocations of all projects
    Route("GET", "/moorage/v1/events", with_agent_check(history.watch_changes), "placement:changes:list", reads="none"),
    _get("/moorage/v1/changes", history.list_changes, "changes:list"),
    _get("/moorage/v1/history/providers/{uuid}", history.show_provider_history, "history:show"),
    _get("/moorage/v1/history/providers/{uuid}/changes", history.list_provider_changes, "history:show"),
    _get("/moorage/v1/history/consumers/{consumer_uuid}", history.show_consumer_history, "history:show"),
    _get("/moorage/v1/history/consumers/{consumer_uuid}/changes", history.list_consumer_changes, "history:show"),
]
ROUTES.append(openapi_route(DOCUMENT_PATH, ROUTES, ABOUT, answers.VERSIONS))

API: ServiceApi[PlacementService] = ServiceApi(
    name="placement",
    routes=ROUTES,
    error_shape=error_shape,
    versions=answers.VERSIONS,
    schema_error_message=body_error_text,
    strict=True,
)

#: As the peer's new defaults: admins and services do everything, only services reshape.
_SPECIAL: dict[str, Rule] = {
    "placement:reshaper:reshape": service,
    "placement:usages": has_role("admin", "reader", "service"),
    allocations.ANY_PROJECT: admin_or_service,
}

#: Rules of routes that the agents of hosts use, too: as far as `with_agent_check` lets them.
_FOR_AGENTS = {route.rule for route in ROUTES if unwrap(route.handler) in CHECKS}

RULES = RuleTable(
    {route.rule: agent if route.rule in _FOR_AGENTS else admin_or_service for route in ROUTES if route.rule is not None}
    | _SPECIAL,
    refusal_text="Policy does not allow {rule} to be performed.",
)

#: Who may do what, by the name an operator chooses it by. The peer calls the first two its new and its old defaults:
#: with the old ones admins reshape too, and with the last everybody does everything.
POLICIES = {"new": RULES, "old": RULES.also_allowing(admin), "open": RULES.also_allowing(in_project)}
