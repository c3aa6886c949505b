"""Rows as the peer's JSON. Some values are JSON inside a string, and some moments are Python's ``str``: as there."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from moorage.accelerator.model import pci_parts
from moorage.accelerator.records import DeployableRecord, DeviceRecord, ProfileRecord, RequestRecord


def device(row: DeviceRecord, base_url: str, *, with_status: bool) -> dict[str, Any]:
    body = {
        "uuid": row.uuid,
        "type": row.type,
        "vendor": row.vendor,
        "model": row.model,
        "std_board_info": _text(row.std_board_info),
        "vendor_board_info": _text(row.vendor_board_info),
        "hostname": row.hostname,
        "links": _links(base_url, f"devices/{row.uuid}"),
        **_times(row.created_at, row.updated_at),
    }
    return body | {"status": row.status} if with_status else body


def deployable(row: DeployableRecord, base_url: str) -> dict[str, Any]:
    return {
        "uuid": row.uuid,
        "parent_id": None,
        "root_id": row.id,
        "name": row.name,
        "num_accelerators": row.num_accelerators,
        "device_id": row.device_id,
        "attributes_list": _text([{key: value} for key, value in row.attributes]),
        "rp_uuid": row.rp_uuid,
        "driver_name": row.driver_name,
        "bitstream_id": row.bitstream_id,
        "links": [
            *_links(base_url, f"deployables/{row.uuid}"),
            {"href": f"{base_url}/deployables/{row.uuid}", "rel": "bookmark"},
        ],
        **_times(row.created_at, row.updated_at),
    }


def request(row: RequestRecord, base_url: str) -> dict[str, Any]:
    return {
        "uuid": row.uuid,
        "state": row.state,
        "device_profile_name": None,
        "device_profile_group_id": row.device_profile_group_id,
        "hostname": row.hostname,
        "device_rp_uuid": row.device_rp_uuid,
        "instance_uuid": row.instance_uuid,
        "project_id": row.project_id,
        "attach_handle_type": "PCI",
        "attach_handle_uuid": row.attach_handle_uuid,
        "attach_handle_info": dict(pci_parts(row.pci_id)),
        "links": _links(base_url, f"accelerator_requests/{row.uuid}"),
        **_times(row.created_at, row.updated_at),
    }


def profile(row: ProfileRecord, base_url: str) -> dict[str, Any]:
    return {
        "uuid": row.uuid,
        "name": row.name,
        "description": row.description,
        "groups": row.groups,
        "links": _links(base_url, f"device_profiles/{row.uuid}"),
        **_times(row.created_at, row.updated_at),
    }


def shown_profile(row: ProfileRecord, base_url: str) -> dict[str, Any]:
    """Cyborg 17 shows one profile with ``str()`` of its moments, "None" included (measured)."""
    moments = {"created_at": _whole(row.created_at), "updated_at": row.updated_at and _whole(row.updated_at)}
    return profile(row, base_url) | {name: str(moment) for name, moment in moments.items()}


def _links(base_url: str, path: str) -> list[dict[str, str]]:
    return [{"href": f"{base_url}/v2/{path}", "rel": "self"}]


def _times(created_at: datetime, updated_at: datetime | None) -> dict[str, str | None]:
    return {
        "created_at": _whole(created_at).isoformat(),
        "updated_at": _whole(updated_at).isoformat() if updated_at else None,
    }


def _whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def _text(value: Mapping[str, str] | list[dict[str, str]]) -> str:
    return json.dumps(value)
