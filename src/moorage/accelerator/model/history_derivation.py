"""What a step of the holdings means for the history of devices: read off the state before it and after it.

No step can change hands without being seen here, whoever takes it. Pure: no I/O here.
"""

from collections.abc import Iterator

from moorage.accelerator.model.attach_state import HandleRecord, Holdings, RegionRecord
from moorage.accelerator.model.device_history import Event, Happening, Who
from moorage.accelerator.model.devices import HandleState, RegionState

_EVENTS = {
    (HandleState.CLAIMED, HandleState.ATTACHED): Event.ATTACH,
    (HandleState.CLAIMED, HandleState.DIRTY): Event.ATTACH,  # it failed
    (HandleState.ATTACHED, HandleState.DIRTY): Event.DETACH,
    (HandleState.CLEANING, HandleState.FREE): Event.CLEAN,
    (HandleState.CLEANING, HandleState.QUARANTINED): Event.QUARANTINE,
    (HandleState.QUARANTINED, HandleState.DIRTY): Event.RELEASE,
}


def happenings(before: Holdings, after: Holdings, reason: str) -> list[Happening]:
    return [*_of_regions(before, after, reason), *_of_handles(before, after, reason)]


def _of_handles(before: Holdings, after: Holdings, reason: str) -> Iterator[Happening]:
    if before.handles is after.handles:
        return
    for pci_id, was in before.handles.items():
        now = after.handles.get(pci_id)
        event = _EVENTS.get((was.state, HandleState.FREE if now is None else now.state))
        if event is None:
            continue
        loaded = after.region(was.deployable).bitstream
        failed = event is Event.QUARANTINE or (
            event is Event.ATTACH and now is not None and now.state is HandleState.DIRTY
        )
        yield Happening(
            event,
            was.deployable,
            pci_id,
            _holder(before, was),
            loaded.image_id if loaded else "",
            loaded.digest if loaded else "",
            done=not failed,
            reason=(now.reason if now is not None and now.reason else reason),
        )


def _of_regions(before: Holdings, after: Holdings, reason: str) -> Iterator[Happening]:
    if before.regions is after.regions:
        return
    for deployable, was in before.regions.items():
        now = after.regions.get(deployable)
        if was.state is not RegionState.PROGRAMMING or now is None or now.state is RegionState.PROGRAMMING:
            continue
        done = now.state is RegionState.IDLE and _digest(now) == (was.wanted.digest if was.wanted else "")
        if was.wanted is None and not done and was.failed and was.failed == now.failed:
            continue  # the mending of a region is tried in every round
        unknown = "nobody knows what the region carries now" if now.state is RegionState.UNKNOWN else ""
        yield Happening(
            Event.PROGRAM,
            deployable,
            who=was.by,
            image_id=was.wanted.image_id if was.wanted else "",
            digest=was.wanted.digest if was.wanted else "",
            done=done,
            reason="; ".join(filter(None, (reason, unknown))),
        )


def _holder(before: Holdings, record: HandleRecord) -> Who:
    attachment = before.attachments.get(record.instance_uuid)
    return Who(record.instance_uuid) if attachment is None else attachment.who


def _digest(region: RegionRecord) -> str:
    return region.bitstream.digest if region.bitstream else ""
