"""Device profiles."""

from collections.abc import Sequence

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.model.device_profile import NewProfile
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid, NotAcceptable
from moorage.core.ids import is_uuid
from moorage.wire.http import Request, Response
from moorage.wire.microversion import Version

NAMES_SINCE = Version(2, 2)


def list_profiles(request: Request[AcceleratorService]) -> Response:
    names = [name for text in request.query.every("name") for name in text.split(",") if name]
    rows = request.service.profiles(names)
    return Response(body={"device_profiles": [shapes.profile(row, request.base_url) for row in rows]})


def show_profile(request: Request[AcceleratorService], name_or_uuid: str) -> Response:
    if not is_uuid(name_or_uuid) and request.version < NAMES_SINCE:
        raise NotAcceptable(
            f"A device profile can be asked for by name from microversion {NAMES_SINCE} on; this is {request.version}.",
            code="moorage.microversion",
        )
    row = request.service.profile(name_or_uuid)
    return Response(body={"device_profile": shapes.shown_profile(row, request.base_url)})


def create_profile(request: Request[AcceleratorService]) -> Response:
    (document,) = request.json
    new = NewProfile(
        name=document["name"],
        groups=[{key: str(value) for key, value in group.items()} for group in document["groups"]],
        description=document.get("description"),
        uuid=document.get("uuid"),
    )
    return Response(201, shapes.profile(request.service.create_profile(new), request.base_url))


def delete_profile(request: Request[AcceleratorService], name_or_uuid: str) -> Response:
    return _delete_profiles(request, [name_or_uuid])


def delete_profiles(request: Request[AcceleratorService]) -> Response:
    return _delete_profiles(request, (request.query.first("value") or "").split(","))


def _delete_profiles(request: Request[AcceleratorService], names: Sequence[str]) -> Response:
    if not (wanted := [name for name in names if name]):
        raise Invalid("Name the device profiles to delete: ?value=<name>,<name>.")
    request.service.delete_profiles(wanted)
    return Response(204)
