"""/moorage/v1/survey and /moorage/v1/trees, for the dashboard and other interactive views"""

from collections.abc import Iterable

from moorage.placement.api.handlers.answers import PlacementApiRequest, answer, checked_query
from moorage.placement.api.handlers.history import query_time
from moorage.placement.api.schemas import event as schemas
from moorage.placement.explain.cloud_summary import TreeFilter, TreeRow, Units
from moorage.placement.forest.change_entries import iso_utc
from moorage.placement.service.search_service import TreeState
from moorage.placement.store.holding_store import AllocationRow
from moorage.wire.http import Response

#: Default number of trees per page.
DEFAULT_LIMIT = "50"

Document = dict[str, object]


def show_cloud_summary(request: PlacementApiRequest) -> Response:
    classes = checked_query(request, schemas.SURVEY).get("resource_class", "")
    found = request.service.cloud_summary.summary(classes.split(",") if classes else ())
    body: Document = {
        "trees": found.trees,
        "providers": found.providers,
        "resource_classes": _units(found.units),
        "resource_classes_left_out": found.classes_left_out,
        "aggregates": [
            {"uuid": part.uuid, "trees": part.trees, "resource_classes": _units(part.units)}
            for part in found.aggregates
        ],
        "aggregates_left_out": found.aggregates_left_out,
    }
    return answer(request, body)


def list_trees(request: PlacementApiRequest) -> Response:
    values = checked_query(request, schemas.TREES)
    wanted = TreeFilter(
        values.get("search", ""), values.get("member_of"), values.get("resource_class"), values.get("required")
    )
    page = request.service.cloud_summary.trees(wanted, values.get("after"), int(values.get("limit", DEFAULT_LIMIT)))
    body = {"trees": [_row(row) for row in page.rows], "matching": page.matching, "next": page.following}
    return answer(request, body)


def show_tree(request: PlacementApiRequest, uuid: str) -> Response:
    at = query_time(checked_query(request, schemas.TREE), "at")
    summaries = request.service.cloud_summary
    return answer(request, _tree(summaries.tree(uuid) if at is None else summaries.tree_at(uuid, at)))


def _units(units: Iterable[Units]) -> list[Document]:
    return [{"name": one.name, "providers": one.providers, "capacity": one.capacity, "used": one.used} for one in units]


def _row(row: TreeRow) -> Document:
    return {
        "uuid": row.root.uuid,
        "name": row.root.name,
        "generation": row.root.generation,
        "providers": row.providers,
        "traits": sorted(row.root.traits),
        "aggregates": sorted(row.root.aggregates),
        "resource_classes": _units(row.units),
    }


def _tree(state: TreeState) -> Document:
    return {
        "at": None if state.at is None else iso_utc(state.at),
        "providers": state.providers,
        "holders": None if state.held is None else _holders(state.held),
        "is_cut": state.is_cut,
    }


def _holders(held: Iterable[AllocationRow]) -> list[Document]:
    """One entry per consumer: its allocations by provider and class."""
    holders: dict[str, Document] = {}
    amounts: dict[str, dict[str, dict[str, int]]] = {}
    for one in held:
        holdings = amounts.setdefault(one.consumer_uuid, {})
        holdings.setdefault(one.provider_uuid, {})[one.resource_class] = one.used
        holders[one.consumer_uuid] = {
            "consumer": one.consumer_uuid,
            "project_id": one.project_id,
            "user_id": one.user_id,
            "consumer_type": one.consumer_type,
            "allocations": holdings,
        }
    return list(holders.values())
