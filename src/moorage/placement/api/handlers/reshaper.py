"""POST /reshaper"""

from moorage.placement.api.handlers.allocations import wish
from moorage.placement.api.handlers.answers import PlacementCall, done
from moorage.placement.api.handlers.inventories import decode_all
from moorage.placement.rules.reshaping import NewInventories
from moorage.wire.http import Reply


def reshape(call: PlacementCall) -> Reply:
    inventories = {
        uuid: NewInventories(
            document["resource_provider_generation"],
            decode_all(document["inventories"]),
        )
        for uuid, document in call.json["inventories"].items()
    }
    wishes = [wish(call, consumer, document) for consumer, document in call.json["allocations"].items()]
    call.service.allocations.reshape(inventories, wishes)
    return done(call)
