"""The steps of FPGA reservations: program their regions and reserve them for their servers. Each may be repeated.

    program   sets the trait of reserved regions on the region's provider; programs the region through the accelerator
              service; sets the reservation's own trait
    retire    removes both traits
    empty     removes both traits, then empties the region if it still carries the reservation's image

The flavor of the reservation's servers requires the reservation's own trait, so they use a region only after it was
programmed, and no other region of the class. The trait of reserved regions keeps other servers off
(`scheduler.candidate_query`). The host verifies a bitstream's digest and signature before it programs it, and skips an
image that is already programmed, so a step may be repeated.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from moorage.accelerator.client import ProgramRequest, RemoteDeployable
from moorage.core.errors import Conflict, MoorageError, NotFound, RemoteError
from moorage.core.names import RESERVED_REGION_TRAIT, is_reservation_class
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.model.steps import Actions, DeleteTrait, EmptyRegion, ProgramRegion, RetireRegion, Waiting

log = logging.getLogger(__name__)

#: How long an end waits for a region to be emptied for its next user.
EMPTIED_WITHIN_S = 20.0


class AcceleratorPrograms(Protocol):
    """The accelerator service's methods to program regions. They return the id of the programmed image; None: empty."""

    def deployables(self) -> Sequence[RemoteDeployable]: ...
    def program(self, uuid: str, wanted: ProgramRequest, project_id: str) -> str | None: ...
    def empty(self, uuid: str, only: ProgramRequest, wait_s: float) -> str | None: ...


class FpgaSteps:
    """`accelerators`: None if the cloud has no accelerator service; then no reservation has a bitstream."""

    def __init__(self, placement: PlacementClient, accelerators: AcceleratorPrograms | None) -> None:
        self._placement = placement
        self._accelerators = accelerators
        self.actions: Actions = {
            ProgramRegion: self._program,
            EmptyRegion: self._empty,
            RetireRegion: self._retire,
            DeleteTrait: self._delete_trait,
        }

    def _program(self, step: ProgramRegion) -> None:
        accelerators, part = self._found(step.deployable)
        if part is None:
            raise NotFound(f"the accelerator service has no deployable named {step.deployable}")
        provider = self._placement.provider_by_name(step.deployable)
        if provider is None:
            raise NotFound(f"Placement has no resource provider named {step.deployable}")
        wanted = _wanted(step)
        self._placement.ensure_trait(RESERVED_REGION_TRAIT)
        self._placement.put_trait(provider.uuid, RESERVED_REGION_TRAIT, wanted=True)
        carried = accelerators.program(part.uuid, wanted, step.project_id)
        if carried is None or (wanted.bitstream_id and carried != wanted.bitstream_id):
            raise Conflict(f"{step.deployable} should carry {wanted} but carries {carried or 'nothing'}")
        self._placement.ensure_trait(step.trait)
        self._placement.put_trait(provider.uuid, step.trait, wanted=True)

    def _retire(self, step: RetireRegion | EmptyRegion) -> None:
        """Keeps new servers off the region; servers that use it keep it. Works while the host is down."""
        provider = self._placement.provider_by_name(step.deployable)
        if provider is None:
            return
        self._placement.put_trait(provider.uuid, step.trait, wanted=False)
        _, traits = self._placement.traits(provider.uuid)
        others = [trait for trait in traits if is_reservation_class(trait) and trait != RESERVED_REGION_TRAIT]
        if not others:  # no other reservation uses the region meanwhile
            self._placement.put_trait(provider.uuid, RESERVED_REGION_TRAIT, wanted=False)

    def _delete_trait(self, step: DeleteTrait) -> Waiting | None:
        try:
            self._placement.delete_trait(step.trait)
        except Conflict as error:
            return Waiting(f"{step.trait} is still set on a provider: {error.message}")
        return None

    def _empty(self, step: EmptyRegion) -> None:
        """Empties the region if it carries the reservation's image.

        Does not wait for a host that is down or a card that cannot be emptied, so that the lease can end: the
        accelerator service stores the order and runs it before any later order for the region.
        """
        self._retire(step)
        accelerators, part = self._found(step.deployable)
        if part is None:
            return
        try:
            accelerators.empty(part.uuid, _wanted(step), EMPTIED_WITHIN_S)
        except RemoteError as error:
            if error.status >= 500:
                raise
            log.warning(
                "could not empty a region; it keeps its bitstream",
                extra={"region": step.deployable, "reason": error.message},
            )

    def _found(self, name: str) -> tuple[AcceleratorPrograms, RemoteDeployable | None]:
        if self._accelerators is None:
            raise MoorageError(f"{name} cannot be programmed: no accelerator service is configured")
        parts = self._accelerators.deployables()
        return self._accelerators, next((part for part in parts if part.name == name), None)


def _wanted(step: ProgramRegion | EmptyRegion) -> ProgramRequest:
    return ProgramRequest(step.image_id, step.function_id, step.function_name)
