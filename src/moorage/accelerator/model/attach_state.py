"""The attach state of one host and its transitions.

`AttachState` is the whole content of the host's checkpoint. Each function below performs one transition and returns the
next `AttachState`; `moorage.accelerator.host.attach` writes it to disk before (or after) it accesses a device.

The steps of an attachment are ``claimed -> preparing -> attached -> releasing``; then it is removed. After a crash,
`AttachEngine.recover` sees from the step which devices may have been accessed. Pure: no I/O here.
Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from moorage.accelerator.model import device_history
from moorage.accelerator.model.device_history import Journal, Requester
from moorage.accelerator.model.devices import (
    HANDLE_TRANSITIONS,
    REGION_TRANSITIONS,
    WITHHELD,
    Bitstream,
    Device,
    HandleState,
    Health,
    RegionState,
    Voucher,
)
from moorage.accelerator.model.errors import AlreadyPlugged, ConflictingBitstreams, NoCapacity
from moorage.accelerator.model.nesting import HandleSet, offered_devices, tree_of


class AttachStep(StrEnum):
    CLAIMED = "claimed"  #: no handle was accessed yet; its region may be in programming
    PREPARING = "preparing"
    ATTACHED = "attached"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class HandleRecord:
    """A handle that is not free. `instance_uuid` is empty if no instance holds it any more."""

    state: HandleState
    deployable: str
    instance_uuid: str = ""  #: of its holder; while it is cleaned, of the last one
    digest: str = ""  #: of the bitstream that the region must have for this holder; empty: any
    reason: str = ""  #: why it is quarantined
    cleaning_since: datetime | None = None
    by: Requester = field(default_factory=Requester)  #: the operator who ended its quarantine, until it is free


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """`bitstream` is the content while idle (None: blank); `wanted` is the bitstream being loaded while programming."""

    state: RegionState = RegionState.IDLE
    bitstream: Bitstream | None = None
    wanted: Bitstream | None = None
    by: Requester = field(default_factory=Requester)  #: the requester, while programming
    #: Why the blank could not be loaded. Loading is retried in every round; the history has a failure only once.
    failed: str = ""


@dataclass(frozen=True, slots=True)
class ClaimedHandle:
    """One handle of an attachment."""

    pci_id: str
    deployable: str
    rp_uuid: str
    group: str = ""  #: suffix of the request group


@dataclass(frozen=True, slots=True)
class Attachment:
    instance_uuid: str
    instance_name: str
    project_id: str
    request_digest: str  #: equal for a repetition of the same request
    step: AttachStep
    handles: tuple[ClaimedHandle, ...]  #: in the order in which `plug` returns them
    user_id: str = ""

    @property
    def who(self) -> Requester:
        return Requester(self.instance_uuid, self.project_id, self.user_id)


@dataclass(frozen=True, slots=True)
class HandleRequest:
    """`amount` handles of one deployable for one request group."""

    deployable: str
    handles: tuple[str, ...]  #: all handles of the deployable
    amount: int
    rp_uuid: str
    group: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class OperatorOverrides:
    """The operators' settings for the devices of a host."""

    withdrawn: frozenset[str] = frozenset()  #: addresses of cards that the operator disabled
    traits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: extra traits, by deployable


@dataclass(frozen=True, slots=True)
class AttachState:
    handles: Mapping[str, HandleRecord] = field(default_factory=dict)  #: by PCI address; absent: free
    attachments: Mapping[str, Attachment] = field(default_factory=dict)  #: by instance uuid
    regions: Mapping[str, RegionRecord] = field(default_factory=dict)  #: by deployable
    rp_uuids: Mapping[str, str] = field(default_factory=dict)  #: by deployable, as last published
    devices: tuple[Device, ...] = ()  #: as last discovered
    overrides: OperatorOverrides = OperatorOverrides()
    journal: Journal = field(default_factory=Journal)  #: history records that the service does not have yet

    def states(self) -> dict[str, HandleState]:
        return {pci_id: record.state for pci_id, record in self.handles.items()}

    def region(self, deployable: str) -> RegionRecord:
        return self.regions.get(deployable, RegionRecord())

    def holders(self, deployable: str, *, besides: str = "") -> list[HandleRecord]:
        """Records of the handles that are in use or being cleaned, without those of the instance `besides`."""
        return [
            record
            for record in self.handles.values()
            if record.deployable == deployable
            and record.state is not HandleState.QUARANTINED
            and (not besides or record.instance_uuid != besides)
        ]


# ---------------------------------------------------------------------------------------- plugging


