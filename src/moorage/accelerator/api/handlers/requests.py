"""Accelerator requests (ARQs), and the jobs of hosts that bind them."""

from collections.abc import Sequence

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.api.handlers.pages import limit_of
from moorage.accelerator.model.binding import decode_patch
from moorage.accelerator.model.errors import UNCHECKED
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid, NotFound
from moorage.core.ids import is_uuid
from moorage.jobs.job_api import job_document, report_of
from moorage.wire.http import Call, Reply


def index(call: Call[AcceleratorService]) -> Reply:
    bind_state = call.query.first("bind_state")
    if bind_state not in (None, "resolved"):
        raise Invalid(
            f"Accelerator requests with bind_state {bind_state} cannot be listed; use resolved.", code=UNCHECKED
        )
    rows = call.service.requests.index(call.caller, call.query.first("instance"), resolved=bind_state is not None)
    return Reply(body={"arqs": [shapes.request(row, call.base_url) for row in rows]})


def page(call: Call[AcceleratorService]) -> Reply:
    """Not the peer's, whose list has no pages."""
    query = call.query
    if unknown := sorted(query.names() - {"after", "limit"}):
        raise Invalid(f"A page of accelerator requests is not asked by {', '.join(unknown)}; it takes after, limit.")
    after, most = query.first("after"), limit_of(query.first("limit"))
    if after is not None and not is_uuid(after):
        raise Invalid(f"after={after!r} is no UUID; take `next` of the page before.")
    rows = call.service.requests.page(call.caller, after, most + 1)
    following = rows[most - 1].uuid if len(rows) > most else None
    return Reply(body={"arqs": [shapes.request(row, call.base_url) for row in rows[:most]], "next": following})


def show(call: Call[AcceleratorService], uuid: str) -> Reply:
    return Reply(body=shapes.request(call.service.requests.show(call.caller, uuid), call.base_url))


def create(call: Call[AcceleratorService]) -> Reply:
    rows = call.service.requests.create(call.caller, call.json["device_profile_name"])
    return Reply(201, {"arqs": [shapes.request(row, call.base_url) for row in rows]})


def patch(call: Call[AcceleratorService]) -> Reply:
    call.service.requests.patch(call.caller, decode_patch(call.json))
    return Reply(202)


def patch_one(call: Call[AcceleratorService], uuid: str) -> Reply:
    """The SDK's form: the request's uuid in the path, and in the body too."""
    if set(call.json) != {uuid}:
        raise Invalid(f"The body must be about accelerator request {uuid} alone.")
    return patch(call)


def delete(call: Call[AcceleratorService]) -> Reply:
    instance, several = call.query.first("instance"), call.query.first("arqs")
    if (instance is None) == (several is None):
        raise Invalid(
            "Name either the requests to delete, ?arqs=<uuid>,<uuid>, or their instance, ?instance=<uuid>.",
            code=UNCHECKED,
        )
    if instance is not None:
        call.service.requests.delete_of(call.caller, instance)
    else:
        _delete(call, [uuid for uuid in (several or "").split(",") if uuid])
    return Reply(204)


def delete_one(call: Call[AcceleratorService], uuid: str) -> Reply:
    _delete(call, [uuid])
    return Reply(204)


def _delete(call: Call[AcceleratorService], uuids: Sequence[str]) -> None:
    try:
        call.service.requests.delete(call.caller, uuids)
    except NotFound as error:
        if call.change is not None and error.fields["deleted"]:
            call.change.status = 204  # the peer's answer is 404; the audit trail must not say that nothing was done
        raise


def claim(call: Call[AcceleratorService], host: str) -> Reply:
    jobs = call.service.jobs.claim(host, call.json["worker"], call.json.get("limit", 1))
    return Reply(body={"jobs": [job_document(job) for job in jobs]})


def report(call: Call[AcceleratorService], job_id: str) -> Reply:
    return Reply(body={"more": call.service.jobs.report(job_id, report_of(call.json), host=call.caller.host)})
