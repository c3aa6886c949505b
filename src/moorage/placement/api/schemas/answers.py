"""JSON schemas of answers, for the published OpenAPI document. Tests compare them with real answers."""

from collections.abc import Mapping

from moorage.placement.api.schemas.common import NAME, SUFFIX, TEXT, UUID_KEY, JsonSchema, closed
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_COUNT: JsonSchema = {"type": "integer", "minimum": 0}
_GENERATION: JsonSchema = {"type": "integer"}
_UUID: JsonSchema = {"type": "string", "pattern": UUID_KEY}
_UUID_OR_NULL: JsonSchema = {"anyOf": [_UUID, {"type": "null"}]}
_AMOUNTS: JsonSchema = {"type": "object", "patternProperties": {NAME: _COUNT}, "additionalProperties": False}


def _all(properties: Mapping[str, JsonSchema], *, but: tuple[str, ...] = ()) -> JsonSchema:
    """An object with all of these properties and no others; those in `but` may be missing."""
    return closed(properties, required=tuple(name for name in properties if name not in but))


def _list(items: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": items}


def _by(key: str, value: JsonSchema) -> JsonSchema:
    return {"type": "object", "patternProperties": {key: value}, "additionalProperties": False}


def _links(*relations: str) -> JsonSchema:
    one = _all({"rel": {"enum": ["self", *relations]}, "href": TEXT})
    return {"links": {"type": "array", "items": one, "minItems": 1 + len(relations), "maxItems": 1 + len(relations)}}


ROOT = Schema(
    _all(
        {
            "versions": _list(
                _all(
                    {
                        "id": TEXT,
                        "max_version": TEXT,
                        "min_version": TEXT,
                        "status": {"const": "CURRENT"},
                        **_links(),
                    }
                )
            )
        }
    )
)

# --- providers ----------------------------------------------------------------------------------------------------

_PROVIDER: JsonSchema = {"uuid": _UUID, "name": TEXT, "generation": _COUNT}
_PARENT_AND_ROOT: JsonSchema = {"parent_provider_uuid": _UUID_OR_NULL, "root_provider_uuid": _UUID}
_PROVIDERS = [
    (Version(1, 0), _all(_PROVIDER | _links("inventories", "usages"))),
    (Version(1, 1), _all(_PROVIDER | _links("inventories", "usages", "aggregates"))),
    (Version(1, 6), _all(_PROVIDER | _links("inventories", "usages", "aggregates", "traits"))),
    (Version(1, 11), _all(_PROVIDER | _links("inventories", "usages", "aggregates", "traits", "allocations"))),
    (
        Version(1, 14),
        _all(_PROVIDER | _PARENT_AND_ROOT | _links("inventories", "usages", "aggregates", "traits", "allocations")),
    ),
]
PROVIDER = VersionedSchema([(since, Schema(one)) for since, one in _PROVIDERS])
#: Before 1.20, the answer to POST /resource_providers has no body.
CREATED_PROVIDER = VersionedSchema([(Version(1, 0), None), (Version(1, 20), Schema(_PROVIDERS[-1][1]))])
PROVIDERS = VersionedSchema([(since, Schema(_all({"resource_providers": _list(one)}))) for since, one in _PROVIDERS])

_INVENTORY: JsonSchema = {
    "total": _COUNT,
    "reserved": _COUNT,
    "min_unit": _COUNT,
    "max_unit": _COUNT,
    "step_size": _COUNT,
    "allocation_ratio": {"type": "number"},
}
#: As with the peer, the generation is missing while it is 0.
INVENTORY = Schema(_all({**_INVENTORY, "resource_provider_generation": _COUNT}, but=("resource_provider_generation",)))
INVENTORIES = Schema(_all({"resource_provider_generation": _COUNT, "inventories": _by(NAME, _all(_INVENTORY))}))
PROVIDER_USAGES = Schema(_all({"resource_provider_generation": _COUNT, "usages": _AMOUNTS}))
PROVIDER_TRAITS = Schema(_all({"resource_provider_generation": _COUNT, "traits": _list(TEXT)}))
AGGREGATES = VersionedSchema(
    [
        (Version(1, 1), Schema(_all({"aggregates": _list(TEXT)}))),
        (Version(1, 19), Schema(_all({"aggregates": _list(TEXT), "resource_provider_generation": _COUNT}))),
    ]
)


def _of_provider(held: JsonSchema) -> Schema:
    return Schema(_all({"resource_provider_generation": _COUNT, "allocations": _by(UUID_KEY, _all(held))}))


PROVIDER_ALLOCATIONS = VersionedSchema(
    [
        (Version(1, 0), _of_provider({"resources": _AMOUNTS})),
        (Version(1, 28), _of_provider({"resources": _AMOUNTS, "consumer_generation": _COUNT})),
    ]
)

# --- names --------------------------------------------------------------------------------------------------------

_CLASS: JsonSchema = _all({"name": TEXT, **_links()})
RESOURCE_CLASS = Schema(_CLASS)
RESOURCE_CLASSES = Schema(_all({"resource_classes": _list(_CLASS)}))
TRAITS = Schema(_all({"traits": _list(TEXT)}))

# --- allocations --------------------------------------------------------------------------------------------

_HELD: JsonSchema = {"allocations": _by(UUID_KEY, _all({"resources": _AMOUNTS, "generation": _GENERATION}))}
_OWNER: JsonSchema = {"project_id": TEXT, "user_id": TEXT}
_COUNTED: JsonSchema = {"consumer_generation": _COUNT}
_TYPE: JsonSchema = {"consumer_type": TEXT}


def _held(more: JsonSchema) -> Schema:
    """A consumer without allocations has no owner either."""
    return Schema(_all(_HELD | more, but=tuple(more)))


CONSUMER_ALLOCATIONS = VersionedSchema(
    [
        (Version(1, 0), _held({})),
        (Version(1, 12), _held(_OWNER)),
        (Version(1, 28), _held(_OWNER | _COUNTED)),
        (Version(1, 38), _held(_OWNER | _COUNTED | _TYPE)),
    ]
)

_BY_TYPE: JsonSchema = _by(
    f"{NAME}|^all$|^unknown$",
    {
        "type": "object",
        "properties": {"consumer_count": _COUNT},
        "patternProperties": {NAME: _COUNT},
        "additionalProperties": False,
    },
)
USAGES = VersionedSchema(
    [(Version(1, 9), Schema(_all({"usages": _AMOUNTS}))), (Version(1, 38), Schema(_all({"usages": _BY_TYPE})))]
)

# --- candidates ---------------------------------------------------------------------------------------------

_LISTED: JsonSchema = {"allocations": _list(_all({"resource_provider": _all({"uuid": _UUID}), "resources": _AMOUNTS}))}
_KEYED: JsonSchema = {"allocations": _by(UUID_KEY, _all({"resources": _AMOUNTS}))}
_MAPPINGS: JsonSchema = {"mappings": _by(f"^({SUFFIX})?$", _list(_UUID))}
_CAPACITIES: JsonSchema = {
    # The capacity may be below the usage, and even negative: an operator can reserve more than the total.
    "resources": _by(NAME, _all({"capacity": {"type": "integer"}, "used": _COUNT}))
}
_TRAITS: JsonSchema = {"traits": _list(TEXT)}


def _candidates(request: JsonSchema, summary: JsonSchema) -> Schema:
    return Schema(
        _all({"allocation_requests": _list(_all(request)), "provider_summaries": _by(UUID_KEY, _all(summary))})
    )


CANDIDATES = VersionedSchema(
    [
        (Version(1, 10), _candidates(_LISTED, _CAPACITIES)),
        (Version(1, 12), _candidates(_KEYED, _CAPACITIES)),
        (Version(1, 17), _candidates(_KEYED, _CAPACITIES | _TRAITS)),
        (Version(1, 29), _candidates(_KEYED, _CAPACITIES | _TRAITS | _PARENT_AND_ROOT)),
        (Version(1, 34), _candidates(_KEYED | _MAPPINGS, _CAPACITIES | _TRAITS | _PARENT_AND_ROOT)),
    ]
)

#: Moorage's own. It allows more properties, because later releases may add some.
EXPLANATION = Schema(
    {
        "type": "object",
        "required": ["text", "candidates", "steps", "closest", "change"],
        "properties": {
            "text": TEXT,
            "candidates": _COUNT,
            "steps": _list(
                {
                    "type": "object",
                    "required": ["constraint", "before", "after", "removed"],
                    "properties": {
                        "constraint": TEXT,
                        "before": _COUNT,
                        "after": _COUNT,
                        "removed": _list(
                            {
                                "type": "object",
                                "required": ["provider", "reason"],
                                "properties": {"provider": TEXT, "reason": TEXT},
                            }
                        ),
                    },
                }
            ),
            "closest": _list(
                {
                    "type": "object",
                    "required": ["provider", "lacks"],
                    "properties": {"provider": TEXT, "lacks": _list(TEXT)},
                }
            ),
            "change": {
                "type": ["object", "null"],
                "required": ["provider", "parts", "query"],
                "properties": {"provider": TEXT, "parts": _list(TEXT), "query": TEXT},
            },
        },
    }
)
ANYTHING = Schema({"type": "object"})
TEXT_BODY = Schema(TEXT)

_ENTRY: JsonSchema = {
    "type": "object",
    "required": ["id", "sequence", "position", "at", "kind", "subject", "document"],
    "properties": {
        "id": TEXT,
        "sequence": _COUNT,
        "position": _COUNT,
        "at": TEXT,
        "kind": TEXT,
        "subject": {"type": ["string", "null"]},
        "document": {"type": ["object", "null"]},
    },
}
CHANGES = Schema(
    {
        "type": "object",
        "required": ["changes", "next", "is_last", "first", "last"],
        "properties": {
            "changes": _list(_ENTRY),
            "next": TEXT,
            "is_last": {"type": "boolean"},
            "first": _COUNT,
            "last": _COUNT,
        },
    }
)
ENTRIES = Schema(
    {
        "type": "object",
        "required": ["changes", "next"],
        "properties": {"changes": _list(_ENTRY), "next": {"type": ["string", "null"]}},
    }
)
STATE = Schema(
    {
        "type": "object",
        "required": ["at", "changed_at", "id", "state"],
        "properties": {"at": TEXT, "changed_at": TEXT, "id": TEXT, "state": {"type": "object"}},
    }
)

# --- the cloud summary and trees ----------------------------------------------------------------------------------

_UNITS: JsonSchema = _list(_all({"name": TEXT, "providers": _COUNT, "capacity": _COUNT, "used": _COUNT}))
SURVEY = Schema(
    _all(
        {
            "trees": _COUNT,
            "providers": _COUNT,
            "resource_classes": _UNITS,
            "resource_classes_left_out": _COUNT,
            "aggregates": _list(_all({"uuid": TEXT, "trees": _COUNT, "resource_classes": _UNITS})),
            "aggregates_left_out": _COUNT,
        }
    )
)
_TREE_ROW: JsonSchema = _all(
    {
        "uuid": _UUID,
        "name": TEXT,
        "generation": _COUNT,
        "providers": _COUNT,
        "traits": _list(TEXT),
        "aggregates": _list(TEXT),
        "resource_classes": _UNITS,
    }
)
TREES = Schema(_all({"trees": _list(_TREE_ROW), "matching": _COUNT, "next": {"type": ["string", "null"]}}))
_HOLDER: JsonSchema = _all(
    {
        "consumer": _UUID,
        "project_id": TEXT,
        "user_id": TEXT,
        "consumer_type": {"type": ["string", "null"]},
        "allocations": _by(UUID_KEY, _AMOUNTS),
    }
)
TREE = Schema(
    _all(
        {
            "at": {"type": ["string", "null"]},
            "providers": _list(
                _all(
                    {
                        "uuid": _UUID,
                        "name": TEXT,
                        "generation": _COUNT,
                        **_PARENT_AND_ROOT,
                        "inventories": _by(NAME, _all(_INVENTORY)),
                        "traits": _list(TEXT),
                        "aggregates": _list(TEXT),
                        "usages": _AMOUNTS,
                    }
                )
            ),
            "holders": {"anyOf": [_list(_HOLDER), {"type": "null"}]},
            "is_cut": {"type": "boolean"},
        }
    )
)

# --- refusals -----------------------------------------------------------------------------------------------------

_ERROR: JsonSchema = {"status": {"type": "integer"}, "title": TEXT, "detail": TEXT, "request_id": TEXT}
_RANGE: JsonSchema = {"max_version": TEXT, "min_version": TEXT}


def _errors(error: JsonSchema) -> Schema:
    """A refusal of a microversion contains the supported range."""
    one = _all(error | _RANGE, but=tuple(_RANGE))
    return Schema(_all({"errors": {"type": "array", "minItems": 1, "maxItems": 1, "items": one}}))


REFUSAL = VersionedSchema([(Version(1, 0), _errors(_ERROR)), (Version(1, 23), _errors({**_ERROR, "code": TEXT}))])
