"""Encodes rows as Cyborg's JSON. As in Cyborg, some values are JSON in a string, and some times are Python's ``str`` of
a datetime.
"""

import json
from datetime import datetime

from moorage.accelerator.model.devices import mdev_of, pci_parts
from moorage.accelerator.model.rows import (
    FUNCTION,
    AttributeRecord,
    DeployableRecord,
    DeviceRecord,
    ProfileRecord,
    RequestRecord,
)
from moorage.core.errors import Invalid
from moorage.core.json import Json

MAX_PAGE_SIZE = 1000


_DEFAULT_PAGE_SIZE = 100


def decode_limit(text: str | None) -> int:
    """Raises `Invalid`."""
    if text is None:
        return _DEFAULT_PAGE_SIZE
    if not (text.isdecimal() and len(text) < 5 and 0 < int(text) <= MAX_PAGE_SIZE):
        raise Invalid(f"limit={text!r}; use a number from 1 to {MAX_PAGE_SIZE}.")
    return int(text)


def device_document(row: DeviceRecord, base_url: str, *, with_status: bool) -> dict[str, Json]:
    # Cyborg has no health, and the stock client shows only fields that it knows, so the health is part of such a field.
    health = {"health": row.health}
    if row.health_since is not None:
        health["health_since"] = row.health_since.isoformat(timespec="seconds")
    body: dict[str, Json] = {
        "uuid": row.uuid,
        "type": row.type,
        "vendor": row.vendor,
        "model": row.model,
        "std_board_info": json.dumps({**row.std_board_info, **health}),
        "vendor_board_info": json.dumps(row.vendor_board_info),
        "hostname": row.hostname,
        "links": _links(base_url, f"devices/{row.uuid}"),
        **_times(row.created_at, row.updated_at),
    }
    return body | {"status": row.status} if with_status else body


def deployable_document(row: DeployableRecord, base_url: str, *, private: bool) -> dict[str, Json]:
    """Without `private`, the bitstream is named only if its functions are public (A12)."""
    known = private or any(key == FUNCTION for key, _ in row.attributes)
    return {
        "uuid": row.uuid,
        "parent_id": None,
        "root_id": row.id,
        "name": row.name,
        "num_accelerators": row.num_accelerators,
        "device_id": row.device_id,
        "attributes_list": json.dumps([{key: value} for key, value in row.attributes]),
        "rp_uuid": row.rp_uuid,
        "driver_name": row.driver_name,
        "bitstream_id": row.bitstream_id if known else None,
        "links": [
            *_links(base_url, f"deployables/{row.uuid}"),
            {"href": f"{base_url}/deployables/{row.uuid}", "rel": "bookmark"},
        ],
        **_times(row.created_at, row.updated_at),
    }


def request_document(row: RequestRecord, base_url: str) -> dict[str, Json]:
    return {
        "uuid": row.uuid,
        "state": row.state,
        "device_profile_name": row.device_profile_name,
        "device_profile_group_id": row.device_profile_group_id,
        "hostname": row.hostname,
        "device_rp_uuid": row.device_rp_uuid,
        "instance_uuid": row.instance_uuid,
        "project_id": row.project_id,
        "attach_handle_type": _handle_type(row.pci_id),
        "attach_handle_uuid": row.attach_handle_uuid,
        "attach_handle_info": _handle_info(row),
        "links": _links(base_url, f"accelerator_requests/{row.uuid}"),
        **_times(row.created_at, row.updated_at),
    }


def _handle_type(handle: str | None) -> str:
    if not handle:
        return ""
    return "PCI" if mdev_of(handle) is None else "MDEV"


def _handle_info(row: RequestRecord) -> dict[str, str | None]:
    """The PCI address of the handle, or of a mediated device's card, with fields that Nova expects.

    Nova reads `physical_network` of each request of a port and fails without it, so it is null if the device has none.
    Requests that a host reported have no port.
    """
    if not row.pci_id:
        return {}
    mdev = mdev_of(row.pci_id)
    if mdev is None:
        network = {} if row.device_profile_name is None else {"physical_network": row.physical_network}
        return {**pci_parts(row.pci_id), **network}
    return {**pci_parts(mdev.parent), "asked_type": mdev.type, "vgpu_mark": f"{mdev.type}_{mdev.slot}"}


def attribute_document(row: AttributeRecord, base_url: str) -> dict[str, Json]:
    return {
        "uuid": row.uuid,
        "deployable_id": row.deployable_id,
        "key": row.key,
        "value": row.value,
        "links": _links(base_url, f"attributes/{row.uuid}"),
        **_times(row.created_at, row.updated_at),
    }


def profile_document(row: ProfileRecord, base_url: str) -> dict[str, Json]:
    return {
        "uuid": row.uuid,
        "name": row.name,
        "description": row.description,
        "groups": row.groups,
        "links": _links(base_url, f"device_profiles/{row.uuid}"),
        **_times(row.created_at, row.updated_at),
    }


def shown_profile_document(row: ProfileRecord, base_url: str) -> dict[str, Json]:
    """Cyborg 17 shows a single profile with ``str()`` of its times, including "None" (measured)."""
    moments = {
        "created_at": _whole_seconds(row.created_at),
        "updated_at": row.updated_at and _whole_seconds(row.updated_at),
    }
    return profile_document(row, base_url) | {name: str(moment) for name, moment in moments.items()}


def _links(base_url: str, path: str) -> list[dict[str, str]]:
    return [{"href": f"{base_url}/v2/{path}", "rel": "self"}]


def _times(created_at: datetime, updated_at: datetime | None) -> dict[str, str | None]:
    return {
        "created_at": _whole_seconds(created_at).isoformat(),
        "updated_at": _whole_seconds(updated_at).isoformat() if updated_at else None,
    }


def _whole_seconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
