"""Texts of the published OpenAPI document that neither the route table nor the schemas contain."""

from moorage.placement.api.schemas import allocation, answers, candidate, event, names, provider
from moorage.placement.api.schemas.common import TEXT, UUID
from moorage.wire.openapi import OperationDoc, ResponseDoc, ServiceDoc

_GONE = {204: ResponseDoc("Done; no body.")}
_REPEATED = (
    "`required` (from 1.39) and `member_of` (from 1.24) may be repeated; all of them must hold then. Of other repeated "
    "parameters one counts."
)
_GENERATION = "Refused with 409 when `resource_provider_generation` is not the provider's: read it again and repeat."
_WANTED = {"resources": "VCPU:2,MEMORY_MB:512", "required": "HW_CPU_X86_VMX,!CUSTOM_MAGIC"}
_GROUPS = {
    **_WANTED,
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
        {200: ResponseDoc("Those that pass every filter.", answers.PROVIDERS)},
        query=provider.LIST,
        example={**_WANTED, "name": "host-1"},
        notes=_REPEATED,
    ),
    "POST /resource_providers": OperationDoc(
        "Create a provider",
        {
            200: ResponseDoc("Created, from 1.20 on.", answers.CREATED_PROVIDER),
            201: ResponseDoc("Created, until 1.19: `location` says where."),
        },
    ),
    "GET /resource_providers/{uuid}": OperationDoc(
        "Show a provider", {200: ResponseDoc("The provider.", answers.PROVIDER)}
    ),
    "PUT /resource_providers/{uuid}": OperationDoc(
        "Rename a provider, from 1.14 on also give it a parent, from 1.37 on another one",
        {200: ResponseDoc("The provider as it is now.", answers.PROVIDER)},
    ),
    "DELETE /resource_providers/{uuid}": OperationDoc(
        "Delete a provider that has no children and of which nobody holds anything", _GONE
    ),
    "GET /resource_providers/{uuid}/inventories": OperationDoc(
        "Show what a provider offers", {200: ResponseDoc("Its inventories by resource class.", answers.INVENTORIES)}
    ),
    "POST /resource_providers/{uuid}/inventories": OperationDoc(
        "Add one inventory", {201: ResponseDoc("Added.", answers.INVENTORY)}
    ),
    "PUT /resource_providers/{uuid}/inventories": OperationDoc(
        "Replace all inventories", {200: ResponseDoc("As they are now.", answers.INVENTORIES)}, notes=_GENERATION
    ),
    "DELETE /resource_providers/{uuid}/inventories": OperationDoc(
        "Take all inventories away; before 1.5 that method is refused with 405", _GONE, error_statuses=frozenset({405})
    ),
    "GET /resource_providers/{uuid}/inventories/{resource_class}": OperationDoc(
        "Show one inventory", {200: ResponseDoc("The inventory.", answers.INVENTORY)}
    ),
    "PUT /resource_providers/{uuid}/inventories/{resource_class}": OperationDoc(
        "Replace one inventory", {200: ResponseDoc("As it is now.", answers.INVENTORY)}, notes=_GENERATION
    ),
    "DELETE /resource_providers/{uuid}/inventories/{resource_class}": OperationDoc("Take one inventory away", _GONE),
    "GET /resource_providers/{uuid}/usages": OperationDoc(
        "Show what is held of a provider", {200: ResponseDoc("Units by resource class.", answers.PROVIDER_USAGES)}
    ),
    "GET /resource_providers/{uuid}/aggregates": OperationDoc(
        "Show a provider's aggregates", {200: ResponseDoc("Their uuids.", answers.AGGREGATES)}
    ),
    "PUT /resource_providers/{uuid}/aggregates": OperationDoc(
        "Replace a provider's aggregates",
        {200: ResponseDoc("As they are now.", answers.AGGREGATES)},
        notes=f"From 1.19 on: {_GENERATION}",
    ),
    "GET /resource_providers/{uuid}/traits": OperationDoc(
        "Show a provider's traits", {200: ResponseDoc("Their names.", answers.PROVIDER_TRAITS)}
    ),
    "PUT /resource_providers/{uuid}/traits": OperationDoc(
        "Replace a provider's traits",
        {200: ResponseDoc("As they are now.", answers.PROVIDER_TRAITS)},
        notes=_GENERATION,
    ),
    "DELETE /resource_providers/{uuid}/traits": OperationDoc("Take all traits away", _GONE),
    "GET /resource_providers/{uuid}/allocations": OperationDoc(
        "Show who holds something of a provider", {200: ResponseDoc("By consumer.", answers.PROVIDER_ALLOCATIONS)}
    ),
}

