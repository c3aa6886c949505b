"""What Placement is told of hosts: that one is disabled, and that one is no more. Repeating either is harmless."""

import logging

from moorage.compute.model.servers import Host
from moorage.core.errors import ConcurrentUpdate, Conflict, NotFound, Unavailable
from moorage.core.names import DISABLED_HOST_TRAIT
from moorage.placement.client.placement_client import PlacementClient, Provider

log = logging.getLogger(__name__)


def publish_status(placement: PlacementClient, host: Host) -> None:
    """The trait of a disabled host is set or taken away. Raises `Unavailable` while others keep changing its traits."""
    try:
        placement.put_trait(host.report.provider_uuid, DISABLED_HOST_TRAIT, wanted=not host.is_enabled)
    except NotFound:
        log.warning("the host has no provider yet", extra={"host": host.name})
    except ConcurrentUpdate as error:
        raise Unavailable(error.message) from error  # later, with what is new


def forget_host(placement: PlacementClient, root_uuid: str) -> None:
    """Its whole tree goes, children first. What is held there by others stays, and its ancestors with it."""
    for provider in _children_first(placement.tree(root_uuid)):
        try:
            placement.delete_provider(provider.uuid)
        except Conflict as error:
            log.warning(
                "a provider of a deleted host stays", extra={"provider": provider.uuid, "reason": error.message}
            )


def _children_first(tree: list[Provider]) -> list[Provider]:
    parents = {provider.uuid: provider.parent_uuid for provider in tree}

    def depth(provider: Provider) -> int:
        found, above = 0, provider.parent_uuid
        while above is not None:
            found, above = found + 1, parents.get(above)
        return found

    return sorted(tree, key=depth, reverse=True)
