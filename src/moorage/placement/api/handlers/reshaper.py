"""POST /reshaper"""

from moorage.placement.api.handlers.allocations import wish
from moorage.placement.api.handlers.answers import PlacementApiRequest, done
from moorage.placement.api.handlers.inventories import decode_all
from moorage.placement.rules.reshaping import NewInventories
from moorage.wire.http import Response


def reshape(request: PlacementApiRequest) -> Response:
    inventories = {
        uuid: NewInventories(
            document["resource_provider_generation"],
            decode_all(document["inventories"]),
        )
        for uuid, document in request.json["inventories"].items()
    }
    wishes = [wish(request, consumer, document) for consumer, document in request.json["allocations"].items()]
    request.service.allocations.reshape(inventories, wishes)
    return done(request)