_NAMES = {
    "GET /resource_classes": OperationDoc(
        "List resource classes", {200: ResponseDoc("All of them.", answers.RESOURCE_CLASSES)}
    ),
    "POST /resource_classes": OperationDoc("Create a resource class", {201: ResponseDoc("Created.")}),
    "GET /resource_classes/{name}": OperationDoc(
        "Show a resource class", {200: ResponseDoc("There it is.", answers.RESOURCE_CLASS)}
    ),
    "PUT /resource_classes/{name}": OperationDoc(
        "Make sure that there is a resource class; until 1.6, rename it",
        {
            200: ResponseDoc("Renamed, until 1.6.", answers.RESOURCE_CLASS),
            201: ResponseDoc("Created, from 1.7 on."),
            204: ResponseDoc("It was there, from 1.7 on."),
        },
    ),
    "DELETE /resource_classes/{name}": OperationDoc("Delete a custom resource class that nobody uses", _GONE),
    "GET /traits": OperationDoc(
        "List traits",
        {200: ResponseDoc("Their names.", answers.TRAITS)},
        query=names.LIST_TRAITS,
        example={"name": "startswith:CUSTOM_", "associated": "true"},
    ),
    "GET /traits/{name}": OperationDoc("Is there this trait?", {204: ResponseDoc("Yes.")}),
    "PUT /traits/{name}": OperationDoc(
        "Make sure that there is a trait", {201: ResponseDoc("Created."), 204: ResponseDoc("It was there.")}
    ),
    "DELETE /traits/{name}": OperationDoc("Delete a custom trait that no provider has", _GONE),
}

_ALLOCATIONS = {
    "GET /allocations/{consumer_uuid}": OperationDoc(
        "Show what a consumer holds", {200: ResponseDoc("By provider.", answers.CONSUMER_ALLOCATIONS)}
    ),
    "PUT /allocations/{consumer_uuid}": OperationDoc(
        "Replace what a consumer holds",
        _GONE,
        notes="Refused with 409 when something does not fit, or when `consumer_generation` (from 1.28) is not the "
        "consumer's: null for one that holds nothing yet.",
    ),
    "DELETE /allocations/{consumer_uuid}": OperationDoc("Give back all that a consumer holds", _GONE),
    "POST /allocations": OperationDoc("Replace what several consumers hold: all of it or nothing", _GONE),
    "POST /reshaper": OperationDoc(
        "Move inventories and what is held of them between providers: all of it or nothing", _GONE
    ),
    "GET /usages": OperationDoc(
        "Show what a project holds, or one of its users",
        {200: ResponseDoc("Units by resource class; from 1.38 on by consumer type first.", answers.USAGES)},
        query=allocation.USAGES,
        example={"project_id": "a-project", "user_id": "a-user", "consumer_type": "INSTANCE"},
    ),
    "GET /allocation_candidates": OperationDoc(
        "Find who could give what is wanted",
        {
            200: ResponseDoc(
                "Allocation requests, each good as it is for PUT /allocations, and summaries.", answers.CANDIDATES
            )
        },
        query=candidate.LIST,
        example=_GROUPS,
        notes=_REPEATED,
    ),
}

