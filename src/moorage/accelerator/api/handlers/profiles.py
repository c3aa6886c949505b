"""Device profiles."""

from collections.abc import Sequence

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.model.device_profile import NewProfile
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid, NotAcceptable
from moorage.core.ids import is_uuid
from moorage.wire.http import Call, Reply
from moorage.wire.microversion import Version

NAMES_SINCE = Version(2, 2)


def index(call: Call[AcceleratorService]) -> Reply:
    names = [name for text in call.query.every("name") for name in text.split(",") if name]
    rows = call.service.profiles(names)
    return Reply(body={"device_profiles": [shapes.profile(row, call.base_url) for row in rows]})


def show(call: Call[AcceleratorService], name_or_uuid: str) -> Reply:
    if not is_uuid(name_or_uuid) and call.version < NAMES_SINCE:
        raise NotAcceptable(
            f"A device profile can be asked for by name from microversion {NAMES_SINCE} on; this is {call.version}.",
            code="moorage.microversion",
        )
    row = call.service.profile(name_or_uuid)
    return Reply(body={"device_profile": shapes.shown_profile(row, call.base_url)})


def create(call: Call[AcceleratorService]) -> Reply:
    (document,) = call.json
    new = NewProfile(
        name=document["name"],
        groups=[{key: str(value) for key, value in group.items()} for group in document["groups"]],
        description=document.get("description"),
        uuid=document.get("uuid"),
    )
    return Reply(201, shapes.profile(call.service.create_profile(new), call.base_url))


def delete(call: Call[AcceleratorService], name_or_uuid: str) -> Reply:
    return _delete(call, [name_or_uuid])


def delete_several(call: Call[AcceleratorService]) -> Reply:
    return _delete(call, (call.query.first("value") or "").split(","))


def _delete(call: Call[AcceleratorService], names: Sequence[str]) -> Reply:
    if not (wanted := [name for name in names if name]):
        raise Invalid("Name the device profiles to delete: ?value=<name>,<name>.")
    call.service.delete_profiles(wanted)
    return Reply(204)