def claim_handles(held: AttachState, new: Attachment, demands: Sequence[HandleRequest]) -> AttachState:
    """Claim all requested handles or none. Raises `NoCapacity`, `ConflictingBitstreams`, `AlreadyPlugged`."""
    if new.instance_uuid in held.attachments:
        raise AlreadyPlugged(f"instance {new.instance_uuid} already holds accelerators on this host")
    handles = dict(held.handles)
    claimed = []
    in_use = HandleSet(tree_of(held.devices), handles)
    for demand in demands:
        _check_region(held, demand, new)
        free = [pci_id for pci_id in demand.handles if pci_id not in handles]
        if len(free) < demand.amount:
            raise NoCapacity(
                f"{demand.deployable} has {len(free)} free attach handles of {len(demand.handles)}; "
                f"{demand.amount} are requested"
            )
        for pci_id in free[: demand.amount]:
            if reason := in_use.find_overlap(pci_id):
                raise NoCapacity(f"{pci_id} of {demand.deployable} cannot be given out now: {reason}")
            in_use.add(pci_id)
            handles[pci_id] = HandleRecord(
                HANDLE_TRANSITIONS.check_transition(HandleState.FREE, HandleState.CLAIMED),
                demand.deployable,
                new.instance_uuid,
                demand.digest,
            )
            claimed.append(ClaimedHandle(pci_id, demand.deployable, demand.rp_uuid, demand.group))
    attachment = replace(new, step=AttachStep.CLAIMED, handles=tuple(claimed))
    return replace(held, handles=handles, attachments={**held.attachments, new.instance_uuid: attachment})


def _check_region(held: AttachState, demand: HandleRequest, new: Attachment) -> None:
    """Raises an error if the request needs another bitstream than another instance that holds a handle of the region,
    or the region cannot be used now (A10).
    """
    region = held.region(demand.deployable)
    if region.state is RegionState.UNKNOWN or (region.state is RegionState.PROGRAMMING and not demand.digest):
        raise NoCapacity(f"region {demand.deployable} is {region.state} and cannot be used now")
    loaded = region.bitstream
    if not demand.digest and loaded is not None and not loaded.public and loaded.owner != new.project_id:
        raise ConflictingBitstreams(f"region {demand.deployable} has a bitstream of another project")
    loaded_digest = loaded.digest if loaded else ""
    for other in held.holders(demand.deployable, besides=new.instance_uuid):
        if (other.digest or loaded_digest) != (demand.digest or loaded_digest):
            raise ConflictingBitstreams(
                f"another instance uses region {demand.deployable} with another bitstream; "
                "the region can be programmed again after that instance has released it"
            )


def begin_programming(
    held: AttachState, deployable: str, wanted: Bitstream | None, for_instance: str = "", by: Requester | None = None
) -> AttachState:
    """Begins to load `wanted`, or the vendor's blank if None. Raises `ConflictingBitstreams` while another instance
    uses the region.

    An instance that only waits for the same bitstream does not use the region yet, and no instance uses a region whose
    content is unknown. `by`: the requester, if it is not for an instance.
    """
    region = held.region(deployable)
    is_unknown = region.state is RegionState.UNKNOWN
    for other in held.holders(deployable, besides=for_instance):
        same = wanted is not None and other.digest == wanted.digest
        if not (_is_untouched(held, other) and (same or is_unknown)):
            raise ConflictingBitstreams(f"region {deployable} is in use; it cannot be programmed now")
    state = REGION_TRANSITIONS.check_transition(region.state, RegionState.PROGRAMMING)
    attachment = held.attachments.get(for_instance)
    who = by or (attachment.who if attachment is not None else Requester())
    return _with_region(held, deployable, RegionRecord(state, None, wanted, who, region.failed))


def _is_untouched(held: AttachState, record: HandleRecord) -> bool:
    attachment = held.attachments.get(record.instance_uuid)
    return record.state is HandleState.CLAIMED and attachment is not None and attachment.step is AttachStep.CLAIMED


def end_programming(held: AttachState, deployable: str, loaded: Bitstream | None, failed: str = "") -> AttachState:
    """`failed`: why loading the blank failed, if it did."""
    state = REGION_TRANSITIONS.check_transition(held.region(deployable).state, RegionState.IDLE)
    return _with_region(held, deployable, RegionRecord(state, loaded, failed=failed))


def mark_region_unknown(held: AttachState, deployable: str, failed: str = "") -> AttachState:
    """The region's content is unknown. `failed`: why loading the blank failed, if it did."""
    state = REGION_TRANSITIONS.check_transition(held.region(deployable).state, RegionState.UNKNOWN)
    return _with_region(held, deployable, RegionRecord(state, failed=failed))


