"""Host aggregates, and the availability zones that they define."""

from moorage.compute.api.handlers.views import MAX_AMOUNT, ComputeRequest, format_microseconds, require_rule
from moorage.compute.hosts import ZONE_KEY, HostDetails
from moorage.compute.model.servers import COMPUTE_BINARY, DEFAULT_ZONE, Aggregate
from moorage.core import parsing
from moorage.core.errors import NotFound
from moorage.core.json import Json
from moorage.wire.http import Response


def index(request: ComputeRequest) -> Response:
    return Response(body={"aggregates": [_view(request, one) for one in request.service.hosts.aggregates()]})


def show(request: ComputeRequest, aggregate_id: str) -> Response:
    return _reply(request, request.service.hosts.aggregate(_id(aggregate_id)))


def create(request: ComputeRequest) -> Response:
    body = request.json["aggregate"]
    aggregate = request.service.hosts.create_aggregate(body["name"], body.get("availability_zone"))
    view = _view(request, aggregate)
    return Response(body={"aggregate": {key: value for key, value in view.items() if key not in ("hosts", "metadata")}})


def update(request: ComputeRequest, aggregate_id: str) -> Response:
    body = request.json["aggregate"]
    metadata = {ZONE_KEY: body["availability_zone"]} if "availability_zone" in body else None
    aggregate = request.service.hosts.update_aggregate(_id(aggregate_id), name=body.get("name"), metadata=metadata)
    return _reply(request, aggregate)


def delete(request: ComputeRequest, aggregate_id: str) -> Response:
    request.service.hosts.delete_aggregate(_id(aggregate_id))
    return Response(200)


def act(request: ComputeRequest, aggregate_id: str) -> Response:
    key, argument = next(iter(request.json.items()))
    require_rule(request, f"os_compute_api:os-aggregates:{key}")
    hosts, number = request.service.hosts, _id(aggregate_id)
    if key == "add_host":
        return _reply(request, hosts.add_host(number, argument["host"]))
    if key == "remove_host":
        return _reply(request, hosts.remove_host(number, argument["host"]))
    return _reply(request, hosts.update_aggregate(number, metadata=argument["metadata"]))


def _id(text: str) -> int:
    """Names are not ids: clients request ``/os-aggregates/NAME`` first, and list if that is not found."""
    try:
        number = parsing.parse_whole_number(text)
    except ValueError:
        number = MAX_AMOUNT + 1
    if number > MAX_AMOUNT:
        raise NotFound(f"Aggregate {text[:255]} could not be found.")
    return number


def _reply(request: ComputeRequest, aggregate: Aggregate) -> Response:
    return Response(body={"aggregate": _view(request, aggregate)})


def _view(request: ComputeRequest, aggregate: Aggregate) -> dict[str, Json]:
    view: dict[str, Json] = {
        "id": aggregate.id,
        "name": aggregate.name,
        "hosts": list(aggregate.hosts),
        "metadata": dict(aggregate.metadata),
        "created_at": format_microseconds(aggregate.created_at),
        "updated_at": format_microseconds(aggregate.updated_at),
        "deleted_at": None,
        "deleted": False,
        "availability_zone": aggregate.zone,
    }
    if request.version >= (2, 41):
        view["uuid"] = aggregate.uuid
    return view


def index_zones(request: ComputeRequest) -> Response:
    zones = [
        {"zoneName": zone, "zoneState": {"available": any(_serves(one) for one in members)}, "hosts": None}
        for zone, members in _by_zone(request).items()
    ]
    return Response(body={"availabilityZoneInfo": zones})


def detail_zones(request: ComputeRequest) -> Response:
    zones = [
        {
            "zoneName": zone,
            "zoneState": {"available": any(_serves(one) for one in members)},
            "hosts": {one.host.name: {COMPUTE_BINARY: _zone_service(one)} for one in members},
        }
        for zone, members in _by_zone(request).items()
    ]
    return Response(body={"availabilityZoneInfo": zones})


def _by_zone(request: ComputeRequest) -> dict[str, list[HostDetails]]:
    zones: dict[str, list[HostDetails]] = {}
    for details in request.service.hosts.hosts():
        zones.setdefault(details.zone, []).append(details)
    return dict(sorted(zones.items())) or {DEFAULT_ZONE: []}


def _serves(details: HostDetails) -> bool:
    return details.is_up and details.host.is_enabled


def _zone_service(details: HostDetails) -> dict[str, Json]:
    return {
        "available": details.is_up,
        "active": details.host.is_enabled,
        "updated_at": format_microseconds(details.host.heartbeat_at),
    }
