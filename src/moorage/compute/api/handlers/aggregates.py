"""Host aggregates."""

from typing import Any

from moorage.compute.api.handlers.views import MAX_AMOUNT, ComputeCall, microseconds, require
from moorage.compute.hosts.host_service import ZONE_KEY
from moorage.compute.model.servers import Aggregate
from moorage.core import parsing
from moorage.core.errors import NotFound
from moorage.wire.http import Reply


def index(call: ComputeCall) -> Reply:
    return Reply(body={"aggregates": [_view(call, one) for one in call.service.hosts.aggregates()]})


def show(call: ComputeCall, aggregate_id: str) -> Reply:
    return _reply(call, call.service.hosts.aggregate(_id(aggregate_id)))


def create(call: ComputeCall) -> Reply:
    body = call.json["aggregate"]
    aggregate = call.service.hosts.create_aggregate(body["name"], body.get("availability_zone"))
    view = _view(call, aggregate)
    return Reply(body={"aggregate": {key: value for key, value in view.items() if key not in ("hosts", "metadata")}})


def update(call: ComputeCall, aggregate_id: str) -> Reply:
    body = call.json["aggregate"]
    metadata = {ZONE_KEY: body["availability_zone"]} if "availability_zone" in body else None
    aggregate = call.service.hosts.update_aggregate(_id(aggregate_id), name=body.get("name"), metadata=metadata)
    return _reply(call, aggregate)


def delete(call: ComputeCall, aggregate_id: str) -> Reply:
    call.service.hosts.delete_aggregate(_id(aggregate_id))
    return Reply(200)


def act(call: ComputeCall, aggregate_id: str) -> Reply:
    key, argument = next(iter(call.json.items()))
    require(call, f"os_compute_api:os-aggregates:{key}")
    hosts, number = call.service.hosts, _id(aggregate_id)
    if key == "add_host":
        return _reply(call, hosts.add_host(number, argument["host"]))
    if key == "remove_host":
        return _reply(call, hosts.remove_host(number, argument["host"]))
    return _reply(call, hosts.update_aggregate(number, metadata=argument["metadata"]))


def _id(text: str) -> int:
    """Names are not ids: clients ask for ``/os-aggregates/NAME`` first and list when that is not found."""
    try:
        number = parsing.whole(text)
    except ValueError:
        number = MAX_AMOUNT + 1
    if number > MAX_AMOUNT:
        raise NotFound(f"Aggregate {text[:255]} could not be found.")
    return number


def _reply(call: ComputeCall, aggregate: Aggregate) -> Reply:
    return Reply(body={"aggregate": _view(call, aggregate)})


def _view(call: ComputeCall, aggregate: Aggregate) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": aggregate.id,
        "name": aggregate.name,
        "hosts": list(aggregate.hosts),
        "metadata": dict(aggregate.metadata),
        "created_at": microseconds(aggregate.created_at),
        "updated_at": microseconds(aggregate.updated_at),
        "deleted_at": None,
        "deleted": False,
        "availability_zone": aggregate.zone,
    }
    if call.version >= (2, 41):
        view["uuid"] = aggregate.uuid
    return view