def begin_preparing(held: AttachState, instance_uuid: str) -> AttachState:
    return _with_step(held, instance_uuid, AttachStep.PREPARING)


def mark_attached(held: AttachState, instance_uuid: str) -> AttachState:
    return _with_step(_with_states(held, instance_uuid, HandleState.ATTACHED), instance_uuid, AttachStep.ATTACHED)


# --------------------------------------------------------------------------------------- releasing


def begin_release(held: AttachState, instance_uuid: str) -> AttachState:
    """If no handle was accessed yet, frees all and removes the attachment; otherwise all handles become dirty."""
    attachment = held.attachments[instance_uuid]
    if attachment.step is AttachStep.CLAIMED:
        return _without_attachment(_with_states(held, instance_uuid, HandleState.FREE), instance_uuid)
    if attachment.step is AttachStep.RELEASING:
        return held
    return _with_step(_with_states(held, instance_uuid, HandleState.DIRTY), instance_uuid, AttachStep.RELEASING)


def begin_cleaning(held: AttachState, pci_id: str, at: datetime) -> AttachState:
    """May be repeated, because a handle stays ``cleaning`` after a crash; the time of the first call counts."""
    if held.handles[pci_id].state is HandleState.CLEANING:
        return held
    held = _with_state(held, pci_id, HandleState.CLEANING)
    return replace(held, handles={**held.handles, pci_id: replace(held.handles[pci_id], cleaning_since=at)})


def free_handle(held: AttachState, pci_id: str) -> AttachState:
    return _with_state(held, pci_id, HandleState.FREE)


def quarantine_handle(held: AttachState, pci_id: str, reason: str) -> AttachState:
    held = _with_state(held, pci_id, HandleState.QUARANTINED)
    record = replace(
        held.handles[pci_id], instance_uuid="", digest="", reason=reason, cleaning_since=None, by=Requester()
    )
    return replace(held, handles={**held.handles, pci_id: record})


def end_release(held: AttachState, instance_uuid: str) -> AttachState:
    """Remove the attachment. Every handle of it must be free or quarantined, or still be cleaned by its device."""
    left = [
        pci_id
        for pci_id, record in held.handles.items()
        if record.instance_uuid == instance_uuid and record.state is not HandleState.CLEANING
    ]
    if left:
        raise ValueError(f"{instance_uuid} still holds {', '.join(left)}")
    return _without_attachment(held, instance_uuid)


def still_cleaning(held: AttachState) -> dict[str, HandleRecord]:
    """Released handles that are dirty or being cleaned. They keep the uuid of their last instance."""
    owned = {handle.pci_id for attachment in held.attachments.values() for handle in attachment.handles}
    states = (HandleState.DIRTY, HandleState.CLEANING)
    return {pci_id: record for pci_id, record in held.handles.items() if record.state in states and pci_id not in owned}


def leave_quarantine(held: AttachState, pci_id: str, by: Requester | None = None) -> AttachState:
    """The operator `by` requests that the handle is cleaned again; it is dirty until that succeeds."""
    held = _with_state(held, pci_id, HandleState.DIRTY)
    record = replace(held.handles[pci_id], reason="", by=by or Requester())
    return replace(held, handles={**held.handles, pci_id: record})


# -------------------------------------------------------------------------------- discovery and settings


def with_devices(held: AttachState, devices: Iterable[Device]) -> AttachState:
    """Replaces the devices by `devices`, without the handles that must not be offered (`nesting.offered_devices`).

    Known regions keep their records, which contain what this agent loaded.
    """
    in_use = {handle: record.deployable for handle, record in held.handles.items()}
    found = offered_devices(held.devices, devices, in_use)
    regions = {
        part.name: held.regions.get(part.name, RegionRecord(RegionState.IDLE, part.bitstream))
        for device in found
        for part in device.deployables
        if part.programmable
    }
    return replace(held, devices=tuple(_with_bitstreams(device, {}) for device in found), regions=regions)


def adopt_region_content(
    held: AttachState, deployable: str, state: RegionState, bitstream: Bitstream | None
) -> AttachState:
    """Records what the device reports about the content of an idle region. Call it before requests are served.

    This corrects the record and is no transition of the region, so the transition table does not have it. A bitstream
    without a digest is known only from the device, so it is never equal to a recorded one.
    """
    known = held.region(deployable).bitstream
    digest = bitstream.digest if bitstream is not None else ""
    if state is RegionState.IDLE and digest and known is not None and digest == known.digest:
        return held
    return _with_region(held, deployable, RegionRecord(state, bitstream if state is RegionState.IDLE else None))


