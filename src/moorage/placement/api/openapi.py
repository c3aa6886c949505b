"""The texts of the published OpenAPI document; paths and schemas come from the route table."""

from moorage.placement.api.schemas import allocation, answers, candidate, event, names, provider
from moorage.placement.api.schemas.common import TEXT, UUID
from moorage.wire.openapi import OperationDoc, ResponseDoc, ServiceDoc

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

_PROVIDERS = {
    "GET /resource_providers": OperationDoc(
        "List providers, filtered",
        {200: ResponseDoc("The providers that meet all conditions.", answers.PROVIDERS)},
        query=provider.LIST,
        example={**_EXAMPLE_FILTER, "name": "host-1"},
        notes=_REPEATED,
    ),
    "POST /resource_providers": OperationDoc(
        "Create a provider",
        {
            200: ResponseDoc("Created, from 1.20 on.", answers.CREATED_PROVIDER),
            201: ResponseDoc("Created, until 1.19; the header `location` has its URL."),
        },
    ),
    "GET /resource_providers/{uuid}": OperationDoc(
        "Show a provider", {200: ResponseDoc("The provider.", answers.PROVIDER)}
    ),
    "PUT /resource_providers/{uuid}": OperationDoc(
        "Rename a provider; from 1.14 on, set its parent; from 1.37 on, change or remove its parent",
        {200: ResponseDoc("The provider after the change.", answers.PROVIDER)},
    ),
    "DELETE /resource_providers/{uuid}": OperationDoc(
        "Delete a provider that has no children and no allocations", _NO_CONTENT
    ),
    "GET /resource_providers/{uuid}/inventories": OperationDoc(
        "Show the inventories of a provider",
        {200: ResponseDoc("The inventories, by resource class.", answers.INVENTORIES)},
    ),
    "POST /resource_providers/{uuid}/inventories": OperationDoc(
        "Add one inventory", {201: ResponseDoc("The added inventory.", answers.INVENTORY)}
    ),
    "PUT /resource_providers/{uuid}/inventories": OperationDoc(
        "Replace all inventories",
        {200: ResponseDoc("The inventories after the change.", answers.INVENTORIES)},
        notes=_GENERATION,
    ),
    "DELETE /resource_providers/{uuid}/inventories": OperationDoc(
        "Delete all inventories; before 1.5, the method is refused with 405",
        _NO_CONTENT,
        error_statuses=frozenset({405}),
    ),
    "GET /resource_providers/{uuid}/inventories/{resource_class}": OperationDoc(
        "Show one inventory", {200: ResponseDoc("The inventory.", answers.INVENTORY)}
    ),
    "PUT /resource_providers/{uuid}/inventories/{resource_class}": OperationDoc(
        "Replace one inventory",
        {200: ResponseDoc("The inventory after the change.", answers.INVENTORY)},
        notes=_GENERATION,
    ),
    "DELETE /resource_providers/{uuid}/inventories/{resource_class}": OperationDoc("Delete one inventory", _NO_CONTENT),
    "GET /resource_providers/{uuid}/usages": OperationDoc(
        "Show the usages of a provider", {200: ResponseDoc("Units in use, by resource class.", answers.PROVIDER_USAGES)}
    ),
    "GET /resource_providers/{uuid}/aggregates": OperationDoc(
        "Show the aggregates of a provider", {200: ResponseDoc("The uuids of the aggregates.", answers.AGGREGATES)}
    ),
    "PUT /resource_providers/{uuid}/aggregates": OperationDoc(
        "Replace the aggregates of a provider",
        {200: ResponseDoc("The aggregates after the change.", answers.AGGREGATES)},
        notes=f"From 1.19 on: {_GENERATION}",
    ),
    "GET /resource_providers/{uuid}/traits": OperationDoc(
        "Show the traits of a provider", {200: ResponseDoc("The names of the traits.", answers.PROVIDER_TRAITS)}
    ),
    "PUT /resource_providers/{uuid}/traits": OperationDoc(
        "Replace the traits of a provider",
        {200: ResponseDoc("The traits after the change.", answers.PROVIDER_TRAITS)},
        notes=_GENERATION,
    ),
    "DELETE /resource_providers/{uuid}/traits": OperationDoc("Remove all traits of a provider", _NO_CONTENT),
    "GET /resource_providers/{uuid}/allocations": OperationDoc(
        "Show the allocations of a provider",
        {200: ResponseDoc("The allocations, by consumer.", answers.PROVIDER_ALLOCATIONS)},
    ),
}

