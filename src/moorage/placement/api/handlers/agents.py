"""Limits the agent of a host to the provider tree of its host.

A tree belongs to the host that has the name of its root provider. Only administrators and services may rename or move a
provider. An agent may not create a root of another name, nor a provider below one of another host, because it would
then own that host's tree. In its own tree it may not change

* inventories and traits of reservations, and the trait of a disabled host, because services set them;
* the provider that has the slots of reservations (`core.names.reservation_provider`).

It may create resource classes and traits, but not delete or rename them. Routes that are not in `CHECKS` are refused.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from uuid import UUID

from moorage.core.errors import Forbidden, Invalid, NotFound
from moorage.core.names import DISABLED_HOST_TRAIT, is_reservation_class, reservation_provider
from moorage.placement.api.handlers import allocations, inventories, names, providers
from moorage.placement.api.handlers.answers import PlacementApiRequest
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.wire.http import Response

Handler = Callable[..., Response]


def check_list(request: PlacementApiRequest, host: str) -> None:
    """Allows listing its root by name, or its tree."""
    match request.query.pairs:
        case [("name", name)] if name == host:
            return
        case [("in_tree", uuid)]:
            forest = request.service.providers.forest()
            provider = forest.by_uuid(_canonical(uuid))
            if provider is None or _is_own(forest, provider, host):
                return
    raise _refusal(host, "it may only list its root provider by name, or the providers of its tree")


def own_provider(request: PlacementApiRequest, host: str, uuid: str) -> Provider:
    """A provider in the host's tree, also if others created it. Raises `Forbidden`, or `NotFound` if there is none."""
    forest = request.service.providers.forest()
    provider = forest.by_uuid(_canonical(uuid))
    if provider is None:
        raise NotFound(f"No resource provider with uuid {uuid} found")
    if not _is_own(forest, provider, host):
        raise _refusal(host, f"provider {uuid} belongs to another host")
    return provider


def check_create(request: PlacementApiRequest, host: str) -> None:
    name, parent_uuid = request.json["name"], request.json.get("parent_provider_uuid")
    if parent_uuid is None:
        if name != host:
            raise _refusal(host, f"its root provider must be named {host}, not {name}")
        return
    own_provider(request, host, parent_uuid)
    if not name.startswith(f"{host}_"):
        raise _refusal(host, f"the names of its nested providers must begin with {host}_, but {name} does not")


def check_delete(request: PlacementApiRequest, host: str, uuid: str) -> None:
    """Allows deleting nested providers. An operator deletes the root when the host is retired."""
    provider = own_provider(request, host, uuid)
    if provider.is_root:
        raise _refusal(host, "only an operator may delete a root provider")
    if provider.name == reservation_provider(host):
        raise _refusal(host, f"provider {provider.name} belongs to the reservation service")


def check_inventories(request: PlacementApiRequest, host: str, uuid: str) -> None:
    provider = own_provider(request, host, uuid)
    wanted = inventories.decode_inventories(request.json["inventories"])
    before, after = _of_reservations(provider.inventories), _of_reservations(wanted)
    if before != after and provider.generation == request.json["resource_provider_generation"]:
        raise _refusal(host, f"it may not change the inventories of reservations: {_differing(before, after)}")


def check_traits(request: PlacementApiRequest, host: str, uuid: str) -> None:
    provider = own_provider(request, host, uuid)
    changed = {
        name for name in provider.traits.symmetric_difference(request.json["traits"]) if _is_set_by_services(name)
    }
    if changed and provider.generation == request.json["resource_provider_generation"]:
        raise _refusal(host, f"it may not change these traits: {', '.join(sorted(changed))}")


def check_new_name(_request: PlacementApiRequest, host: str, name: str) -> None:
    if _is_set_by_services(name):
        raise _refusal(host, f"only services may create {name}")


#: {handler of a route: its check, which raises `Forbidden` for objects outside the host's tree}.
CHECKS: Mapping[Handler, Callable[..., object]] = {
    providers.list_providers: check_list,
    providers.create_provider: check_create,
    providers.delete_provider: check_delete,
    inventories.list_inventories: own_provider,
    inventories.replace_inventories: check_inventories,
    names.show_provider_traits: own_provider,
    names.set_provider_traits: check_traits,
    allocations.provider_usages: own_provider,
    allocations.show_provider_allocations: own_provider,
    names.ensure_class: check_new_name,
    names.create_trait: check_new_name,
}


def with_agent_check(handler: Handler) -> Handler:
    """`handler`, limited by `CHECKS` for agents of hosts."""
    check = CHECKS.get(handler)

    @wraps(handler)
    def checked(request: PlacementApiRequest, /, **parameters: str) -> Response:
        if (host := request.caller.host) is not None:
            if check is None:
                raise _refusal(host, "only services and operators may use this route")
            check(request, host, **parameters)
        return handler(request, **parameters)

    return checked


def _is_own(forest: Forest, provider: Provider, host: str) -> bool:
    root = forest.by_id(provider.root_id)
    return root is not None and root.name == host


def _of_reservations(found: Mapping[str, object]) -> dict[str, object]:
    return {name: inventory for name, inventory in found.items() if is_reservation_class(name)}


def _is_set_by_services(name: str) -> bool:
    return name == DISABLED_HOST_TRAIT or is_reservation_class(name)


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    return ", ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _canonical(uuid: str) -> str:
    try:
        return str(UUID(uuid))
    except ValueError as error:
        raise Invalid(f"{uuid!r} is not a uuid") from error


def _refusal(host: str, why: str) -> Forbidden:
    return Forbidden(f"the agent of host {host} may not do this: {why}", code="placement.other_host")
