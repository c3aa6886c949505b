"""Device profiles, and the accelerator requests (ARQs) created from them."""

from collections.abc import Sequence

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.api.handlers.shapes import decode_limit
from moorage.accelerator.model.binding import decode_patch
from moorage.accelerator.model.errors import UNCHECKED
from moorage.accelerator.model.profile import NewProfile
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid, NotAcceptable, NotFound
from moorage.core.ids import is_uuid
from moorage.wire.http import Request, Response
from moorage.wire.microversion import Version

NAMES_SINCE = Version(2, 2)


def list_profiles(request: Request[AcceleratorService]) -> Response:
    names = [name for text in request.query.every("name") for name in text.split(",") if name]
    rows = request.service.list_profiles(names)
    return Response(body={"device_profiles": [shapes.profile_document(row, request.base_url) for row in rows]})


def show_profile(request: Request[AcceleratorService], name_or_uuid: str) -> Response:
    if not is_uuid(name_or_uuid) and request.version < NAMES_SINCE:
        raise NotAcceptable(
            f"Showing a device profile by name requires microversion {NAMES_SINCE}; this request has "
            f"{request.version}.",
            code="moorage.microversion",
        )
    row = request.service.get_profile(name_or_uuid)
    return Response(body={"device_profile": shapes.shown_profile_document(row, request.base_url)})


def create_profile(request: Request[AcceleratorService]) -> Response:
    (document,) = request.json
    new = NewProfile(
        name=document["name"],
        groups=[{key: str(value) for key, value in group.items()} for group in document["groups"]],
        description=document.get("description"),
        uuid=document.get("uuid"),
    )
    return Response(201, shapes.profile_document(request.service.create_profile(new), request.base_url))


def delete_profile(request: Request[AcceleratorService], name_or_uuid: str) -> Response:
    return _delete_profiles(request, [name_or_uuid])


def delete_profiles(request: Request[AcceleratorService]) -> Response:
    return _delete_profiles(request, (request.query.first("value") or "").split(","))


def _delete_profiles(request: Request[AcceleratorService], names: Sequence[str]) -> Response:
    if not (wanted := [name for name in names if name]):
        raise Invalid("Name the device profiles to delete: ?value=<name>,<name>.")
    request.service.delete_profiles(wanted)
    return Response(204)


def list_requests(request: Request[AcceleratorService]) -> Response:
    bind_state = request.query.first("bind_state")
    if bind_state not in (None, "resolved"):
        raise Invalid(
            f"Accelerator requests with bind_state {bind_state} cannot be listed; use resolved.", code=UNCHECKED
        )
    rows = request.service.requests.list_requests(
        request.caller, request.query.first("instance"), resolved=bind_state is not None
    )
    return Response(body={"arqs": [shapes.request_document(row, request.base_url) for row in rows]})


def list_requests_page(request: Request[AcceleratorService]) -> Response:
    """Lists a page of requests; the list in Cyborg's API has no pages."""
    query = request.query
    if unknown := sorted(query.names() - {"after", "limit"}):
        raise Invalid(
            f"Unknown query parameters: {', '.join(unknown)}. A page of accelerator requests takes after, limit."
        )
    after, page_size = query.first("after"), decode_limit(query.first("limit"))
    if after is not None and not is_uuid(after):
        raise Invalid(f"after={after!r} is not a UUID; use `next` of the previous page.")
    rows = request.service.requests.list_requests_page(request.caller, after, page_size + 1)
    next_page = rows[page_size - 1].uuid if len(rows) > page_size else None
    return Response(
        body={"arqs": [shapes.request_document(row, request.base_url) for row in rows[:page_size]], "next": next_page}
    )


def show_request(request: Request[AcceleratorService], uuid: str) -> Response:
    return Response(
        body=shapes.request_document(request.service.requests.get_request(request.caller, uuid), request.base_url)
    )


def create_requests(request: Request[AcceleratorService]) -> Response:
    rows = request.service.requests.create_requests(request.caller, request.json["device_profile_name"])
    return Response(201, {"arqs": [shapes.request_document(row, request.base_url) for row in rows]})


def patch_requests(request: Request[AcceleratorService]) -> Response:
    request.service.requests.bind_or_unbind(request.caller, decode_patch(request.json))
    return Response(202)


def patch_request(request: Request[AcceleratorService], uuid: str) -> Response:
    """The form that openstacksdk sends: the request's uuid is in the path and in the body."""
    if set(request.json) != {uuid}:
        raise Invalid(f"The body may only name accelerator request {uuid}.")
    return patch_requests(request)


def delete_requests(request: Request[AcceleratorService]) -> Response:
    instance, several = request.query.first("instance"), request.query.first("arqs")
    if (instance is None) == (several is None):
        raise Invalid(
            "Name either the requests to delete, ?arqs=<uuid>,<uuid>, or their instance, ?instance=<uuid>.",
            code=UNCHECKED,
        )
    if instance is not None:
        request.service.requests.delete_requests_of_instance(request.caller, instance)
    else:
        _delete_requests(request, [uuid for uuid in (several or "").split(",") if uuid])
    return Response(204)


def delete_request(request: Request[AcceleratorService], uuid: str) -> Response:
    _delete_requests(request, [uuid])
    return Response(204)


def _delete_requests(request: Request[AcceleratorService], uuids: Sequence[str]) -> None:
    try:
        request.service.requests.delete_requests(request.caller, uuids)
    except NotFound as error:
        if request.change is not None and error.fields["deleted"]:
            # Cyborg answers 404, but the audit trail must show that requests were deleted.
            request.change.status = 204
        raise
