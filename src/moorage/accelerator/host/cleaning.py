"""Cleans the handles that instances have released, and frees or quarantines them.

A handle is recorded as ``cleaning`` before its driver is called, and is free only when the driver has proved that it is
clean. A device that needs longer stays ``cleaning``, also over a restart of the agent, and `continue_cleaning` calls
its driver again. Not here: how a device is cleaned (`drivers`).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from moorage.accelerator.drivers.base import AcceleratorDriver, Cleaned, DriverError, StillCleaning
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.device_registry import DeviceRegistry
from moorage.accelerator.host.programming import KeyedLocks
from moorage.accelerator.model import attach_state as h
from moorage.accelerator.model.attach_state import AttachState, ClaimedHandle
from moorage.accelerator.model.device_history import Requester
from moorage.accelerator.model.devices import HandleState
from moorage.accelerator.model.errors import BadRequest
from moorage.core.clock import Clock

log = logging.getLogger(__name__)


class HandleCleaner:
    """Thread-safe. Calls for the same handle run one at a time."""

    def __init__(self, registry: DeviceRegistry, checkpoint: Checkpoint, clock: Clock) -> None:
        self._registry = registry
        self._checkpoint = checkpoint
        self._clock = clock
        self._locks = KeyedLocks()

    def clean_handles(
        self, handles: Sequence[ClaimedHandle], at_last: Callable[[AttachState], AttachState]
    ) -> list[str]:
        """Release all `handles`, then clean them, then mark each free or quarantined; a handle that its device has not
        finished stays ``cleaning``. Returns ``<handle> (<reason>)`` per failure.

        After a crash in between, handles are dirty or ``cleaning``, and all of it is repeated. `at_last` is applied in
        the step that frees the handles.
        """
        failures: dict[str, str] = {}
        proofs: dict[str, str] = {}
        for handle in handles:
            self._call_driver(handle, failures, lambda driver, pci_id: driver.release(pci_id))
        now = self._clock.now()

        def begun(held: AttachState) -> AttachState:
            for handle in handles:
                held = h.begin_cleaning(held, handle.pci_id, now)
            return held

        self._checkpoint.step(begun)
        for handle in handles:
            if handle.pci_id in failures:
                continue
            answer = self._call_driver(handle, failures, lambda driver, pci_id: driver.clean(pci_id))
            if isinstance(answer, StillCleaning):
                self._fail_if_late(handle, answer, failures)
            elif answer is not None:
                proofs[handle.pci_id] = f"{answer.proof}; {self._seconds(handle):.0f} s"

        def ended(held: AttachState) -> AttachState:
            for handle in handles:
                if reason := failures.get(handle.pci_id):
                    held = h.quarantine_handle(held, handle.pci_id, reason)
                elif handle.pci_id in proofs:
                    held = h.free_handle(held, handle.pci_id)
            return at_last(held)

        self._checkpoint.step(ended, proofs=proofs)
        return [f"{pci_id} ({reason})" for pci_id, reason in failures.items()]

    def clean_again(self, pci_id: str, deployable: str) -> list[str]:
        """Cleans a handle that no instance holds. Returns the failure as a list; empty if there was none."""
        with self._locks.held(pci_id):
            if pci_id not in h.still_cleaning(self._checkpoint.state):  # another thread has finished it
                return []
            return self.clean_handles([ClaimedHandle(pci_id, deployable, rp_uuid="")], lambda held: held)

    def release_quarantined(self, pci_id: str, reason: str, by: Requester, *, is_clean: bool) -> list[str]:
        """Ends a quarantine and cleans the handle again; returns the failure as a list.

        With `is_clean`, frees it without cleaning: the operator `by` vouches for it.
        """
        with self._locks.held(pci_id):
            record = self._checkpoint.state.handles.get(pci_id)
            if record is None or record.state is not HandleState.QUARANTINED:
                raise BadRequest(f"{pci_id} is not quarantined on this host")
            self._checkpoint.step(partial(h.leave_quarantine, pci_id=pci_id, by=by), reason)
            if not is_clean:
                return self.clean_handles([ClaimedHandle(pci_id, record.deployable, rp_uuid="")], lambda held: held)
            self._checkpoint.step(partial(h.begin_cleaning, pci_id=pci_id, at=self._clock.now()))
            vouched = f"freed without cleaning, on the word of an operator: {reason}"
            self._checkpoint.step(partial(h.free_handle, pci_id=pci_id), vouched)
            return []

    def continue_cleaning(self) -> None:
        """Calls the drivers of all handles whose cleaning has not finished."""
        for pci_id, record in h.still_cleaning(self._checkpoint.state).items():
            self.clean_again(pci_id, record.deployable)

    def _call_driver(
        self,
        handle: ClaimedHandle,
        failures: dict[str, str],
        verb: Callable[[AcceleratorDriver, str], Cleaned | StillCleaning | None],
    ) -> Cleaned | StillCleaning | None:
        """None if the verb has no result or failed."""
        try:
            return verb(self._registry.deployable(handle.deployable).driver, handle.pci_id)
        except (DriverError, BadRequest) as error:
            log.error("handle is quarantined", extra={"handle": handle.pci_id, "reason": error.message})
            failures[handle.pci_id] = error.message
            return None

    def _fail_if_late(self, handle: ClaimedHandle, answer: StillCleaning, failures: dict[str, str]) -> None:
        seconds = self._seconds(handle)
        if seconds > answer.allowed_s:
            reason = f"not clean after {seconds:.0f} s, {answer.allowed_s:.0f} s are allowed ({answer.progress})"
            log.error("handle is quarantined", extra={"handle": handle.pci_id, "reason": reason})
            failures[handle.pci_id] = reason
        else:
            log.info("a device is still being cleaned", extra={"handle": handle.pci_id, "progress": answer.progress})

    def _seconds(self, handle: ClaimedHandle) -> float:
        record = self._checkpoint.state.handles[handle.pci_id]
        return (self._clock.now() - record.cleaning_since).total_seconds() if record.cleaning_since else 0.0
