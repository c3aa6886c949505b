"""Whether a region could be loaded with what somebody wants. Not part of the peer's API."""

from typing import Any

from moorage.accelerator.model.errors import BitstreamNotFound, ChecksumMismatch, MultipleBitstreams
from moorage.accelerator.model.profile import ProgramRequest, function_id_of
from moorage.accelerator.service.bitstream_service import Loadable
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid
from moorage.wire.http import Request, Response

_WAYS = ("image_uuid", "function_id", "function_name")


def list_bitstreams(request: Request[AcceleratorService]) -> Response:
    """That there is none is an answer, with its reason: a 404 is of a service that cannot be asked."""
    query = request.query
    if unknown := sorted(query.names() - {*_WAYS, "project_id", "trait"}):
        raise Invalid(f"Bitstreams are not asked by {', '.join(unknown)}; by {', '.join(_WAYS)}, project_id, trait.")
    image_id, function_id, function_name = (query.first(name) or "" for name in _WAYS)
    if sum(map(bool, (image_id, function_id, function_name))) != 1:
        raise Invalid(f"Name one of {', '.join(_WAYS)}.")
    wanted = ProgramRequest(image_id, function_id_of(function_id), function_name)
    project_id = query.first("project_id") or request.caller.project_id
    found: list[Loadable] = []
    refusal: dict[str, Any] | None = None
    try:
        found = request.service.bitstreams.loadable(wanted, project_id, query.every("trait"))
    except (BitstreamNotFound, MultipleBitstreams, ChecksumMismatch) as error:
        refusal = {"message": error.message, "is_ambiguous": isinstance(error, MultipleBitstreams)}
    return Response(body={"bitstreams": [_bitstream_document(one) for one in found], "refusal": refusal})


def _bitstream_document(one: Loadable) -> dict[str, Any]:
    return {"image_uuid": one.image.id, "name": one.image.name, "region_type": one.region_type}
