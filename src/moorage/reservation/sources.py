"""What reservations are made of that somebody else knows: flavors as their caller sees them, device profiles, traits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from moorage.compute.client import ComputeClient, Flavor
from moorage.core.caller import Caller
from moorage.core.errors import Invalid, NotFound
from moorage.core.names import is_reservation_class
from moorage.placement.client import PlacementClient
from moorage.reservation.demand import Demand
from moorage.reservation.requests import AnyRequest, FlavorRequest, FlavorWish, Request, SourceFlavor, Wish
from moorage.reservation.resource_types.flavor_instance import demand_of
from moorage.scheduler.device_profiles import specs_of_profile
from moorage.scheduler.flavor_resources import PROFILE_KEY


class ProfileLookup(Protocol):
    def profile_groups(self, name: str) -> Sequence[Mapping[str, str]] | None:
        """None where there is no such profile."""
        ...


class Sources:
    def __init__(self, placement: PlacementClient, compute: ComputeClient, profiles: ProfileLookup | None) -> None:
        """`profiles`: None in a cloud without accelerators, where no flavor can name one."""
        self._placement = placement
        self._compute = compute
        self._profiles = profiles

    def request(self, caller: Caller, wish: Wish) -> Request:
        """Raises `NotFound` for a flavor that the caller does not see, `Invalid` for one that cannot be reserved."""
        if isinstance(wish, AnyRequest) and wish.bitstream_id and self._profiles is None:
            raise Invalid("bitstream_id: this cloud has no accelerator service")
        if not isinstance(wish, FlavorWish):
            return wish
        source = self._source(caller, wish.flavor_id)
        demand = demand_of(source)
        if own := sorted(name for name in demand.totals if is_reservation_class(name)):
            raise Invalid(f"flavor {wish.flavor_id} is that of a reservation: it takes {own[0]}; name another one")
        return FlavorRequest(source, wish.amount, wish.affinity, wish.resource_properties)

    def resolved(self, demand: Demand) -> tuple[Demand, frozenset[str] | None]:
        """(the demand with the providers that have the traits that it names, the hosts that its root traits admit)"""
        roots: frozenset[str] | None = None
        if demand.root_required or demand.root_forbidden:
            roots = self._having(demand.root_required, demand.root_forbidden)
        return demand.known(self._having), roots

    def _having(self, required: tuple[str, ...], forbidden: tuple[str, ...]) -> frozenset[str]:
        """A trait that Placement does not know is one that no provider has."""
        unknown = [name for name in (*required, *forbidden) if not self._placement.has_trait(name)]
        if set(unknown) & set(required):
            return frozenset()
        terms = [*required, *(f"!{name}" for name in forbidden if name not in unknown)]
        found = self._placement.providers([("required", ",".join(terms))] if terms else [])
        return frozenset(provider.name for provider in found)

    def _source(self, caller: Caller, flavor_id: str) -> SourceFlavor:
        flavor = self._compute.flavor(flavor_id)
        if flavor is None or flavor.id != flavor_id or not self._sees(caller, flavor):
            raise NotFound(f"Flavor {flavor_id} could not be found.")
        source = SourceFlavor(
            flavor.id,
            flavor.name,
            flavor.vcpus,
            flavor.ram_mb,
            flavor.disk_gb,
            flavor.ephemeral_gb,
            flavor.swap_mb,
            flavor.extra_specs,
        )
        name = flavor.extra_specs.get(PROFILE_KEY)
        if name is None:
            return source
        groups = self._profiles.profile_groups(name) if self._profiles is not None else None
        if groups is None:
            raise Invalid(
                f"{PROFILE_KEY}={name}: there is no device profile of this name; make it, or name another one"
            )
        return replace(source, profile_specs=specs_of_profile(flavor.extra_specs, groups))

    def _sees(self, caller: Caller, flavor: Flavor) -> bool:
        return flavor.is_public or caller.is_admin or caller.project_id in self._compute.flavor_access(flavor.id)
