"""/resource_providers/{uuid}/aggregates"""

from moorage.placement.api.handlers.answers import PlacementCall, answer
from moorage.placement.forest.model import Provider
from moorage.wire.http import Reply


def show(call: PlacementCall, uuid: str) -> Reply:
    provider = call.service.providers.get(uuid)
    return _answer(call, provider, sorted(provider.aggregates))


def update(call: PlacementCall, uuid: str) -> Reply:
    """From 1.19 on with the provider's generation, which it moves."""
    if call.version >= (1, 19):
        aggregates, generation = call.json["aggregates"], call.json["resource_provider_generation"]
    else:
        aggregates, generation = call.json, None
    return _answer(call, call.service.providers.set_aggregates(uuid, generation, aggregates), aggregates)


def _answer(call: PlacementCall, provider: Provider, aggregates: list[str]) -> Reply:
    body: dict[str, object] = {"aggregates": aggregates}
    if call.version >= (1, 19):
        body["resource_provider_generation"] = provider.generation
    return answer(call, body)
