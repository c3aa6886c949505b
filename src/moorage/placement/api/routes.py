"""The route table of Placement 1.0 to 1.39 with the texts of its OpenAPI document, and the policy rules."""

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
    names,
    providers,
)
from moorage.placement.api.handlers.agents import CHECKS, with_agent_check
from moorage.placement.api.handlers.answers import body_error_text, with_stale_reads
from moorage.placement.api.schemas import allocation as allocation_schemas
from moorage.placement.api.schemas import answers as answer_schemas
from moorage.placement.api.schemas import candidate as candidate_schemas
from moorage.placement.api.schemas import event as event_schemas
from moorage.placement.api.schemas import inventory as inventory_schemas
from moorage.placement.api.schemas import names as name_schemas
from moorage.placement.api.schemas import provider as provider_schemas
from moorage.placement.api.schemas.common import TEXT, UUID
from moorage.placement.service.service import PlacementService
from moorage.wire.app import ServiceApi
from moorage.wire.http import OperationDoc, Response, ResponseDoc, Route
from moorage.wire.microversion import Version
from moorage.wire.openapi import ServiceDoc, openapi_route


def _get(
    path: str, handler: Callable[..., Response], rule: str, minor: int = 0, *, doc: OperationDoc
) -> Route[PlacementService]:
    return Route(
        "GET",
        path,
        with_stale_reads(with_agent_check(handler)),
        f"placement:{rule}",
        since=Version(1, minor),
        reads="none",
        doc=doc,
    )


def _write(
    method: str,
    path: str,
    handler: Callable[..., Response],
    rule: str,
    minor: int = 0,
    schema: Any = None,
    before_schema: Callable[..., None] | None = None,
    *,
    doc: OperationDoc,
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
        doc=doc,
    )


_post, _put, _delete = partial(_write, "POST"), partial(_write, "PUT"), partial(_write, "DELETE")

#: The path of the OpenAPI document.
DOCUMENT_PATH = "/moorage/v1/openapi.json"

ABOUT = ServiceDoc(
    title="Placement",
    description="Resource providers with their inventories, and consumers with their allocations: OpenStack's "
    "Placement API 1.0 to 1.39, and Moorage's own routes under `/moorage/v1`.",
    parameters={"uuid": UUID, "consumer_uuid": UUID, "name": TEXT, "resource_class": TEXT},
    error_schema=answer_schemas.REFUSAL,
)

# Parts of the operations' documentation.
_NO_CONTENT = {204: ResponseDoc("Done; no body.")}
_REPEATED = (
    "`required` (from 1.39) and `member_of` (from 1.24) may be repeated; then all of them must hold. Of other repeated "
    "parameters, one is used."
)
_GENERATION = (
    "Refused with 409 if `resource_provider_generation` is not the provider's generation: read the provider and retry."
)
_EXAMPLE_FILTER = {"resources": "VCPU:2,MEMORY_MB:512", "required": "HW_CPU_X86_VMX,!CUSTOM_MAGIC"}
_EXAMPLE_GROUPS = {
    **_EXAMPLE_FILTER,
    "resources_NET": "SRIOV_NET_VF:1",
    "resources1": "VGPU:1",
    "group_policy": "isolate",
    "root_required": "COMPUTE_NODE",
    "same_subtree": "_NET,1",
    "limit": "10",
}
_AT = {"at": "2026-03-01T09:30:00Z"}
_PERIOD = {"since": "2026-03-01T00:00:00Z", "until": "2026-03-02T00:00:00Z", "limit": "100"}

_PROVIDER = "/resource_providers/{uuid}"

