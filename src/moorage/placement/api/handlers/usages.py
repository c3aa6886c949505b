"""/usages and /resource_providers/{uuid}/usages"""

from moorage.core.errors import Forbidden, NotFound
from moorage.placement.api.handlers.answers import PlacementCall, answer, checked_query
from moorage.placement.api.schemas import allocation as schemas
from moorage.wire.http import Reply

#: How consumers without a type (written before 1.38) are shown.
UNKNOWN = "unknown"
ALL = "all"

#: Rules of this module's own: who may see any project's usages, not only their own project's.
ANY_PROJECT = "placement:usages:any_project"


def of_provider(call: PlacementCall, uuid: str) -> Reply:
    provider = call.service.providers.forest().by_uuid(uuid)
    if provider is None:
        raise NotFound(f"No resource provider with uuid {uuid} found: No resource provider with uuid {uuid} found")
    used = {name: provider.used.get(name, 0) for name in provider.inventories}
    return answer(call, {"resource_provider_generation": provider.generation, "usages": used})


def of_project(call: PlacementCall) -> Reply:
    last = dict(call.query.pairs)
    if not call.allowed(ANY_PROJECT) and last.get("project_id") != call.caller.project_id:
        raise Forbidden("Policy does not allow placement:usages to be performed.", rule="placement:usages")
    values = checked_query(call, schemas.USAGES)
    rows, counts = call.service.allocations.usages(values["project_id"], values.get("user_id"))
    if call.version < (1, 38):
        totals: dict[str, int] = {}
        for _, name, used in rows:
            totals[name] = totals.get(name, 0) + used
        return answer(call, {"usages": totals})
    return answer(call, {"usages": _by_type(rows, counts, values.get("consumer_type"))})


def _by_type(
    rows: list[tuple[str | None, str, int]], counts: dict[str | None, int], wanted: str | None
) -> dict[str, dict[str, int]]:
    """{consumer type: {class: units, ..., "consumer_count": consumers}}; ``all`` is one type for all."""
    by_type: dict[str, dict[str, int]] = {}
    for consumer_type, name, used in rows:
        shown = ALL if wanted == ALL else consumer_type or UNKNOWN
        if wanted in (None, ALL, shown):
            group = by_type.setdefault(shown, {})
            group[name] = group.get(name, 0) + used
    for consumer_type, count in counts.items():
        shown = ALL if wanted == ALL else consumer_type or UNKNOWN
        if shown in by_type:
            by_type[shown]["consumer_count"] = by_type[shown].get("consumer_count", 0) + count
    return by_type
