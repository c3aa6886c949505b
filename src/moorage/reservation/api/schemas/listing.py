"""Queries of paged lists (from microversion 1.1 on). Unknown parameters are refused."""

from collections.abc import Mapping

from moorage.reservation.api.schemas.common import DATE_TEXT, OURS, PEERS, decode_date, peer_wording
from moorage.reservation.model.leases import LeaseStatus
from moorage.reservation.model.list_query import MAX_LIMIT, DeletedPage, HostPage, LeasePage, SortKey
from moorage.reservation.model.property_query import MAX_TEXT
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.http import Query

_TEXT = {"type": "string", "maxLength": 255}
_LIMIT = {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"}

LEASES = Schema(
    {
        "type": "object",
        "properties": {
            "limit": _LIMIT,
            "marker": _TEXT,
            "sort_key": {"enum": [str(key) for key in SortKey]},
            "sort_dir": {"enum": ["asc", "desc"]},
            "name": _TEXT,
            "status": {"enum": [str(status) for status in LeaseStatus]},
            "project_id": _TEXT,
            "ends_after": DATE_TEXT,
            "starts_before": DATE_TEXT,
        },
        "additionalProperties": False,
    }
)

DELETED_LEASES = Schema(
    {
        "type": "object",
        "properties": {"limit": _LIMIT, "marker": _TEXT, "project_id": _TEXT},
        "additionalProperties": False,
    }
)

_HOSTS: dict[str, object] = {
    "limit": _LIMIT,
    "marker": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    "hypervisor_hostname": _TEXT,
    "availability_zone": _TEXT,
    "reservable": {"enum": ["true", "false"]},
    "properties": {"type": "string", "maxLength": MAX_TEXT},
}

HOSTS = Schema({"type": "object", "properties": _HOSTS, "additionalProperties": False})

ALLOCATIONS = Schema(
    {
        "type": "object",
        "properties": _HOSTS | {"lease_id": _TEXT, "reservation_id": _TEXT},
        "additionalProperties": False,
    }
)

#: Up to 1.0, all query parameters are ignored.
_IGNORED = Schema({"type": "object"})
OF_LEASE = Schema({"type": "object", "properties": {"lease_id": _TEXT, "reservation_id": _TEXT}})
PROPERTIES = Schema({"type": "object", "properties": {"detail": _TEXT, "all": _TEXT}})
LEASES_BY_VERSION = VersionedSchema([(PEERS, _IGNORED), (OURS, LEASES)])
HOSTS_BY_VERSION = VersionedSchema([(PEERS, _IGNORED), (OURS, HOSTS)])
ALLOCATIONS_BY_VERSION = VersionedSchema([(PEERS, OF_LEASE), (OURS, ALLOCATIONS)])


def checked_query(query: Query, schema: Schema) -> dict[str, str]:
    """{parameter: its last value}, validated against `schema`."""
    values = dict(query.pairs)
    schema.validate(values, peer_wording)
    return values


def decode_leases(values: Mapping[str, str]) -> LeasePage:
    ends_after, starts_before = values.get("ends_after"), values.get("starts_before")
    return LeasePage(
        project_id=values.get("project_id"),
        name=values.get("name"),
        status=LeaseStatus(values["status"]) if "status" in values else None,
        ends_after=decode_date(ends_after) if ends_after is not None else None,
        starts_before=decode_date(starts_before) if starts_before is not None else None,
        sort_key=SortKey(values.get("sort_key", SortKey.CREATED_AT)),
        descending=values.get("sort_dir") == "desc",
        limit=_limit(values),
        marker=values.get("marker"),
    )


def decode_deleted(values: Mapping[str, str]) -> DeletedPage:
    return DeletedPage(values.get("project_id"), _limit(values), values.get("marker"))


def decode_hosts(values: Mapping[str, str]) -> HostPage:
    return HostPage(
        hypervisor_hostname=values.get("hypervisor_hostname"),
        availability_zone=values.get("availability_zone"),
        reservable=values["reservable"] == "true" if "reservable" in values else None,
        properties=values.get("properties", ""),
        limit=_limit(values),
        marker=int(values["marker"]) if "marker" in values else None,
    )


def _limit(values: Mapping[str, str]) -> int:
    return min(int(values.get("limit", MAX_LIMIT)), MAX_LIMIT)
