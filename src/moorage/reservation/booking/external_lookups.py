"""Looks up flavors, device profiles, traits and bitstreams of reservations in other services."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from moorage.accelerator.client import NoBitstream, ProgramRequest
from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Flavor
from moorage.core.caller import Caller
from moorage.core.errors import Invalid, NotBuilt, NotFound
from moorage.core.names import is_reservation_class
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.capacity.resource_types.flavor_instance import demand_of
from moorage.reservation.capacity.resource_types.registry import type_named
from moorage.reservation.model.reservation_requests import (
    VIRTUAL_FLOATING_IP,
    AnyRequest,
    FlavorRequest,
    FloatingIpRequest,
    ReservationRequest,
    SourceFlavor,
    UnresolvedFlavorRequest,
    UnresolvedRequest,
)
from moorage.reservation.model.slot_demand import ProvidersWith, SlotDemand
from moorage.reservation.steps.floating_ip_steps import NO_NETWORK_SERVICE
from moorage.scheduler.extra_specs import device_profile_specs, numbered_groups
from moorage.scheduler.flavor_resources import PROFILE_KEY


class AcceleratorLookup(Protocol):
    def profile_groups(self, name: str) -> Sequence[Mapping[str, str]] | None:
        """None if there is no such profile."""
        ...

    def find_bitstream(self, wanted: ProgramRequest, project_id: str, traits: Iterable[str]) -> NoBitstream | None:
        """None if the bitstream exists. Raises `NotFound` if the service cannot search."""
        ...


class ExternalLookups:
    def __init__(
        self,
        placement: PlacementClient,
        compute: ComputeClient,
        accelerators: AcceleratorLookup | None,
        *,
        has_network: bool = False,
    ) -> None:
        """`accelerators`: None if the cloud has no accelerator service; then no flavor may name a device profile.

        `has_network`: False if there is no network service; then floating IPs cannot be reserved.
        """
        self._placement = placement
        self._compute = compute
        self._accelerators = accelerators
        self._has_network = has_network

    def resolve_request(self, caller: Caller, unresolved: UnresolvedRequest) -> ReservationRequest:
        """The complete request, with the flavor that it refers to.

        Raises `NotFound` for a flavor that the caller may not see, `Invalid` for one that cannot be reserved,
        `NotBuilt` for floating IPs without a network service, and the errors of `check_bitstream`.
        """
        if isinstance(unresolved, FloatingIpRequest) and not self._has_network:
            raise NotBuilt(f"{VIRTUAL_FLOATING_IP} cannot be reserved: {NO_NETWORK_SERVICE}")
        if not isinstance(unresolved, UnresolvedFlavorRequest):
            self.check_bitstream(unresolved, caller.project_id)
            return unresolved
        source = self._source(caller, unresolved.flavor_id)
        demand = demand_of(source)
        if own := sorted(name for name in demand.totals if is_reservation_class(name)):
            raise Invalid(
                f"flavor {unresolved.flavor_id} belongs to a reservation: it requests {own[0]}; choose another flavor"
            )
        return FlavorRequest(source, unresolved.amount, unresolved.affinity, unresolved.resource_properties)

    def check_bitstream(self, request: ReservationRequest, project_id: str) -> None:
        """Raises `NotFound` if the project has no such bitstream, `Invalid` if several images match."""
        if not isinstance(request, AnyRequest) or not request.programs:
            return
        type_named(request.resource_type).wanted(request)  # refuse invalid requests first
        ((way, _),) = request.programs.items()
        if self._accelerators is None:
            raise Invalid(f"{way} cannot be used: this cloud has no accelerator service")
        wanted = ProgramRequest(request.bitstream_id, request.function_id, request.function_name)
        traits = [trait for trait, how in request.traits.items() if how == "required"]
        try:
            missing = self._accelerators.find_bitstream(wanted, project_id, traits)
        except NotFound as error:
            if way != "bitstream_id":  # Cyborg itself loads a bitstream by its image id
                raise Invalid(
                    f"{way}: this cloud's accelerator service cannot search for images; use bitstream_id instead"
                ) from error
            return
        if missing is not None:
            raise (Invalid if missing.is_ambiguous else NotFound)(f"{way}: {missing.message}")

    def resolve_demand(
        self, demand: SlotDemand, providers_with: ProvidersWith | None = None
    ) -> tuple[SlotDemand, frozenset[str] | None]:
        """(the demand with the providers that have its traits, names of the hosts that match its root traits).

        The second is None if the demand has no root traits: then all hosts match. `providers_with`: a cache of the
        method of that name, for many demands.
        """
        having = providers_with or self.providers_with
        roots: frozenset[str] | None = None
        if demand.root_required or demand.root_forbidden:
            roots = having(demand.root_required, demand.root_forbidden)
        return demand.known(having), roots

    def providers_with(self, required: tuple[str, ...], forbidden: tuple[str, ...]) -> frozenset[str]:
        """Names of providers with all `required` and no `forbidden` traits. A trait unknown to Placement is on none."""
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
        groups = self._accelerators.profile_groups(name) if self._accelerators is not None else None
        if groups is None:
            raise Invalid(
                f"{PROFILE_KEY}={name}: there is no device profile with this name; create it or name another one"
            )
        return replace(source, profile_specs=device_profile_specs(flavor.extra_specs, numbered_groups(groups)))

    def _sees(self, caller: Caller, flavor: Flavor) -> bool:
        return flavor.is_public or caller.is_admin or caller.project_id in self._compute.flavor_access(flavor.id)