_NAMES = {
    "GET /resource_classes": OperationDoc(
        "List resource classes", {200: ResponseDoc("All resource classes.", answers.RESOURCE_CLASSES)}
    ),
    "POST /resource_classes": OperationDoc("Create a resource class", {201: ResponseDoc("Created.")}),
    "GET /resource_classes/{name}": OperationDoc(
        "Show a resource class", {200: ResponseDoc("The resource class.", answers.RESOURCE_CLASS)}
    ),
    "PUT /resource_classes/{name}": OperationDoc(
        "Create a resource class unless it exists; until 1.6, rename it",
        {
            200: ResponseDoc("Renamed, until 1.6.", answers.RESOURCE_CLASS),
            201: ResponseDoc("Created, from 1.7 on."),
            204: ResponseDoc("It existed already, from 1.7 on."),
        },
    ),
    "DELETE /resource_classes/{name}": OperationDoc("Delete a custom resource class without inventories", _NO_CONTENT),
    "GET /traits": OperationDoc(
        "List traits",
        {200: ResponseDoc("The names of the traits.", answers.TRAITS)},
        query=names.LIST_TRAITS,
        example={"name": "startswith:CUSTOM_", "associated": "true"},
    ),
    "GET /traits/{name}": OperationDoc("Check whether a trait exists", {204: ResponseDoc("The trait exists.")}),
    "PUT /traits/{name}": OperationDoc(
        "Create a trait unless it exists", {201: ResponseDoc("Created."), 204: ResponseDoc("It existed already.")}
    ),
    "DELETE /traits/{name}": OperationDoc("Delete a custom trait that no provider has", _NO_CONTENT),
}

_ALLOCATIONS = {
    "GET /allocations/{consumer_uuid}": OperationDoc(
        "Show the allocations of a consumer",
        {200: ResponseDoc("The allocations, by provider.", answers.CONSUMER_ALLOCATIONS)},
    ),
    "PUT /allocations/{consumer_uuid}": OperationDoc(
        "Replace the allocations of a consumer",
        _NO_CONTENT,
        notes="Refused with 409 if something does not fit, or if `consumer_generation` (from 1.28) is not the "
        "consumer's generation; it is null for a consumer without allocations.",
    ),
    "DELETE /allocations/{consumer_uuid}": OperationDoc("Release all allocations of a consumer", _NO_CONTENT),
    "POST /allocations": OperationDoc("Replace the allocations of several consumers: all or none", _NO_CONTENT),
    "POST /reshaper": OperationDoc("Move inventories and allocations between providers: all or none", _NO_CONTENT),
    "GET /usages": OperationDoc(
        "Show the usages of a project, or of one of its users",
        {200: ResponseDoc("Units by resource class; from 1.38 on, by consumer type and class.", answers.USAGES)},
        query=allocation.USAGES,
        example={"project_id": "a-project", "user_id": "a-user", "consumer_type": "INSTANCE"},
    ),
    "GET /allocation_candidates": OperationDoc(
        "Find allocation candidates",
        {
            200: ResponseDoc(
                "Allocation requests, as PUT /allocations accepts them, and summaries of their providers.",
                answers.CANDIDATES,
            )
        },
        query=candidate.LIST,
        example=_EXAMPLE_GROUPS,
        notes=_REPEATED,
    ),
}

