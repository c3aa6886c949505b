"""The reports of a host's agent to the central service: devices with their content, and attachments.

Both sides use these types; on the wire they are JSON objects with the same names. Pure: no I/O here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.accelerator.model.attach_state import Attachment, AttachState, AttachStep, devices_as_loaded
from moorage.accelerator.model.devices import Deployable, Device, Function, HandleState
from moorage.accelerator.model.naming import NameScheme, resource_class
from moorage.core.errors import Conflict


class Superseded(Conflict):
    """Another accelerator agent of the host started later, so reports of this one are refused."""

    code = "accelerator.superseded"


#: The name in `DeviceReport.details` of the reason why handles of a device are not offered.
NOT_OFFERED = "not_offered"


@dataclass(frozen=True, slots=True)
class ReportPosition:
    """The place of a report among the reports and job results of its host; the service assigns it."""

    epoch: int  #: of an agent, higher than those of the agents that started before it
    number: int  #: increases with each report and each result of a job


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """`is_stored`: False if the report was old. `next`: the position of the next report, which must be made later."""

    is_stored: bool
    next: ReportPosition


@dataclass(frozen=True, slots=True)
class HandleReport:
    pci_id: str
    state: str


@dataclass(frozen=True, slots=True)
class DeployableReport:
    """`functions`: only those of public bitstreams (A12)."""

    name: str
    handles: tuple[HandleReport, ...]
    rp_uuid: str | None = None
    region_type: str = ""
    region_state: str = ""
    bitstream_id: str | None = None
    functions: tuple[Function, ...] = ()


# A new field needs a default; otherwise the service refuses the reports of agents of the previous release. The service
# ignores fields that it does not know.
@dataclass(frozen=True, slots=True)
class DeviceReport:
    address: str
    type: str
    vendor: str
    product_id: str
    model: str
    driver: str
    health: str
    numa_node: int
    deployables: tuple[DeployableReport, ...]
    board: str = ""
    shell_id: str = ""
    details: tuple[tuple[str, str], ...] = ()
    resource_class: str = ""  #: the class of its providers in Placement
    part_of: str = ""  #: address of the physical function, if the device is a virtual function


@dataclass(frozen=True, slots=True)
class AttachmentReport:
    """One attached handle. `group` numbers the request groups of its instance, from 0."""

    instance_uuid: str
    project_id: str
    device_rp_uuid: str
    deployable: str
    group: int
    pci_id: str


def device_reports(held: AttachState, names: NameScheme = NameScheme.SPEC) -> list[DeviceReport]:
    return [_device_report(held, device, names) for device in devices_as_loaded(held)]


def attachment_reports(held: AttachState) -> list[AttachmentReport]:
    attached = (one for one in held.attachments.values() if one.step is AttachStep.ATTACHED)
    return [report for attachment in attached for report in _attachment_reports(attachment)]


def _attachment_reports(attachment: Attachment) -> Iterable[AttachmentReport]:
    suffixes = sorted({handle.group for handle in attachment.handles})
    return (
        AttachmentReport(
            instance_uuid=attachment.instance_uuid,
            project_id=attachment.project_id,
            device_rp_uuid=handle.rp_uuid,
            deployable=handle.deployable,
            group=suffixes.index(handle.group),
            pci_id=handle.pci_id,
        )
        for handle in attachment.handles
    )


def _device_report(held: AttachState, device: Device, names: NameScheme) -> DeviceReport:
    return DeviceReport(
        address=device.pci_id,
        type=str(device.type),
        vendor=device.vendor_id,
        product_id=device.product_id,
        model=device.model,
        driver=device.driver,
        health=str(device.health),
        numa_node=device.numa_node,
        deployables=tuple(_deployable_report(held, part) for part in device.deployables),
        board=device.board,
        shell_id=device.shell_id,
        details=device.details + (((NOT_OFFERED, device.withheld),) if device.withheld else ()),
        resource_class=resource_class(device.type, names),
        part_of=device.part_of,
    )


def _deployable_report(held: AttachState, part: Deployable) -> DeployableReport:
    states = held.states()
    loaded = part.bitstream
    return DeployableReport(
        name=part.name,
        handles=tuple(HandleReport(pci_id, str(states.get(pci_id, HandleState.FREE))) for pci_id in part.handles),
        rp_uuid=held.rp_uuids.get(part.name),
        region_type=part.region_type,
        region_state=str(held.region(part.name).state) if part.programmable else "",
        bitstream_id=loaded.image_id or None if loaded else None,
        functions=loaded.functions if loaded and loaded.is_published else (),
    )
