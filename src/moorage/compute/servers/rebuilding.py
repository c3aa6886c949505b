"""Whether a server can stay where it is with another image: what that asks of its host, the host must have."""

from collections.abc import Mapping

from moorage.compute.model.servers import Flavor
from moorage.compute.requests.server_request import fields_of
from moorage.scheduler.filters import runs_the_image
from moorage.scheduler.flavor_resources import ResourceRequest, request_for
from moorage.scheduler.hosts import HostState, ServerRequirements
from moorage.scheduler.image_needs import architecture, hypervisor_type, image_needs


def objection(
    flavor: Flavor, before: Mapping[str, str], after: Mapping[str, str], host: HostState, traits: frozenset[str]
) -> str | None:
    """`before`, `after`: properties of the images; `traits`: of the providers that the server holds something of, and of
    its host. Raises `Invalid` where `after` and the flavor contradict each other.
    """
    needs = image_needs(after)
    old, new = request_for(fields_of(flavor), image_needs(before)), request_for(fields_of(flavor), needs)
    if (wanted := _amounts(new)) != (held := _amounts(old)):
        return f"it asks for {_listed(wanted)}, and the server has {_listed(held)}"
    plain = new.groups.get("")
    if plain is not None:
        if missing := sorted(set(plain.required) - traits):
            return f"it requires {', '.join(missing)}, which the host of the server does not have"
        if unwanted := sorted(set(plain.forbidden) & traits):
            return f"it forbids {', '.join(unwanted)}, which the host of the server has"
    return runs_the_image(
        host, ServerRequirements("", architecture=architecture(needs), hypervisor_type=hypervisor_type(needs))
    )


def _amounts(request: ResourceRequest) -> dict[str, int]:
    total: dict[str, int] = {}
    for group in request.groups.values():
        for name, amount in group.resources.items():
            total[name] = total.get(name, 0) + amount
    return total


def _listed(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))
