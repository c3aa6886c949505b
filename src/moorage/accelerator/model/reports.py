"""The reports of a host's agent to the central service: devices with their content, and attachments.

Both sides use these types; on the wire they are JSON objects with the same names. Pure: no I/O here.

The functions `check_...` check a report before the service stores it, and raise `Invalid`. The reports of our agents
pass. Another program with a host's credential must not write what the tables cannot hold, nor use a name of another
host: a deployable's name begins with the address of its card. An address has colons and a host's name has none, so
`provider_name` differs for any two hosts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moorage.accelerator.model.attach_state import Attachment, AttachState, AttachStep, devices_as_loaded
from moorage.accelerator.model.devices import (
    PHYSICAL_NETWORK,
    Deployable,
    Device,
    Function,
    HandleState,
    Health,
    check_handle,
    pci_parts,
)
from moorage.accelerator.model.naming import NameScheme, resource_class
from moorage.accelerator.model.nesting import find_nested, reported_tree
from moorage.core.errors import Conflict, Invalid
from moorage.core.ids import is_uuid


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


#: Lengths of the columns of `store.tables`. A provider's name has the host's name before the deployable's.
MAX_TYPE, MAX_TEXT, MAX_DEPLOYABLE = 30, 255, 64
MAX_GROUP = 1000
#: A host that starts every second reaches this epoch after 30,000 years. Higher ones than the stored one are believed
#: only up to here; otherwise one report could leave no higher epochs for the host's later agents.
MAX_FOREIGN_POSITION = 1 << 40

_STATES, _HEALTHS = frozenset(HandleState), frozenset(Health)


def check_device_reports(host: str, reports: Sequence[DeviceReport]) -> None:
    names: set[str] = set()
    addresses: set[str] = set()
    for report in reports:
        _check_device(report)
        _add_once(addresses, report.address)
        for part in report.deployables:
            _check_deployable(report.address, part)
            _add_once(names, part.name)
    _check_not_nested(host, reports)


def check_attachment_reports(reports: Sequence[AttachmentReport]) -> None:
    holders: dict[str, str] = {}
    for report in reports:
        check_handle(report.pci_id)
        _check_texts(MAX_TEXT, report.project_id)
        for uuid in (report.instance_uuid, report.device_rp_uuid):
            _check_uuid(uuid)
        if not 0 <= report.group <= MAX_GROUP:
            raise Invalid(f"the report has a request group {report.group}; they are numbered from 0 to {MAX_GROUP}")
        if (holder := holders.setdefault(report.pci_id, report.instance_uuid)) != report.instance_uuid:
            raise Invalid(f"the report has two holders of handle {report.pci_id}: {holder} and {report.instance_uuid}")


def check_foreign_position(position: ReportPosition) -> None:
    """Check a position that this service has not assigned, as far as it knows."""
    if max(position.epoch, position.number) > MAX_FOREIGN_POSITION:
        raise Invalid(f"epoch {position.epoch} and number {position.number} are not from this service")


def check_bitstream_id(image_id: str | None) -> None:
    _check_texts(MAX_TEXT, image_id or "")


def _check_device(report: DeviceReport) -> None:
    pci_parts(report.address)
    _check_texts(MAX_TYPE, report.type)
    network = dict(report.details).get(PHYSICAL_NETWORK, "")
    _check_texts(MAX_TEXT, report.vendor, report.model, report.driver, network)
    if report.health not in _HEALTHS:
        raise Invalid(f"{report.health[:MAX_TEXT]!r} is no health of a device")


def _check_deployable(address: str, part: DeployableReport) -> None:
    _check_texts(MAX_DEPLOYABLE, part.name)
    if part.name != address and not part.name.startswith(f"{address}_"):
        raise Invalid(f"the name of deployable {part.name!r} does not begin with the address of its card, {address}")
    check_bitstream_id(part.bitstream_id)
    if part.rp_uuid is not None:
        _check_uuid(part.rp_uuid)
    for handle in part.handles:
        check_handle(handle.pci_id)
    _check_states(handle.state for handle in part.handles)


def _check_states(states: Iterable[str]) -> None:
    for state in states:
        if state not in _STATES:
            raise Invalid(f"{state[:MAX_TEXT]!r} is no state of an attach handle")


def _check_not_nested(host: str, reports: Sequence[DeviceReport]) -> None:
    """The host does not offer such handles (`model.nesting`); another program in its place could."""
    handles = [handle for report in reports for part in report.deployables for handle in part.handles]
    tree = reported_tree(
        (report.address, report.part_of, [handle.pci_id for part in report.deployables for handle in part.handles])
        for report in reports
    )
    free = [handle.pci_id for handle in handles if handle.state == HandleState.FREE]
    if nested := find_nested(tree, free, [handle.pci_id for handle in handles if handle.state != HandleState.FREE]):
        handle, reason = nested
        raise Invalid(
            f"Host {host} offers {handle}, but {reason}, and both are offered or in use. Two guests cannot have them: "
            "let the host's device specs select one of the two."
        )


def _add_once(seen: set[str], name: str) -> None:
    if name in seen:
        raise Invalid(f"the report has {name} twice")
    seen.add(name)


def _check_texts(limit: int, *texts: str) -> None:
    for text in texts:
        if len(text) > limit:
            raise Invalid(f"{text[:limit]!r}... has {len(text)} characters; at most {limit} are allowed")


def _check_uuid(text: str) -> None:
    if not is_uuid(text):
        raise Invalid(f"{text[:MAX_TEXT]!r} is not a UUID")
