"""/resource_providers/{uuid}/inventories"""

from moorage.core.inventories import MAX_INT
from moorage.placement.api.schemas.common import NAME, JsonSchema, body, closed

#: The largest single-precision float: the peer's column.
_MAX_RATIO = 3.40282e38

_GENERATION: JsonSchema = {"type": "integer"}


def _units(minimum: int) -> JsonSchema:
    return {"type": "integer", "maximum": MAX_INT, "minimum": minimum}


_RECORD: JsonSchema = {
    "resource_provider_generation": _GENERATION,
    "total": _units(1),
    "reserved": _units(0),
    "min_unit": _units(1),
    "max_unit": _units(1),
    "step_size": _units(1),
    "allocation_ratio": {"type": "number", "maximum": _MAX_RATIO},
}

CREATE = body(
    closed({**_RECORD, "resource_class": {"type": "string", "pattern": NAME}}, required=("total", "resource_class"))
)
UPDATE = body(closed(_RECORD, required=("total", "resource_provider_generation")))
RECORD = body(closed(_RECORD, required=("total",)))

SET_DOCUMENT: JsonSchema = closed(
    {
        "resource_provider_generation": _GENERATION,
        "inventories": {"type": "object", "patternProperties": {NAME: closed(_RECORD, required=("total",))}},
    },
    required=("resource_provider_generation", "inventories"),
)
SET = body(SET_DOCUMENT)
