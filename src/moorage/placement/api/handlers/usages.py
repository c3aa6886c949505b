"""/usages and /resource_providers/{uuid}/usages"""

from moorage.core.errors import Forbidden, NotFound
from moorage.placement.api.handlers.answers import PlacementApiRequest, answer, checked_query
from moorage.placement.api.schemas import allocation as schemas
from moorage.wire.http import Response

#: How consumers without a type (written before 1.38) are shown.
UNKNOWN = "unknown"
ALL = "all"

#: Rules of this module's own: who may see any project's usages, not only their own project's.
ANY_PROJECT = "placement:usages:any_project"


def of_provider(request: PlacementApiRequest, uuid: str) -> Response:
    provider = request.service.providers.forest().by_uuid(uuid)
    if provider is None:
        raise NotFound(f"No resource provider with uuid {uuid} found: No resource provider with uuid {uuid} found")
    used = {name: provider.used.get(name, 0) for name in provider.inventories}
    return answer(request, {"resource_provider_generation": provider.generation, "usages": used})


def of_project(request: PlacementApiRequest) -> Response:
    last = dict(request.query.pairs)
    if not request.allowed(ANY_PROJECT) and last.get("project_id") != request.caller.project_id:
        raise Forbidden("Policy does not allow placement:usages to be performed.", rule="placement:usages")
    values = checked_query(request, schemas.USAGES)
    rows, counts = request.service.allocations.usages(values["project_id"], values.get("user_id"))
    if request.version < (1, 38):
        totals: dict[str, int] = {}
        for _, name, used in rows:
            totals[name] = totals.get(name, 0) + used
        return answer(request, {"usages": totals})
    return answer(request, {"usages": _by_type(rows, counts, values.get("consumer_type"))})


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