def with_voucher(held: AttachState, deployable: str, unsigned: Voucher) -> AttachState:
    """Sets the voucher of a bitstream without a signed manifest, which depends on the options at the start."""
    region = held.region(deployable)
    if region.bitstream is None or not region.bitstream.digest or region.bitstream.voucher is Voucher.SIGNATURE:
        return held
    return _with_region(held, deployable, replace(region, bitstream=replace(region.bitstream, voucher=unsigned)))


def devices_as_loaded(held: AttachState) -> list[Device]:
    """The devices, with the recorded content of their regions."""
    return [_with_bitstreams(device, held.regions) for device in held.devices]


def _with_bitstreams(device: Device, regions: Mapping[str, RegionRecord]) -> Device:
    parts = (replace(part, bitstream=regions.get(part.name, RegionRecord()).bitstream) for part in device.deployables)
    return replace(device, deployables=tuple(parts))


def with_providers(held: AttachState, rp_uuids: Mapping[str, str]) -> AttachState:
    """`rp_uuids`: the current provider uuids in Placement, by deployable."""
    return replace(held, rp_uuids=dict(rp_uuids))


def with_operator_overrides(held: AttachState, overrides: OperatorOverrides) -> AttachState:
    return replace(held, overrides=overrides)


def with_transitions(
    held: AttachState, transitions: Sequence[device_history.DeviceTransition], at: datetime
) -> AttachState:
    return replace(held, journal=device_history.append_transitions(held.journal, transitions, at))


def drop_reported_records(held: AttachState, upto: int) -> AttachState:
    """Drop the records up to sequence number `upto`, which the service now has."""
    return replace(held, journal=device_history.drop_records(held.journal, upto))


def withheld_deployables(held: AttachState) -> frozenset[str]:
    """Deployables that must not be offered: their content is unknown, or an operator disabled the card."""
    withdrawn = (device for device in held.devices if device.pci_id in held.overrides.withdrawn)
    return unknown_regions(held) | {part.name for device in withdrawn for part in device.deployables}


def offered_state(held: AttachState) -> object:
    """The part of the state that determines inventories and traits. They are unchanged if two such values are equal."""
    kept_back = frozenset(pci_id for pci_id, record in held.handles.items() if record.state in WITHHELD)
    return held.devices, held.regions, held.overrides, kept_back


def failed_devices(held: AttachState) -> dict[str, tuple[str, ...]]:
    """{instance: descriptions of its devices that have failed or are gone}, of all instances that have any."""
    bad = {
        part.name: f"{device.type} {device.model} ({device.health})"
        for device in held.devices
        if device.health in (Health.FAILED, Health.GONE)
        for part in device.deployables
    }
    if not bad:
        return {}
    found = {
        uuid: tuple(bad[handle.deployable] for handle in attachment.handles if handle.deployable in bad)
        for uuid, attachment in held.attachments.items()
    }
    return {uuid: devices for uuid, devices in found.items() if devices}


def unknown_regions(held: AttachState) -> frozenset[str]:
    return frozenset(name for name, region in held.regions.items() if region.state is RegionState.UNKNOWN)


def _with_states(held: AttachState, instance_uuid: str, after: HandleState) -> AttachState:
    for handle in held.attachments[instance_uuid].handles:
        held = _with_state(held, handle.pci_id, after)
    return held


def _with_state(held: AttachState, pci_id: str, after: HandleState) -> AttachState:
    record = held.handles[pci_id]
    state = HANDLE_TRANSITIONS.check_transition(record.state, after)
    handles = {name: other for name, other in held.handles.items() if name != pci_id}
    if state is not HandleState.FREE:
        handles[pci_id] = replace(record, state=state)
    return replace(held, handles=handles)


def _with_step(held: AttachState, instance_uuid: str, step: AttachStep) -> AttachState:
    attachment = replace(held.attachments[instance_uuid], step=step)
    return replace(held, attachments={**held.attachments, instance_uuid: attachment})


def _with_region(held: AttachState, deployable: str, region: RegionRecord) -> AttachState:
    return replace(held, regions={**held.regions, deployable: region})


def _without_attachment(held: AttachState, instance_uuid: str) -> AttachState:
    others = {uuid: attachment for uuid, attachment in held.attachments.items() if uuid != instance_uuid}
    return replace(held, attachments=others)
