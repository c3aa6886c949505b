"""The engine behind `os_acc`: plug, unplug, and recovery after a crash.

Each step is written to the checkpoint before the device is accessed, so that after a kill at any moment `recover` can
finish or undo the operation. If a plug fails, it releases all that it has claimed before the caller gets the error. A
handle is never free while it is dirty; a handle that cannot be cleaned is quarantined.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.cleaning import HandleCleaner
from moorage.accelerator.host.device_registry import DeviceRegistry, ManagedDeployable
from moorage.accelerator.host.programming import ChosenBitstream, KeyedLocks, RegionProgrammer
from moorage.accelerator.model import attach_state as h
from moorage.accelerator.model.attach_state import Attachment, AttachState, AttachStep, ClaimedHandle, HandleRequest
from moorage.accelerator.model.device_history import Requester
from moorage.accelerator.model.devices import Health
from moorage.accelerator.model.errors import (
    AlreadyPlugged,
    BadRequest,
    CleanFailed,
    ConflictingBitstreams,
    NoCapacity,
    PrepareFailed,
)
from moorage.accelerator.model.naming import function_trait, same_id
from moorage.accelerator.model.profile import ProfileGroup, apply_image_hints, from_extra_specs, functions_of
from moorage.accelerator.model.request import PlugRequest
from moorage.core.errors import MoorageError

log = logging.getLogger(__name__)


class AttachEngine:
    """Thread-safe. Calls for the same instance run one at a time."""

    def __init__(
        self, registry: DeviceRegistry, checkpoint: Checkpoint, programmer: RegionProgrammer, cleaner: HandleCleaner
    ) -> None:
        self._registry = registry
        self._cleaner = cleaner
        self._checkpoint = checkpoint
        self._programmer = programmer
        self._instances = KeyedLocks()

    def plug(self, request: PlugRequest) -> tuple[ClaimedHandle, ...]:
        """Returns the handles, group after group. Returns the same for a repeated request (A9)."""
        profile = from_extra_specs(request.extra_specs)
        with self._instances.held(request.instance_uuid):
            if answer := self._already_plugged(request):
                return answer
            placed = [
                (group, unit, rp) for group in profile.groups for unit, rp in self._selected_deployables(group, request)
            ]
            if request.image_id and any(group.is_open for group in profile.groups):
                hinted = apply_image_hints(profile, self._programmer.image_hints(request.image_id, request.project_id))
                groups = {group.suffix: group for group in hinted.groups}
                placed = [(groups[group.suffix], unit, rp) for group, unit, rp in placed]
            chosen = self._find_bitstreams(placed, request.project_id)
            demands = [_handle_request(group, unit, rp, chosen.get(unit.deployable.name)) for group, unit, rp in placed]
            new = Attachment(
                request.instance_uuid, request.instance_name, request.project_id, request.digest,
                AttachStep.CLAIMED, (), request.user_id,
            )  # fmt: skip
            held = self._checkpoint.step(
                partial(self._claim_step, new=new, demands=demands, placed=placed, chosen=chosen)
            )
            try:
                return self._prepare_attachment(held.attachments[request.instance_uuid], placed, chosen)
            except Exception as error:  # any failure must release the claimed handles; raised again
                self._roll_back(request.instance_uuid, str(error))
                raise

    def unplug(self, instance_uuid: str, instance_name: str = "") -> int:
        """Returns the number of released handles; 0 if the instance has none. Raises `CleanFailed` with the handles
        that are quarantined.
        """
        with self._instances.held(instance_uuid):
            if instance_uuid not in self._checkpoint.state.attachments:
                return 0
            released = self._release(instance_uuid)
            log.info("unplugged", extra={"instance": instance_uuid, "instance_name": instance_name, "count": released})
            return released

    def release_quarantined(
        self, pci_id: str, reason: str = "", by: Requester | None = None, *, is_clean: bool = False
    ) -> None:
        """Cleans a quarantined handle again, for the operator `by`, and frees it. Raises `CleanFailed`.

        `reason`: why, for the history. `is_clean`: the operator vouches that nothing of a tenant is left; the handle is
        freed without cleaning.
        """
        failures = self._cleaner.release_quarantined(pci_id, reason, by or Requester(), is_clean=is_clean)
        if failures:
            raise CleanFailed(f"the handle stays quarantined; cleaning it failed again: {failures[0]}")

    def recover(self) -> None:
        """Repairs regions, then finishes or undoes interrupted plugs and unplugs.

        Call it before requests are served.
        """
        held = self._checkpoint.state
        for deployable in held.regions:
            self._programmer.recover_region(deployable)
        for attachment in held.attachments.values():
            if attachment.step is AttachStep.ATTACHED:
                self._prepare_again(attachment)
            else:
                log.info("undoing an interrupted plug or unplug", extra={"instance": attachment.instance_uuid})
                self._roll_back(attachment.instance_uuid, "the plug or unplug was interrupted")
        self._cleaner.continue_cleaning()

    def _prepare_again(self, attachment: Attachment) -> None:
        """Prepares the handles of an attachment again, because a restart of the host removes driver bindings and
        mediated devices (R51). Drivers do nothing if a handle is still prepared.

        An instance keeps a handle that cannot be prepared; the start of its guest then fails with the reason.
        """
        for handle in attachment.handles:
            try:
                self._registry.deployable(handle.deployable).driver.prepare(handle.pci_id, attachment.instance_uuid)
            except (DriverError, BadRequest) as error:
                why = {"instance": attachment.instance_uuid, "handle": handle.pci_id, "reason": error.message}
                log.error("a device could not be prepared again for its instance", extra=why)

    # ------------------------------------------------------------------------------------- plugging

    def _already_plugged(self, request: PlugRequest) -> tuple[ClaimedHandle, ...]:
        attachment = self._checkpoint.state.attachments.get(request.instance_uuid)
        if attachment is None:
            return ()
        if attachment.step is not AttachStep.ATTACHED:  # an earlier roll-back could not be recorded, so repeat it
            self._release(request.instance_uuid)
            return ()
        if attachment.request_digest != request.digest:
            raise AlreadyPlugged(
                f"instance {request.instance_uuid} already has {_pci_ids(attachment)} for another request; unplug first"
            )
        return attachment.handles

    def _selected_deployables(self, group: ProfileGroup, request: PlugRequest) -> list[tuple[ManagedDeployable, str]]:
        """For each accelerator type in `group`, the deployable selected for it, with its provider uuid (R19, R22)."""
        by_rp = {rp: deployable for deployable, rp in self._checkpoint.state.rp_uuids.items()}
        selected = request.providers_of(group.suffix)
        units = [(self._registry.deployable(by_rp[rp]), rp) for rp in selected if rp in by_rp]
        answer = []
        for kind in group.amounts:
            fitting = [(unit, rp) for unit, rp in units if unit.device.type == kind]
            if len(fitting) != 1:
                raise BadRequest(
                    f"{group.label} requests {kind}; of the selected resource providers {', '.join(selected)} "
                    f"{len(fitting)} are devices of this type on this host; exactly one is required"
                )
            device = fitting[0][0].device
            if device.health in (Health.FAILED, Health.GONE):
                raise NoCapacity(f"the card {device.pci_id} ({device.model}) of this host is {device.health}")
            if device.pci_id in self._checkpoint.state.overrides.withdrawn:
                raise NoCapacity(f"the card {device.pci_id} ({device.model}) of this host was disabled by an operator")
            answer.append(fitting[0])
        return answer

    def _find_bitstreams(
        self, placed: Sequence[tuple[ProfileGroup, ManagedDeployable, str]], project_id: str
    ) -> dict[str, ChosenBitstream]:
        """{deployable: bitstream} for each region to program. Runs before anything is claimed."""
        chosen: dict[str, ChosenBitstream] = {}
        for group, unit, _ in placed:
            name = unit.deployable.name
            if not group.wanted or (not unit.deployable.programmable and len(group.amounts) > 1):
                continue
            found = self._programmer.find_bitstream(
                group.wanted, unit, project_id, signed=group.signed, only_public=group.hinted
            )
            if name in chosen and chosen[name].bitstream.digest != found.bitstream.digest:
                raise ConflictingBitstreams(
                    f"two groups request region {name}, one with image {chosen[name].image.id}, the other with "
                    f"{found.image.id}; a region can carry only one image"
                )
            chosen[name] = found
        return chosen

    def _claim_step(
        self,
        held: AttachState,
        new: Attachment,
        demands: Sequence[HandleRequest],
        placed: Sequence[tuple[ProfileGroup, ManagedDeployable, str]],
        chosen: Mapping[str, ChosenBitstream],
    ) -> AttachState:
        """Claims the handles. If nothing has to be programmed, the same step also begins to prepare them, which saves a
        write to the disk.
        """
        after = h.claim_handles(held, new, demands)
        if chosen:
            return after
        for group, unit, _ in placed:
            _check_functions(after, group, unit)
        return h.begin_preparing(after, new.instance_uuid)

    def _prepare_attachment(
        self,
        attachment: Attachment,
        placed: Sequence[tuple[ProfileGroup, ManagedDeployable, str]],
        chosen: Mapping[str, ChosenBitstream],
    ) -> tuple[ClaimedHandle, ...]:
        uuid = attachment.instance_uuid
        for deployable, found in chosen.items():
            self._programmer.load_bitstream(deployable, found, uuid)
        if chosen:
            for group, unit, _ in placed:
                _check_functions(self._checkpoint.state, group, unit)
            self._checkpoint.step(partial(h.begin_preparing, instance_uuid=uuid))
        for handle in attachment.handles:
            try:
                self._registry.deployable(handle.deployable).driver.prepare(handle.pci_id, uuid)
            except DriverError as error:
                raise PrepareFailed(f"{handle.pci_id} cannot be prepared: {error.message}") from error
        self._checkpoint.step(partial(h.mark_attached, instance_uuid=uuid))
        pci_ids = _pci_ids(attachment)
        log.info("plugged", extra={"instance": uuid, "instance_name": attachment.instance_name, "pci_ids": pci_ids})
        return attachment.handles

    # ------------------------------------------------------------------------------------ releasing

    def _roll_back(self, instance_uuid: str, reason: str) -> None:
        """Undoes a plug. Only logs failures, because the caller gets the first error; handles that cannot be cleaned
        are quarantined.
        """
        try:
            self._release(instance_uuid, reason)
        except (MoorageError, OSError):
            log.exception("a failed plug could not be undone completely", extra={"instance": instance_uuid})

    def _release(self, instance_uuid: str, reason: str = "") -> int:
        """`reason`: why the handles are released without a request to do so."""
        handles = self._checkpoint.state.attachments[instance_uuid].handles
        held = self._checkpoint.step(partial(h.begin_release, instance_uuid=instance_uuid), reason)
        failures: list[str] = []
        if instance_uuid in held.attachments:
            # A crash may have interrupted an earlier release that finished some of the handles.
            left = [
                one
                for one in handles
                if (record := held.handles.get(one.pci_id)) and record.instance_uuid == instance_uuid
            ]
            failures = self._cleaner.clean_handles(left, partial(h.end_release, instance_uuid=instance_uuid))
        for deployable in dict.fromkeys(handle.deployable for handle in handles):
            self._programmer.blank_if_needed(deployable)
        if failures:
            raise CleanFailed(f"released, but quarantined because cleaning failed: {'; '.join(failures)}")
        return len(handles)


def _handle_request(
    group: ProfileGroup, unit: ManagedDeployable, rp_uuid: str, chosen: ChosenBitstream | None
) -> HandleRequest:
    part = unit.deployable
    digest = chosen.bitstream.digest if chosen else ""
    return HandleRequest(part.name, part.handles, group.amounts[unit.device.type], rp_uuid, group.suffix, digest)


def _pci_ids(attachment: Attachment) -> list[str]:
    return [handle.pci_id for handle in attachment.handles]


def _check_functions(held: AttachState, group: ProfileGroup, unit: ManagedDeployable) -> None:
    """Raises `ConflictingBitstreams` if the region no longer has a function that the group requires (R26)."""
    if group.wanted or not unit.deployable.programmable:
        return
    loaded = held.region(unit.deployable.name).bitstream
    carried = loaded.functions if loaded else ()
    for text in sorted(group.required_traits):
        wanted = functions_of(text)
        if wanted and not any(same_id(one, function.id or function.name) for one in wanted for function in carried):
            names = ", ".join(sorted(function_trait(unit.device.vendor, one) for one in carried)) or "no function"
            raise ConflictingBitstreams(
                f"{group.label} needs function {' or '.join(wanted)}, but region {unit.deployable.name} now has {names}"
            )
