"""What a host's agent tells the central service: devices, what is loaded and who holds what. Pure."""

from typing import Any

from moorage.accelerator.holdings import Holdings, Step, devices_as_loaded
from moorage.accelerator.model import Deployable, Device, HandleState


def device_reports(held: Holdings) -> list[dict[str, Any]]:
    """In the shape of `moorage.accelerator.schemas.DEVICES`. A private bitstream's functions are not told (A12)."""
    return [_device(held, device) for device in devices_as_loaded(held)]


def attachment_reports(held: Holdings) -> list[dict[str, Any]]:
    """One row per attached handle, in the shape of `moorage.accelerator.schemas.ATTACHMENTS`."""
    return [
        {
            "instance_uuid": attachment.instance_uuid,
            "project_id": attachment.project_id,
            "device_rp_uuid": handle.rp_uuid,
            "deployable": handle.deployable,
            "group": handle.group,
            "pci_id": handle.pci_id,
        }
        for attachment in held.attachments.values()
        if attachment.step is Step.ATTACHED
        for handle in attachment.handles
    ]


def _device(held: Holdings, device: Device) -> dict[str, Any]:
    return {
        "address": device.pci_id,
        "type": str(device.type),
        "vendor": device.vendor_id,
        "product_id": device.product_id,
        "model": device.model,
        "board": device.board,
        "shell_id": device.shell_id,
        "numa_node": device.numa_node,
        "health": str(device.health),
        "driver": device.driver,
        "deployables": [_deployable(held, part) for part in device.deployables],
    }


def _deployable(held: Holdings, part: Deployable) -> dict[str, Any]:
    states = held.states()
    loaded = part.bitstream
    return {
        "name": part.name,
        "rp_uuid": held.rp_uuids.get(part.name),
        "region_type": part.region_type,
        "region_state": str(held.region(part.name).state),
        "bitstream_id": (loaded.image_id or None) if loaded else None,
        "functions": [{"id": one.id, "name": one.name} for one in loaded.functions] if loaded and loaded.public else [],
        "handles": [{"pci_id": pci_id, "state": str(states.get(pci_id, HandleState.FREE))} for pci_id in part.handles],
    }
