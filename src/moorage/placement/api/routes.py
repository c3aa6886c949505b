"""The route table of Placement 1.0 to 1.39, and who may do what."""

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
from moorage.placement.api.handlers.agents import CHECKS, for_agents_too
from moorage.placement.api.handlers.answers import reads, word_body_error
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
        "GET", path, reads(for_agents_too(handler)), f"placement:{rule}", since=Version(1, minor), reads="none"
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
        for_agents_too(handler),
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
    _get("/resource_providers", providers.index, "resource_providers:list"),
    _post("/resource_providers", providers.create, "resource_providers:create", schema=provider_schemas.CREATE),
    _get(_PROVIDER, providers.show, "resource_providers:show"),
    _put(
        _PROVIDER,
        providers.update,
        "resource_providers:update",
        schema=provider_schemas.UPDATE,
        before_schema=providers.exists,
    ),
    _delete(_PROVIDER, providers.delete, "resource_providers:delete"),
    # inventories
    _get(f"{_PROVIDER}/inventories", inventories.index, "resource_providers:inventories:list"),
    _post(
        f"{_PROVIDER}/inventories",
        inventories.create,
        "resource_providers:inventories:create",
        schema=inventory_schemas.CREATE,
        before_schema=providers.exists,
    ),
    _put(
        f"{_PROVIDER}/inventories",
        inventories.replace,
        "resource_providers:inventories:update",
        schema=inventory_schemas.SET,
        before_schema=providers.exists,
    ),
    _delete(f"{_PROVIDER}/inventories", inventories.clear, "resource_providers:inventories:delete", 5),
    Route(
        "DELETE",
        f"{_PROVIDER}/inventories",
        for_agents_too(inventories.clear_unknown),
        "placement:resource_providers:inventories:delete",
        until=Version(1, 4),
        reads="none",
    ),
    _get(f"{_PROVIDER}/inventories/{{resource_class}}", inventories.show, "resource_providers:inventories:show"),
    _put(
        f"{_PROVIDER}/inventories/{{resource_class}}",
        inventories.update,
        "resource_providers:inventories:update",
        schema=inventory_schemas.UPDATE,
        before_schema=providers.exists,
    ),
    _delete(f"{_PROVIDER}/inventories/{{resource_class}}", inventories.delete, "resource_providers:inventories:delete"),
    # what else hangs on a provider
    _get(f"{_PROVIDER}/usages", allocations.provider_usages, "resource_providers:usages"),
    _get(f"{_PROVIDER}/aggregates", providers.show_aggregates, "resource_providers:aggregates:list", 1),
    _put(
        f"{_PROVIDER}/aggregates",
        providers.set_aggregates,
        "resource_providers:aggregates:update",
        1,
        schema=name_schemas.PROVIDER_AGGREGATES,
        before_schema=providers.exists,
    ),
    _get(f"{_PROVIDER}/traits", traits.of_provider, "resource_providers:traits:list", 6),
    _put(
        f"{_PROVIDER}/traits",
        traits.set_for_provider,
        "resource_providers:traits:update",
        6,
        schema=name_schemas.PROVIDER_TRAITS,
    ),
    _delete(f"{_PROVIDER}/traits", traits.clear_for_provider, "resource_providers:traits:delete", 6),
    _get(f"{_PROVIDER}/allocations", allocations.of_provider, "resource_providers:allocations:list"),
    # names
    _get("/resource_classes", resource_classes.index, "resource_classes:list", 2),
    _post(
        "/resource_classes",
        resource_classes.create,
        "resource_classes:create",
        2,
        schema=name_schemas.RESOURCE_CLASS,
    ),
    _get("/resource_classes/{name}", resource_classes.show, "resource_classes:show", 2),
    _put("/resource_classes/{name}", resource_classes.ensure, "resource_classes:update", 7),
    Route(
        "PUT",
        "/resource_classes/{name}",
        for_agents_too(resource_classes.rename),
        "placement:resource_classes:update",
        schema=name_schemas.RESOURCE_CLASS,
        since=Version(1, 2),
        until=Version(1, 6),
    ),
    _delete("/resource_classes/{name}", resource_classes.delete, "resource_classes:delete", 2),
    _get("/traits", traits.index, "traits:list", 6),
    Route(
        "GET", "/traits/{name}", for_agents_too(traits.show), "placement:traits:show", since=Version(1, 6), reads="none"
    ),
    _put("/traits/{name}", traits.create, "traits:update", 6),
    _delete("/traits/{name}", traits.delete, "traits:delete", 6),
    # who holds what
    _get("/allocations/{consumer_uuid}", allocations.of_consumer, "allocations:list"),
    _put(
        "/allocations/{consumer_uuid}",
        allocations.put,
        "allocations:update",
        schema=allocation_schemas.PUT,
        before_schema=allocations.check_uuid,
    ),
    _delete("/allocations/{consumer_uuid}", allocations.delete, "allocations:delete"),
    _post("/allocations", allocations.post, "allocations:manage", 13, schema=allocation_schemas.POST),
    _post("/reshaper", allocations.reshape, "reshaper:reshape", 30, schema=allocation_schemas.RESHAPE),
    _get("/usages", allocations.project_usages, "usages", 9),
    # who could
    _get("/allocation_candidates", candidates.index, "allocation_candidates:list", 10),
    _get("/moorage/v1/explain", candidates.explain, "allocation_candidates:list"),
    # all at a glance, and trees with what is held of them: as the events, for those who may see anybody's
    _get("/moorage/v1/survey", cloud_summary.show, "survey:show"),
    _get("/moorage/v1/trees", cloud_summary.index, "survey:show"),
    _get("/moorage/v1/trees/{uuid}", cloud_summary.tree, "survey:show"),
    # what changed: of all projects, so for those who may list anybody's allocations
    Route("GET", "/moorage/v1/events", for_agents_too(history.watch_changes), "placement:changes:list", reads="none"),
    _get("/moorage/v1/changes", history.list_changes, "changes:list"),
    _get("/moorage/v1/history/providers/{uuid}", history.provider, "history:show"),
    _get("/moorage/v1/history/providers/{uuid}/changes", history.provider_entries, "history:show"),
    _get("/moorage/v1/history/consumers/{consumer_uuid}", history.consumer, "history:show"),
    _get("/moorage/v1/history/consumers/{consumer_uuid}/changes", history.consumer_entries, "history:show"),
]
ROUTES.append(openapi_route(DOCUMENT_PATH, ROUTES, ABOUT, answers.VERSIONS))

API: ServiceApi[PlacementService] = ServiceApi(
    name="placement",
    routes=ROUTES,
    error_shape=error_shape,
    versions=answers.VERSIONS,
    schema_error_message=word_body_error,
    strict=True,
)

#: As the peer's new defaults: admins and services do everything, only services reshape.
_SPECIAL: dict[str, Rule] = {
    "placement:reshaper:reshape": service,
    "placement:usages": has_role("admin", "reader", "service"),
    allocations.ANY_PROJECT: admin_or_service,
}

#: Rules of routes that the agents of hosts use, too: as far as `for_agents_too` lets them.
_FOR_AGENTS = {route.rule for route in ROUTES if unwrap(route.handler) in CHECKS}

RULES = RuleTable(
    {route.rule: agent if route.rule in _FOR_AGENTS else admin_or_service for route in ROUTES if route.rule is not None}
    | _SPECIAL,
    refusal_text="Policy does not allow {rule} to be performed.",
)

#: Who may do what, by the name an operator chooses it by. The peer calls the first two its new and its old defaults:
#: with the old ones admins reshape too, and with the last everybody does everything.
POLICIES = {"new": RULES, "old": RULES.also_allowing(admin), "open": RULES.also_allowing(in_project)}
