"""Derives the device history from attach states: compares the state before a step with the state after it.

So every step that changes a holder or a region makes a record. Pure: no I/O here.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from moorage.accelerator.model.attach_state import AttachState, HandleRecord, RegionRecord
from moorage.accelerator.model.device_history import DeviceEvent, DeviceTransition, Requester
from moorage.accelerator.model.devices import HandleState, RegionState

_EVENT_BY_STATES = {
    (HandleState.CLAIMED, HandleState.ATTACHED): DeviceEvent.ATTACH,
    (HandleState.CLAIMED, HandleState.DIRTY): DeviceEvent.ATTACH,  # the attachment failed
    (HandleState.ATTACHED, HandleState.DIRTY): DeviceEvent.DETACH,
    (HandleState.CLEANING, HandleState.FREE): DeviceEvent.CLEAN,
    (HandleState.CLEANING, HandleState.QUARANTINED): DeviceEvent.QUARANTINE,
    (HandleState.QUARANTINED, HandleState.DIRTY): DeviceEvent.RELEASE,
}


def derive_transitions(
    before: AttachState, after: AttachState, reason: str, proofs: Mapping[str, str] = MappingProxyType({})
) -> list[DeviceTransition]:
    """`proofs`: by handle, how it was cleaned in this step."""
    return [*_region_transitions(before, after, reason), *_handle_transitions(before, after, reason, proofs)]


def _handle_transitions(
    before: AttachState, after: AttachState, reason: str, proofs: Mapping[str, str]
) -> Iterator[DeviceTransition]:
    if before.handles is after.handles:
        return
    for pci_id, was in before.handles.items():
        now = after.handles.get(pci_id)
        event = _EVENT_BY_STATES.get((was.state, HandleState.FREE if now is None else now.state))
        if event is None:
            continue
        loaded = after.region(was.deployable).bitstream
        failed = event is DeviceEvent.QUARANTINE or (
            event is DeviceEvent.ATTACH and now is not None and now.state is HandleState.DIRTY
        )
        yield DeviceTransition(
            event,
            was.deployable,
            pci_id,
            _operator(was, now) or _holder(before, was),
            loaded.image_id if loaded else "",
            loaded.digest if loaded else "",
            done=not failed,
            reason=now.reason if now is not None and now.reason else proofs.get(pci_id, reason),
        )


def _region_transitions(before: AttachState, after: AttachState, reason: str) -> Iterator[DeviceTransition]:
    if before.regions is after.regions:
        return
    for deployable, was in before.regions.items():
        now = after.regions.get(deployable)
        if was.state is not RegionState.PROGRAMMING or now is None or now.state is RegionState.PROGRAMMING:
            continue
        done = now.state is RegionState.IDLE and _loaded_digest(now) == (was.wanted.digest if was.wanted else "")
        if was.wanted is None and not done and was.failed and was.failed == now.failed:
            continue  # a failed repair is retried in every round; record it only once
        unknown = "the region's content is now unknown" if now.state is RegionState.UNKNOWN else ""
        yield DeviceTransition(
            DeviceEvent.PROGRAM,
            deployable,
            who=was.by,
            image_id=was.wanted.image_id if was.wanted else "",
            digest=was.wanted.digest if was.wanted else "",
            done=done,
            reason="; ".join(filter(None, (reason, unknown))),
        )


def _operator(was: HandleRecord, now: HandleRecord | None) -> Requester | None:
    """The operator who ended the quarantine, if that is why the handle changes."""
    record = now if was.state is HandleState.QUARANTINED and now is not None else was
    return record.by if record.by != Requester() else None


def _holder(before: AttachState, record: HandleRecord) -> Requester:
    attachment = before.attachments.get(record.instance_uuid)
    return Requester(record.instance_uuid) if attachment is None else attachment.who


def _loaded_digest(region: RegionRecord) -> str:
    return region.bitstream.digest if region.bitstream else ""
