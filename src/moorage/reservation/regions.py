"""The steps of reservations of FPGAs in the accelerator service: what their regions carry. Each may be repeated.

The host verifies a bitstream's digest, and its signature, before it loads it, and loads nothing that is there already:
a step that is done again programs nothing again.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from moorage.accelerator.client import Deployable
from moorage.core.errors import Conflict, MoorageError, NotFound, RemoteError
from moorage.reservation.steps import Actions, Step, StepKind

log = logging.getLogger(__name__)


class Programming(Protocol):
    """The accelerator service. What is programmed is told by its image's id; None: nothing."""

    def deployables(self) -> Sequence[Deployable]: ...
    def program(self, uuid: str, image_id: str, project_id: str) -> str | None: ...
    def empty(self, uuid: str) -> str | None: ...


class RegionSteps:
    """`actions` are what it can do. `accelerators` is None in a cloud without any: no reservation names a bitstream there."""

    def __init__(self, accelerators: Programming | None) -> None:
        self._accelerators = accelerators
        self.actions: Actions = {
            StepKind.PROGRAM_REGION: self._program,
            StepKind.EMPTY_REGION: self._empty,
        }

    def _program(self, step: Step) -> None:
        accelerators, part = self._found(step)
        if part is None:
            raise NotFound(f"the accelerator service knows no deployable {step.deployable}")
        carried = accelerators.program(part.uuid, step.image_id, step.project_id)
        if carried != step.image_id:
            raise Conflict(f"{step.deployable} was to carry {step.image_id} and carries {carried or 'nothing'}")

    def _empty(self, step: Step) -> None:
        """Only what the reservation had put there. A card that cannot be emptied must not keep a lease from its end."""
        accelerators, part = self._found(step)
        if part is None or part.bitstream_id != step.image_id:
            return
        try:
            accelerators.empty(part.uuid)
        except RemoteError as error:
            if error.status >= 500:
                raise
            log.warning("a region keeps its bitstream", extra={"region": step.deployable, "reason": error.message})

    def _found(self, step: Step) -> tuple[Programming, Deployable | None]:
        if self._accelerators is None:
            raise MoorageError(f"there is no accelerator service to have {step.deployable} programmed by")
        parts = self._accelerators.deployables()
        return self._accelerators, next((part for part in parts if part.name == step.deployable), None)
