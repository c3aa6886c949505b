"""The device history, and the attach handles of a host with the end of their quarantine, for administrators.

Not part of Cyborg's API.
"""

from datetime import datetime

from moorage.accelerator.api.handlers.shapes import decode_limit
from moorage.accelerator.model.device_history import DeviceEvent
from moorage.accelerator.model.rows import HandleRow, HistoryEntry, HistoryFilter, HistoryPosition
from moorage.accelerator.service.operator_service import HandleRelease
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid, NotFound
from moorage.core.ids import is_uuid
from moorage.core.parsing import parse_time
from moorage.wire.http import Request, Response

_PARAMETERS = {
    "device",
    "host",
    "address",
    "handle",
    "instance",
    "project",
    "event",
    "since",
    "until",
    "after",
    "limit",
    "order",
}
_ORDERS = ("oldest", "newest")


def list_history(request: Request[AcceleratorService]) -> Response:
    query = request.query
    if unknown := sorted(query.names() - _PARAMETERS):
        raise Invalid(
            f"Unknown query parameters: {', '.join(unknown)}. The history takes {', '.join(sorted(_PARAMETERS))}."
        )
    event = query.first("event")
    if event is not None and event not in set(DeviceEvent):
        raise Invalid(f"event={event!r} is unknown; use one of {', '.join(DeviceEvent)}.")
    order = query.first("order") or _ORDERS[0]
    if order not in _ORDERS:
        raise Invalid(f"order={order!r} is unknown; use {' or '.join(_ORDERS)}, to name the records that come first.")
    instance = query.first("instance")
    if instance is not None and not is_uuid(instance):
        raise Invalid(f"instance={instance!r} is not a UUID.")
    wanted = HistoryFilter(
        hostname=query.first("host"),
        device=query.first("address"),
        handle=query.first("handle"),
        instance_uuid=instance and instance.lower(),
        project_id=query.first("project"),
        event=event,
        since=_time(query.first("since"), "since"),
        until=_time(query.first("until"), "until"),
    )
    page_size = decode_limit(query.first("limit"))
    found = request.service.history.list_entries(
        wanted, query.first("device"), _position(query.first("after")), page_size + 1, newest_first=order == "newest"
    )
    next_page = str(found[page_size - 1].place) if len(found) > page_size else None
    return Response(body={"records": [_record_document(entry) for entry in found[:page_size]], "next": next_page})


def list_handles(request: Request[AcceleratorService]) -> Response:
    """Lists the handles of one host only, because with ten thousand hosts a list of all would be too long."""
    host = request.query.first("host")
    if not host:
        raise Invalid("Name the host whose handles to list: ?host=NAME.")
    return Response(body={"handles": [_handle_document(row) for row in request.service.history.list_handles(host)]})


def release_handle(request: Request[AcceleratorService]) -> Response:
    """Ends the quarantine of a handle; answers with the handle as it is then."""
    body = request.json
    wanted = HandleRelease(body["handle"], body["reason"].strip(), body.get("is_clean", False))
    request.service.operator.release_handle(request.caller, body["host"], wanted, body.get("wait_s"))
    rows = request.service.history.list_handles(body["host"])
    found = next((row for row in rows if row.handle == wanted.handle), None)
    if found is None:
        raise NotFound(f"Attach handle {wanted.handle} of host {body['host']} is gone.")
    return Response(body={"handle": _handle_document(found)})


def _handle_document(row: HandleRow) -> dict[str, object]:
    return {
        "handle": row.handle,
        "state": row.state,
        "reason": row.reason or None,
        "deployable": row.deployable.name,
        "rp_uuid": row.deployable.rp_uuid,
        "bitstream_id": row.deployable.bitstream_id,
        "attributes": [{key: value} for key, value in row.deployable.attributes],
        "device_uuid": row.device.uuid,
        "device": row.device.address,
        "type": row.device.type,
        "vendor": row.device.vendor,
        "model": row.device.model,
        "health": row.device.health,
        "health_since": row.device.health_since and row.device.health_since.isoformat(),
        "status": row.device.status,
        "instance_uuid": row.request and row.request.instance_uuid,
        "project_id": row.request and row.request.project_id,
        "request_uuid": row.request and row.request.uuid,
        "request_state": row.request and row.request.state,
    }


def _record_document(entry: HistoryEntry) -> dict[str, object]:
    record = entry.record
    what = record.what
    return {
        "id": str(entry.place),
        "at": record.at.isoformat(),
        "event": str(what.event),
        "result": "done" if what.done else "failed",
        "reason": what.reason or None,
        "hostname": entry.hostname,
        "device": record.device,
        "deployable": what.deployable,
        "handle": what.handle or None,
        "instance_uuid": what.who.instance_uuid or None,
        "project_id": what.who.project_id or None,
        "user_id": what.who.user_id or None,
        "image_id": what.image_id or None,
        "sha512": what.digest or None,
    }


def _position(text: str | None) -> HistoryPosition | None:
    if text is None:
        return None
    sequence, _, identity = text.partition("-")
    if not (sequence.isdecimal() and identity.isdecimal() and len(text) < 39):
        raise Invalid(f"after={text!r} is not the id of a record; use `next` of the previous page.")
    return HistoryPosition(int(sequence), int(identity))


def _time(text: str | None, name: str) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_time(text, zone=None)
    except ValueError as error:
        raise Invalid(f"{name}={text!r} is not a time with a zone; write it like 2026-03-01T09:30:00Z.") from error
