"""Checks the accelerators of this host in its agent's checkpoint: which of them are not offered, and why."""

from collections.abc import Iterator

from moorage.accelerator.host.checkpoint import read_attach_state
from moorage.accelerator.model.attach_state import AttachState
from moorage.accelerator.model.devices import HandleState, Health
from moorage.cli.doctor.finding import CheckFinding, broken, fine, warning
from moorage.config import Config
from moorage.core.errors import StartError


def check_devices(config: Config) -> Iterator[CheckFinding]:
    if not {"agent", "accelerator-agent"}.intersection(config.runs):
        return
    path = config.state / "accelerators" / "checkpoint.json"
    try:
        held = read_attach_state(path)
    except (StartError, OSError) as error:
        yield broken("devices", str(error), path, "restore the file; the agent does not start without it")
        return
    wrong = list(_not_offered(held))
    yield from wrong
    if not wrong:
        yield fine("devices", f"all {len(held.devices)} devices of this host are offered", path)


def _not_offered(held: AttachState) -> Iterator[CheckFinding]:
    for device in held.devices:
        where = f"{device.pci_id} ({device.model})"
        if device.withheld:
            remedy = "let the device specs of [accelerator] select what to offer, then wait for the next discovery"
            yield warning("devices", f"not offered: {device.withheld}", where, remedy)
        if device.health is not Health.OK:
            yield warning("devices", f"its health is {device.health}", where, "see the agent's log and the kernel's")
    for handle, record in held.handles.items():
        if record.state is HandleState.QUARANTINED:
            remedy = "remove the cause, then let the host clean it again"
            yield warning("devices", f"quarantined: {record.reason}", handle, remedy)
