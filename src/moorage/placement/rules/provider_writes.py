"""Changes of providers, of their position in a tree, and of their traits and aggregates, decided on a write set."""

from collections.abc import Collection

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.placement.forest.model import Provider
from moorage.placement.rules.allocation_writes import CONCURRENT_UPDATE
from moorage.placement.rules.write_set import WriteSet

DUPLICATE_NAME = "placement.duplicate_name"
IN_USE = "placement.resource_provider.inuse"
HAS_CHILDREN = "placement.resource_provider.cannot_delete_parent"


def existing_provider(write_set: WriteSet, uuid: str, missing: str = "") -> Provider:
    """Raises `NotFound`, with `missing` appended to the usual message."""
    provider = write_set.by_uuid(uuid)
    if provider is None:
        raise NotFound(f"No resource provider with uuid {uuid} found{missing}")
    return provider


def at_generation(write_set: WriteSet, uuid: str, generation: int | None, stale: str) -> Provider:
    """The provider. Raises `ConcurrentUpdate` with the message `stale` if a generation is given and differs."""
    provider = existing_provider(write_set, uuid)
    if generation is not None and provider.generation != generation:
        raise ConcurrentUpdate(stale, code=CONCURRENT_UPDATE)
    return provider


# --- the tree -----------------------------------------------------------------------------------------------------


def create_provider(write_set: WriteSet, uuid: str, name: str, parent_uuid: str | None) -> Provider:
    def refused(reason: str) -> Invalid:
        return Invalid(
            f'Unable to create resource provider "{name}", {uuid}: Object action create failed because: {reason}'
        )

    if not name:
        raise refused("name is required")
    if parent_uuid == uuid:
        raise refused(
            "parent provider UUID cannot be same as UUID. Please set parent provider UUID to None if there is no "
            "parent."
        )
    parent = None if parent_uuid is None else write_set.by_uuid(parent_uuid)
    if parent_uuid is not None and parent is None:
        raise refused("parent provider UUID does not exist.")
    # If uuid and name exist, the message names the uuid, as that of the peer's databases.
    if write_set.by_uuid(uuid) is not None:
        raise _duplicate(f"uuid: {uuid}")
    if write_set.is_name_taken(name):
        raise _duplicate(f"name: {name}")
    return write_set.create(uuid, name, parent)


def _duplicate(what: str) -> Conflict:
    return Conflict(f"Conflicting resource provider {what} already exists.", code=DUPLICATE_NAME)


def update_provider(
    write_set: WriteSet, uuid: str, name: str, parent_uuid: str | None, *, parent_given: bool, may_move: bool
) -> Provider:
    """Rename, and set the parent if `parent_given`. `may_move` (from 1.37 on): allow to change or remove the parent.

    Moves the whole subtree to the new tree. Generations stay, as with the peer.
    """
    provider = existing_provider(write_set, uuid)
    parent_id, root_id, moved = provider.parent_id, provider.root_id, list[Provider]()
    if parent_given:
        parent_id, root_id, moved = _new_place(write_set, provider, parent_uuid, may_move=may_move)
    if write_set.is_name_taken(name, but=provider.id):
        raise _duplicate(name)
    for member in moved:
        if member.id != provider.id and member.root_id != root_id:
            write_set.change(member, root_id=root_id)
    return write_set.change(provider, name=name, parent_id=parent_id, root_id=root_id, updated_at=write_set.now)


def _new_place(
    write_set: WriteSet, provider: Provider, parent_uuid: str | None, *, may_move: bool
) -> tuple[int | None, int, list[Provider]]:
    """(parent id, root id, the subtree that moves)."""

    def refused(reason: str, action: str = "update") -> Invalid:
        return Invalid(
            f"Unable to save resource provider {provider.uuid}: Object action {action} failed because: {reason}"
        )

    if parent_uuid is None:
        if provider.parent_id is None:
            return None, provider.root_id, []
        if not may_move:
            raise refused("un-parenting a provider is not currently allowed.")
        return None, provider.id, write_set.subtree(provider)
    parent = write_set.by_uuid(parent_uuid)
    if parent is None:
        raise refused("parent provider UUID does not exist.", "create")
    if provider.parent_id not in (None, parent.id) and not may_move:
        raise refused("re-parenting a provider is not currently allowed.")
    moved = write_set.subtree(provider)
    if any(member.id == parent.id for member in moved):
        raise refused("creating loop in the provider tree is not allowed.")
    return parent.id, parent.root_id, moved


def delete_provider(write_set: WriteSet, uuid: str) -> None:
    provider = existing_provider(write_set, uuid, " for delete")
    if len(write_set.subtree(provider)) > 1:
        raise Conflict(
            f"Unable to delete parent resource provider {uuid}: It has child resource providers.", code=HAS_CHILDREN
        )
    if any(provider.used.values()):
        raise Conflict(f"Unable to delete resource provider {uuid}: Resource provider has allocations.", code=IN_USE)
    write_set.drop(provider)


# --- traits and aggregates ----------------------------------------------------------------------------------------

_STALE = "Resource provider's generation already changed. Please update the generation and try again."


def set_traits(write_set: WriteSet, uuid: str, generation: int | None, names: Collection[str]) -> Provider:
    """`generation` None: do not compare it. If no trait changes, the generation stays."""
    provider = at_generation(write_set, uuid, generation, _STALE)
    traits = frozenset(names)
    if missing := sorted(traits.difference(write_set.forest.names.traits)):
        raise Invalid(f"No such trait {', '.join(missing)}")
    if traits == provider.traits:
        return provider
    return write_set.change(provider, traits=traits, generation=provider.generation + 1, updated_at=write_set.now)


def set_aggregates(write_set: WriteSet, uuid: str, generation: int | None, aggregates: Collection[str]) -> Provider:
    """`generation` None: a request below 1.19, which does not increase the provider's generation."""
    provider = at_generation(write_set, uuid, generation, _STALE)
    after = provider.generation if generation is None else provider.generation + 1
    return write_set.change(provider, aggregates=frozenset(aggregates), generation=after, updated_at=write_set.now)