_AT = {"at": "2026-03-01T09:30:00Z"}
_PERIOD = {"since": "2026-03-01T00:00:00Z", "until": "2026-03-02T00:00:00Z", "limit": "100"}
_OURS = {
    "GET /": OperationDoc("Which microversions are spoken", {200: ResponseDoc("The range.", answers.ROOT)}),
    "GET /moorage/v1/explain": OperationDoc(
        "Tell why the candidates are what they are",
        {200: ResponseDoc("Which constraint removed how many hosts, in order.", answers.EXPLANATION)},
        query=candidate.LIST,
        example=_GROUPS,
        notes="Takes the query of GET /allocation_candidates; without a microversion, in the newest.",
    ),
    "GET /moorage/v1/survey": OperationDoc(
        "Show all at a glance",
        {200: ResponseDoc("How many there are, and what they have together.", answers.SURVEY)},
        query=event.SURVEY,
        example={"resource_class": "VCPU,MEMORY_MB"},
        notes="At most 100 classes and 200 aggregates, those with the most providers. Of each aggregate the part of the "
        "classes in `resource_class` is told; without, of the 8 that most providers have.",
    ),
    "GET /moorage/v1/trees": OperationDoc(
        "List provider trees by the page",
        {200: ResponseDoc("In the order of their roots' names.", answers.TREES)},
        query=event.TREES,
        example={"search": "rack1", "resource_class": "VCPU", "limit": "50"},
        notes="`search` is looked for in the names of all providers of a tree, and at the beginning of their uuids; "
        "`member_of`, `resource_class` and `required` hold where one of them is or has it. `next` is the `after` of the "
        "next page; null on the last one.",
    ),
    "GET /moorage/v1/trees/{uuid}": OperationDoc(
        "Show the tree that a provider is in, with all that is held of it",
        {200: ResponseDoc("The root first, parents before children.", answers.TREE)},
        query=event.TREE,
        example=_AT,
        notes="With `at`, the providers that are in the tree now as they were then; `holders` is null. At most 2,000 "
        "allocations: `is_cut` tells whether there are more.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/events": OperationDoc(
        "Watch what changes, as server-sent events",
        {
            200: ResponseDoc(
                "Events in the order of commits, until the answer ends.", answers.TEXT_BODY, "text/event-stream"
            )
        },
        query=event.EVENTS,
        example={"since": "0", "kind": "provider,usages"},
        notes="Resumes behind the id in the header Last-Event-ID, else behind `since`; without either, begins now. An "
        "answer ends after some seconds: come again.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/changes": OperationDoc(
        "List what changed",
        {200: ResponseDoc("A page, in the order of commits.", answers.CHANGES)},
        query=event.CHANGES,
        example={"since": "0", "limit": "100"},
        notes="Without `since` from the oldest change that is kept. `next` is the `since` of the next page.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/providers/{uuid}": OperationDoc(
        "Show what a provider was",
        {200: ResponseDoc("Its state at that time.", answers.STATE)},
        query=event.STATE,
        example=_AT,
        notes="Without `at`, now. 410 before the time from which history is kept.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/providers/{uuid}/changes": OperationDoc(
        "List what changed about a provider",
        {200: ResponseDoc("In the order of commits.", answers.ENTRIES)},
        query=event.ENTRIES,
        example=_PERIOD,
        notes="`next` is the `after` of the next page; null on the last one.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/consumers/{consumer_uuid}": OperationDoc(
        "Show what a consumer held",
        {200: ResponseDoc("Its state at that time.", answers.STATE)},
        query=event.STATE,
        example=_AT,
        notes="Without `at`, now. 410 before the time from which history is kept.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/history/consumers/{consumer_uuid}/changes": OperationDoc(
        "List what changed about a consumer",
        {200: ResponseDoc("In the order of commits.", answers.ENTRIES)},
        query=event.ENTRIES,
        example=_PERIOD,
        notes="`next` is the `after` of the next page; null on the last one.",
        error_statuses=frozenset({410}),
    ),
    "GET /moorage/v1/openapi.json": OperationDoc(
        "This document: of the microversion that is named, or of all",
        {200: ResponseDoc("OpenAPI 3.1.", answers.ANYTHING)},
    ),
}

#: Where our own routes begin; the peer has none there.
DOCUMENT_PATH = "/moorage/v1/openapi.json"

ABOUT = ServiceDoc(
    title="Placement",
    description="Resource providers and what they offer, consumers and what they hold: OpenStack's Placement API, "
    "1.0 to 1.39, as Moorage speaks it, and its own routes under `/moorage/v1`.",
    operations=_PROVIDERS | _NAMES | _ALLOCATIONS | _OURS,
    parameters={"uuid": UUID, "consumer_uuid": UUID, "name": TEXT, "resource_class": TEXT},
    error_schema=answers.REFUSAL,
)
