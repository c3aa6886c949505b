"""/resource_providers/{uuid}/aggregates"""

from moorage.placement.api.handlers.answers import PlacementApiRequest, answer
from moorage.placement.forest.model import Provider
from moorage.wire.http import Response


def show(request: PlacementApiRequest, uuid: str) -> Response:
    provider = request.service.providers.get(uuid)
    return _answer(request, provider, sorted(provider.aggregates))


def update(request: PlacementApiRequest, uuid: str) -> Response:
    """From 1.19 on with the provider's generation, which it moves."""
    if request.version >= (1, 19):
        aggregates, generation = request.json["aggregates"], request.json["resource_provider_generation"]
    else:
        aggregates, generation = request.json, None
    return _answer(request, request.service.providers.set_aggregates(uuid, generation, aggregates), aggregates)


def _answer(request: PlacementApiRequest, provider: Provider, aggregates: list[str]) -> Response:
    body: dict[str, object] = {"aggregates": aggregates}
    if request.version >= (1, 19):
        body["resource_provider_generation"] = provider.generation
    return answer(request, body)