ROUTES: list[Route[PlacementService]] = [
    Route("GET", "/", answers.show_versions, None, reads="none",
        doc=OperationDoc("Show the supported microversions", {200: ResponseDoc("The range.", answer_schemas.ROOT)})),
    # providers
    _get("/resource_providers", providers.list_providers, "resource_providers:list",
        doc=OperationDoc("List providers, filtered",
            {200: ResponseDoc("The providers that meet all conditions.", answer_schemas.PROVIDERS)},
            query=provider_schemas.LIST, example={**_EXAMPLE_FILTER, "name": "host-1"}, notes=_REPEATED)),
    _post("/resource_providers", providers.create_provider, "resource_providers:create", schema=provider_schemas.CREATE,
        doc=OperationDoc("Create a provider",
            {200: ResponseDoc("Created, from 1.20 on.", answer_schemas.CREATED_PROVIDER),
             201: ResponseDoc("Created, until 1.19; the header `location` has its URL.")})),
    _get(_PROVIDER, providers.show_provider, "resource_providers:show",
        doc=OperationDoc("Show a provider", {200: ResponseDoc("The provider.", answer_schemas.PROVIDER)})),
    _put(_PROVIDER, providers.update_provider, "resource_providers:update", schema=provider_schemas.UPDATE,
        before_schema=providers.check_provider_exists,
        doc=OperationDoc("Rename a provider; from 1.14 on, set its parent; from 1.37 on, change or remove its parent",
            {200: ResponseDoc("The provider after the change.", answer_schemas.PROVIDER)})),
    _delete(_PROVIDER, providers.delete_provider, "resource_providers:delete",
        doc=OperationDoc("Delete a provider that has no children and no allocations", _NO_CONTENT)),
    # inventories
    _get(f"{_PROVIDER}/inventories", inventories.list_inventories, "resource_providers:inventories:list",
        doc=OperationDoc("Show the inventories of a provider",
            {200: ResponseDoc("The inventories, by resource class.", answer_schemas.INVENTORIES)})),
    _post(f"{_PROVIDER}/inventories", inventories.create_inventory, "resource_providers:inventories:create",
        schema=inventory_schemas.CREATE, before_schema=providers.check_provider_exists,
        doc=OperationDoc("Add one inventory", {201: ResponseDoc("The added inventory.", answer_schemas.INVENTORY)})),
    _put(f"{_PROVIDER}/inventories", inventories.replace_inventories, "resource_providers:inventories:update",
        schema=inventory_schemas.SET, before_schema=providers.check_provider_exists,
        doc=OperationDoc("Replace all inventories",
            {200: ResponseDoc("The inventories after the change.", answer_schemas.INVENTORIES)}, notes=_GENERATION)),
    _delete(f"{_PROVIDER}/inventories", inventories.delete_inventories, "resource_providers:inventories:delete", 5,
        doc=OperationDoc("Delete all inventories; before 1.5, the method is refused with 405", _NO_CONTENT,
            error_statuses=frozenset({405}))),
    Route("DELETE", f"{_PROVIDER}/inventories", with_agent_check(inventories.refuse_delete_inventories),
        "placement:resource_providers:inventories:delete", until=Version(1, 4), reads="none"),
    _get(f"{_PROVIDER}/inventories/{{resource_class}}", inventories.show_inventory,
        "resource_providers:inventories:show",
        doc=OperationDoc("Show one inventory", {200: ResponseDoc("The inventory.", answer_schemas.INVENTORY)})),
    _put(f"{_PROVIDER}/inventories/{{resource_class}}", inventories.update_inventory,
        "resource_providers:inventories:update", schema=inventory_schemas.UPDATE,
        before_schema=providers.check_provider_exists,
        doc=OperationDoc("Replace one inventory",
            {200: ResponseDoc("The inventory after the change.", answer_schemas.INVENTORY)}, notes=_GENERATION)),
    _delete(f"{_PROVIDER}/inventories/{{resource_class}}", inventories.delete_inventory,
        "resource_providers:inventories:delete",
        doc=OperationDoc("Delete one inventory", _NO_CONTENT)),
    # usages, aggregates, traits and allocations of a provider
    _get(f"{_PROVIDER}/usages", allocations.provider_usages, "resource_providers:usages",
        doc=OperationDoc("Show the usages of a provider",
            {200: ResponseDoc("Units in use, by resource class.", answer_schemas.PROVIDER_USAGES)})),
    _get(f"{_PROVIDER}/aggregates", providers.show_aggregates, "resource_providers:aggregates:list", 1,
        doc=OperationDoc("Show the aggregates of a provider",
            {200: ResponseDoc("The uuids of the aggregates.", answer_schemas.AGGREGATES)})),
    _put(f"{_PROVIDER}/aggregates", providers.set_aggregates, "resource_providers:aggregates:update", 1,
        schema=name_schemas.PROVIDER_AGGREGATES, before_schema=providers.check_provider_exists,
        doc=OperationDoc("Replace the aggregates of a provider",
            {200: ResponseDoc("The aggregates after the change.", answer_schemas.AGGREGATES)},
            notes=f"From 1.19 on: {_GENERATION}")),
    _get(f"{_PROVIDER}/traits", names.show_provider_traits, "resource_providers:traits:list", 6,
        doc=OperationDoc("Show the traits of a provider",
            {200: ResponseDoc("The names of the traits.", answer_schemas.PROVIDER_TRAITS)})),
    _put(f"{_PROVIDER}/traits", names.set_provider_traits, "resource_providers:traits:update", 6,
        schema=name_schemas.PROVIDER_TRAITS,
        doc=OperationDoc("Replace the traits of a provider",
            {200: ResponseDoc("The traits after the change.", answer_schemas.PROVIDER_TRAITS)}, notes=_GENERATION)),
    _delete(f"{_PROVIDER}/traits", names.clear_provider_traits, "resource_providers:traits:delete", 6,
        doc=OperationDoc("Remove all traits of a provider", _NO_CONTENT)),
    _get(f"{_PROVIDER}/allocations", allocations.show_provider_allocations, "resource_providers:allocations:list",
        doc=OperationDoc("Show the allocations of a provider",
            {200: ResponseDoc("The allocations, by consumer.", answer_schemas.PROVIDER_ALLOCATIONS)})),
    # names
    _get("/resource_classes", names.list_classes, "resource_classes:list", 2,
        doc=OperationDoc("List resource classes",
            {200: ResponseDoc("All resource classes.", answer_schemas.RESOURCE_CLASSES)})),
    _post("/resource_classes", names.create_class, "resource_classes:create", 2,
        schema=name_schemas.RESOURCE_CLASS,
        doc=OperationDoc("Create a resource class", {201: ResponseDoc("Created.")})),
    _get("/resource_classes/{name}", names.show_class, "resource_classes:show", 2,
        doc=OperationDoc("Show a resource class",
            {200: ResponseDoc("The resource class.", answer_schemas.RESOURCE_CLASS)})),
    _put("/resource_classes/{name}", names.ensure_class, "resource_classes:update", 7,
        doc=OperationDoc("Create a resource class unless it exists; until 1.6, rename it",
            {200: ResponseDoc("Renamed, until 1.6.", answer_schemas.RESOURCE_CLASS),
             201: ResponseDoc("Created, from 1.7 on."),
             204: ResponseDoc("It existed already, from 1.7 on.")})),
    Route("PUT", "/resource_classes/{name}", with_agent_check(names.rename_class),
        "placement:resource_classes:update", schema=name_schemas.RESOURCE_CLASS, since=Version(1, 2),
        until=Version(1, 6)),
    _delete("/resource_classes/{name}", names.delete_class, "resource_classes:delete", 2,
        doc=OperationDoc("Delete a custom resource class without inventories", _NO_CONTENT)),
    _get("/traits", names.list_traits, "traits:list", 6,
        doc=OperationDoc("List traits", {200: ResponseDoc("The names of the traits.", answer_schemas.TRAITS)},
            query=name_schemas.LIST_TRAITS, example={"name": "startswith:CUSTOM_", "associated": "true"})),
    Route("GET", "/traits/{name}", with_agent_check(names.show_trait), "placement:traits:show", since=Version(1, 6),
        reads="none",
        doc=OperationDoc("Check whether a trait exists", {204: ResponseDoc("The trait exists.")})),
    _put("/traits/{name}", names.create_trait, "traits:update", 6,
        doc=OperationDoc("Create a trait unless it exists",
            {201: ResponseDoc("Created."), 204: ResponseDoc("It existed already.")})),
    _delete("/traits/{name}", names.delete_trait, "traits:delete", 6,
        doc=OperationDoc("Delete a custom trait that no provider has", _NO_CONTENT)),
    # allocations
    _get("/allocations/{consumer_uuid}", allocations.show_consumer_allocations, "allocations:list",
        doc=OperationDoc("Show the allocations of a consumer",
            {200: ResponseDoc("The allocations, by provider.", answer_schemas.CONSUMER_ALLOCATIONS)})),
    _put("/allocations/{consumer_uuid}", allocations.replace_consumer_allocations, "allocations:update",
        schema=allocation_schemas.PUT, before_schema=allocations.check_consumer_uuid,
        doc=OperationDoc("Replace the allocations of a consumer", _NO_CONTENT,
            notes="Refused with 409 if something does not fit, or if `consumer_generation` (from 1.28) is not the "
            "consumer's generation; it is null for a consumer without allocations.")),
    _delete("/allocations/{consumer_uuid}", allocations.delete_allocations, "allocations:delete",
        doc=OperationDoc("Release all allocations of a consumer", _NO_CONTENT)),
    _post("/allocations", allocations.replace_allocations, "allocations:manage", 13, schema=allocation_schemas.POST,
        doc=OperationDoc("Replace the allocations of several consumers: all or none", _NO_CONTENT)),
    _post("/reshaper", allocations.reshape, "reshaper:reshape", 30, schema=allocation_schemas.RESHAPE,
        doc=OperationDoc("Move inventories and allocations between providers: all or none", _NO_CONTENT)),
    _get("/usages", allocations.project_usages, "usages", 9,
        doc=OperationDoc("Show the usages of a project, or of one of its users",
            {200: ResponseDoc("Units by resource class; from 1.38 on, by consumer type and class.",
                              answer_schemas.USAGES)}, query=allocation_schemas.USAGES,
            example={"project_id": "a-project", "user_id": "a-user", "consumer_type": "INSTANCE"})),
    # candidates
    _get("/allocation_candidates", candidates.list_candidates, "allocation_candidates:list", 10,
        doc=OperationDoc("Find allocation candidates",
            {200: ResponseDoc("Allocation requests, as PUT /allocations accepts them, and summaries of their "
                              "providers.", answer_schemas.CANDIDATES)},
            query=candidate_schemas.LIST, example=_EXAMPLE_GROUPS, notes=_REPEATED)),
    _get("/moorage/v1/explain", candidates.explain_candidates, "allocation_candidates:list",
        doc=OperationDoc("Explain the result of a search for candidates",
            {200: ResponseDoc("The number of hosts that each constraint removed, in order.",
                              answer_schemas.EXPLANATION)}, query=candidate_schemas.LIST, example=_EXAMPLE_GROUPS,
            notes="The query is that of GET /allocation_candidates; without a microversion, the newest applies.")),
    # cloud summary and trees with their allocations: for callers that may see all projects, as for events
    _get("/moorage/v1/survey", cloud_summary.show_cloud_summary, "survey:show",
        doc=OperationDoc("Show a summary of the whole cloud",
            {200: ResponseDoc("Numbers of trees and providers, and their totals by resource class.",
                              answer_schemas.SURVEY)}, query=event_schemas.SURVEY,
            example={"resource_class": "VCPU,MEMORY_MB"},
            notes="Contains at most 100 classes and 200 aggregates, those with the most providers. For each aggregate, "
            "it has the totals of the classes in `resource_class`; without that parameter, of the 8 most frequent "
            "classes.")),
    _get("/moorage/v1/trees", cloud_summary.list_trees, "survey:show",
        doc=OperationDoc("List a page of provider trees",
            {200: ResponseDoc("The trees, by the names of their roots.", answer_schemas.TREES)},
            query=event_schemas.TREES, example={"search": "rack1", "resource_class": "VCPU", "limit": "50"},
            notes="A provider of the tree must have `search` in its name or at the beginning of its uuid; one must be "
            "in the aggregate `member_of`, one must have inventory of `resource_class`, and one must have the trait "
            "`required`. `next` is the `after` of the next page; null on the last page.")),
    _get("/moorage/v1/trees/{uuid}", cloud_summary.show_tree, "survey:show",
        doc=OperationDoc("Show the tree that contains a provider, with its allocations",
            {200: ResponseDoc("The root first, parents before children.", answer_schemas.TREE)},
            query=event_schemas.TREE, example=_AT,
            notes="With `at`, the past states of the providers that are in the tree now; `holders` is null. Contains "
            "at most 2,000 allocations: `is_cut` is true if there are more.", error_statuses=frozenset({410}))),
    # changes of all projects: for callers that may list the allocations of all projects
    Route("GET", "/moorage/v1/events", with_agent_check(history.watch_changes), "placement:changes:list", reads="none",
        doc=OperationDoc("Follow changes as server-sent events",
            {200: ResponseDoc("Events in the order of commits, until the answer ends.",
                              answer_schemas.TEXT_BODY, "text/event-stream")}, query=event_schemas.EVENTS,
            example={"since": "0", "kind": "provider,usages"},
            notes="Resumes after the id in the header Last-Event-ID, else after `since`; without either, begins with "
            "the next change. An answer ends after some seconds: reconnect.", error_statuses=frozenset({410}))),
    _get("/moorage/v1/changes", history.list_changes, "changes:list",
        doc=OperationDoc("List a page of changes",
            {200: ResponseDoc("The changes, in the order of commits.", answer_schemas.CHANGES)},
            query=event_schemas.CHANGES, example={"since": "0", "limit": "100"},
            notes="Without `since`, begins with the oldest retained change. `next` is the `since` of the next page.",
            error_statuses=frozenset({410}))),
    _get("/moorage/v1/history/providers/{uuid}", history.show_provider_history, "history:show",
        doc=OperationDoc("Show a past state of a provider",
            {200: ResponseDoc("The state at that time.", answer_schemas.STATE)}, query=event_schemas.STATE, example=_AT,
            notes="Without `at`, the present state. 410 for a time before the retained history.",
            error_statuses=frozenset({410}))),
    _get("/moorage/v1/history/providers/{uuid}/changes", history.list_provider_changes, "history:show",
        doc=OperationDoc("List the changes of a provider",
            {200: ResponseDoc("The changes, in the order of commits.", answer_schemas.ENTRIES)},
            query=event_schemas.ENTRIES, example=_PERIOD,
            notes="`next` is the `after` of the next page; null on the last page.", error_statuses=frozenset({410}))),
    _get("/moorage/v1/history/consumers/{consumer_uuid}", history.show_consumer_history, "history:show",
        doc=OperationDoc("Show past allocations of a consumer",
            {200: ResponseDoc("The state at that time.", answer_schemas.STATE)}, query=event_schemas.STATE, example=_AT,
            notes="Without `at`, the present state. 410 for a time before the retained history.",
            error_statuses=frozenset({410}))),
    _get("/moorage/v1/history/consumers/{consumer_uuid}/changes", history.list_consumer_changes, "history:show",
        doc=OperationDoc("List the changes of a consumer",
            {200: ResponseDoc("The changes, in the order of commits.", answer_schemas.ENTRIES)},
            query=event_schemas.ENTRIES, example=_PERIOD,
            notes="`next` is the `after` of the next page; null on the last page.", error_statuses=frozenset({410}))),
]  # fmt: skip
ROUTES.append(
    openapi_route(
        DOCUMENT_PATH,
        ROUTES,
        ABOUT,
        answers.VERSIONS,
        OperationDoc(
            "This document, for the microversion in the request, or for all",
            {200: ResponseDoc("OpenAPI 3.1.", answer_schemas.ANYTHING)},
        ),
    )
)

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