_AT = {"at": "2026-03-01T09:30:00Z"}
_PERIOD = {"since": "2026-03-01T00:00:00Z", "until": "2026-03-02T00:00:00Z", "limit": "100"}
_OURS = {
    "GET /": OperationDoc("Show the supported microversions", {200: ResponseDoc("The range.", answers.ROOT)}),
    "GET /moorage/v1/explain": OperationDoc(
        "Explain the result of a search for candidates",
        {200: ResponseDoc("The number of hosts that each constraint removed, in order.", answers.EXPLANATION)},
        query=candidate.LIST,
        example=_EXAMPLE_GROUPS,
        notes="The query is that of GET /allocation_candidates; without a microversion, the newest applies.",
    ),
    "GET /moorage/v1/survey": OperationDoc(
        "Show a summary of the whole cloud",
        {200: ResponseDoc("Numbers of trees and providers, and their totals by resource class.", answers.SURVEY)},
        query=event.SURVEY,
        example={"resource_class": "VCPU,MEMORY_MB"},
        notes="Contains at most 100 classes and 200 aggregates, those with the most providers. For each aggregate, it "
        "has the totals of the classes in `resource_class`; without that parameter, of the 8 most frequent classes.",
    ),
    "GET /moorage/v1/trees": OperationDoc(
        "List a page of provider trees",
        {200: ResponseDoc("The trees, by the names of their roots.", answers.TREES)},
        query=event.TREES,
        example={"search": "rack1", "resource_class": "VCPU", "limit": "50"},
        notes="A provider of the tree must have `search` in its name or at the beginning of its uuid; one must be in "
        "the aggregate `member_of`, one must have inventory of `resource_class`, and one must have the trait "
        "`required`. `next` is the `after` of the next page; null on the last page.",
    ),
    "GET /moorage/v1/trees/{uuid}": OperationDoc(
        "Show the tree that contains a provider, with its allocations",
        {200: ResponseDoc("The root first, parents before children.", answers.TREE)},
        query=event.TREE,
        example=_AT,
        notes="With `at`, the past states of the providers that are in the tree now; `holders` is null. Contains at "
        "most 2,000 allocations: `is_cut` is true if there are more.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/events": OperationDoc(
        "Follow changes as server-sent events",
        {
            200: ResponseDoc(
                "Events in the order of commits, until the answer ends.", answers.TEXT_BODY, "text/event-stream"
            )
        },
        query=event.EVENTS,
        example={"since": "0", "kind": "provider,usages"},
        notes="Resumes after the id in the header Last-Event-ID, else after `since`; without either, begins with the "
        "next change. An answer ends after some seconds: reconnect.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/changes": OperationDoc(
        "List a page of changes",
        {200: ResponseDoc("The changes, in the order of commits.", answers.CHANGES)},
        query=event.CHANGES,
        example={"since": "0", "limit": "100"},
        notes="Without `since`, begins with the oldest retained change. `next` is the `since` of the next page.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/providers/{uuid}": OperationDoc(
        "Show a past state of a provider",
        {200: ResponseDoc("The state at that time.", answers.STATE)},
        query=event.STATE,
        example=_AT,
        notes="Without `at`, the present state. 410 for a time before the retained history.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/providers/{uuid}/changes": OperationDoc(
        "List the changes of a provider",
        {200: ResponseDoc("The changes, in the order of commits.", answers.ENTRIES)},
        query=event.ENTRIES,
        example=_PERIOD,
        notes="`next` is the `after` of the next page; null on the last page.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/consumers/{consumer_uuid}": OperationDoc(
        "Show past allocations of a consumer",
        {200: ResponseDoc("The state at that time.", answers.STATE)},
        query=event.STATE,
        example=_AT,
        notes="Without `at`, the present state. 410 for a time before the retained history.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/consumers/{consumer_uuid}/changes": OperationDoc(
        "List the changes of a consumer",
        {200: ResponseDoc("The changes, in the order of commits.", answers.ENTRIES)},
        query=event.ENTRIES,
        example=_PERIOD,
        notes="`next` is the `after` of the next page; null on the last page.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/openapi.json": OperationDoc(
        "This document, for the microversion in the request, or for all",
        {200: ResponseDoc("OpenAPI 3.1.", answers.ANYTHING)},
    ),
}

#: The path of this document.
DOCUMENT_PATH = "/moorage/v1/openapi.json"

ABOUT = ServiceDoc(
    title="Placement",
    description="Resource providers with their inventories, and consumers with their allocations: OpenStack's "
    "Placement API 1.0 to 1.39, and Moorage's own routes under `/moorage/v1`.",
    operations=_PROVIDERS | _NAMES | _ALLOCATIONS | _OURS,
    parameters={"uuid": UUID, "consumer_uuid": UUID, "name": TEXT, "resource_class": TEXT},
    error_schema=answers.REFUSAL,
)
