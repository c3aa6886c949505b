"""[pure] Networks, subnets and ports as the Networking API v2.0 shows them, and the filters of its lists.

Parts that we do not have are shown as Neutron shows them when they are unused, because clients read them.
"""

from collections.abc import Iterable, Mapping, Sequence

from moorage.core.errors import Invalid
from moorage.core.json import Json, JsonObject
from moorage.core.parsing import parse_whole_number
from moorage.network.addressing import version_of
from moorage.network.model import SERVER_OWNER, Network, Port, Subnet
from moorage.wire.http import Query

#: Parameters of lists that are not filters.
_CONTROLS = frozenset({"fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir"})
MAX_LIMIT = 1000

#: Attributes by which lists can be filtered and sorted.
_COMMON = frozenset(
    {"id", "name", "description", "project_id", "tenant_id", "created_at", "updated_at", "tags", "revision_number"}
)
NETWORK_FILTERS = _COMMON | {
    "admin_state_up", "status", "shared", "router:external", "mtu", "provider:network_type",
    "provider:physical_network", "provider:segmentation_id", "port_security_enabled",
}  # fmt: skip
SUBNET_FILTERS = _COMMON | {"network_id", "ip_version", "cidr", "gateway_ip", "enable_dhcp", "subnetpool_id"}
PORT_FILTERS = _COMMON | {
    "network_id", "mac_address", "admin_state_up", "status", "device_id", "device_owner", "fixed_ips",
    "binding:host_id", "binding:vnic_type", "port_security_enabled", "security_groups",
}  # fmt: skip


def network_document(network: Network, subnets: Sequence[Subnet], *, is_operator: bool) -> JsonObject:
    document: dict[str, Json] = {
        "id": network.id,
        "name": network.name,
        "tenant_id": network.project_id,
        "project_id": network.project_id,
        "description": network.description,
        "admin_state_up": True,
        "status": "ACTIVE",
        "shared": network.is_shared,
        "router:external": False,
        "mtu": 1500,
        "port_security_enabled": True,
        "availability_zone_hints": [],
        "availability_zones": [],
        "ipv4_address_scope": None,
        "ipv6_address_scope": None,
        "subnets": [subnet.id for subnet in subnets],
        "tags": [],
        "revision_number": 1,
        "created_at": _time(network),
        "updated_at": _time(network, updated=True),
    }
    if is_operator:
        document |= {
            "provider:network_type": network.segment.kind.value,
            "provider:physical_network": network.segment.physical_network,
            "provider:segmentation_id": network.segment.segmentation_id,
        }
    return document


def subnet_document(subnet: Subnet) -> JsonObject:
    version = version_of(subnet.cidr)
    return {
        "id": subnet.id,
        "name": subnet.name,
        "network_id": subnet.network_id,
        "tenant_id": subnet.project_id,
        "project_id": subnet.project_id,
        "description": "",
        "ip_version": version,
        "cidr": subnet.cidr,
        "gateway_ip": subnet.gateway,
        "dns_nameservers": list(subnet.dns),
        "allocation_pools": [{"start": pool.first, "end": pool.last} for pool in subnet.pools],
        "enable_dhcp": not subnet.pools,
        "host_routes": [],
        "ipv6_address_mode": None,
        "ipv6_ra_mode": None,
        "service_types": [],
        "subnetpool_id": None,
        "segment_id": None,
        "tags": [],
        "revision_number": 1,
        "created_at": _time(subnet),
        "updated_at": _time(subnet, updated=True),
    }


def port_document(port: Port, *, is_operator: bool) -> JsonObject:
    document: dict[str, Json] = {
        "id": port.id,
        "name": port.name,
        "network_id": port.network_id,
        "tenant_id": port.project_id,
        "project_id": port.project_id,
        "description": port.description,
        "mac_address": port.mac,
        "admin_state_up": True,
        "status": "ACTIVE" if port.device_id else "DOWN",
        "device_id": port.device_id,
        "device_owner": SERVER_OWNER if port.device_id else "",
        "fixed_ips": [{"subnet_id": one.subnet_id, "ip_address": one.address} for one in port.addresses],
        "allowed_address_pairs": [],
        "extra_dhcp_opts": [],
        "security_groups": [],
        "port_security_enabled": True,
        "binding:vnic_type": "normal",
        "propagate_uplink_status": False,
        "tags": [],
        "revision_number": 1,
        "created_at": _time(port),
        "updated_at": _time(port, updated=True),
    }
    if is_operator:
        learned: list[Json] = [one.address for one in port.addresses if one.is_learned]
        details: dict[str, Json] = {"learned_addresses": learned} if learned else {}
        document |= {"binding:host_id": port.host, "binding:profile": {}, "binding:vif_details": details}
        document["binding:vif_type"] = "bridge" if port.host else "unbound"
    return document


def _time(row: Network | Subnet | Port, *, updated: bool = False) -> str:
    return (row.updated_at if updated else row.created_at).strftime("%Y-%m-%dT%H:%M:%SZ")


# ------------------------------------------------------------------------------------------------------------- lists


def page_of(
    query: Query, documents: Sequence[JsonObject], attributes: frozenset[str]
) -> tuple[list[JsonObject], str | None]:
    """(the documents that a list shows, the id of the last one if there are more).

    `attributes`: the names that a filter may have. Raises `Invalid` for a parameter that the list does not have.
    """
    filters = filters_of(query, attributes)
    found = [document for document in documents if all(_matches(document, *each) for each in filters.items())]
    found = _sorted(query, found, attributes)
    if query.first("page_reverse") in ("true", "True"):
        raise Invalid("Pages in reverse order are not offered; leave page_reverse out.")
    if marker := query.first("marker"):
        places = [at for at, document in enumerate(found) if document["id"] == marker]
        if not places:
            raise Invalid(f"The marker {marker[:60]} is not in this list; use the id of the last item of a page.")
        found = found[places[0] + 1 :]
    page = found[: _limit(query.first("limit"))]
    last_id = str(page[-1]["id"]) if page and len(page) < len(found) else None
    if chosen := query.every("fields"):
        page = [{name: one[name] for name in chosen if name in one} for one in page]
    return page, last_id


def filters_of(query: Query, attributes: frozenset[str]) -> dict[str, list[str]]:
    """{attribute: accepted values}. Raises `Invalid` for an unknown one."""
    filters: dict[str, list[str]] = {}
    for name, value in query.pairs:
        if name in _CONTROLS or value == "None":
            continue
        if name not in attributes:
            raise Invalid(f"['{name[:60]}'] is invalid attribute for filtering")
        filters.setdefault(name, []).append(value)
    return filters


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        limit = parse_whole_number(text)
    except ValueError as error:
        raise Invalid(f"The limit {text[:60]!r} is not a number; write one such as 100.") from error
    return min(limit, MAX_LIMIT) or None


def _sorted(query: Query, found: list[JsonObject], attributes: frozenset[str]) -> list[JsonObject]:
    keys, directions = query.every("sort_key"), query.every("sort_dir")
    for at in reversed(range(len(keys))):
        if keys[at] not in attributes:
            raise Invalid(f"{keys[at][:60]!r} is invalid attribute for sort_keys")
        direction = directions[at] if at < len(directions) else "asc"
        found = sorted(found, key=lambda one: str(one.get(keys[at])), reverse=direction == "desc")
    return found


def _matches(document: Mapping[str, Json], name: str, accepted: Iterable[str]) -> bool:
    value = document.get(name)
    if name == "fixed_ips":
        return all(_has_address(value, text) for text in accepted)
    if isinstance(value, bool):
        return str(value).lower() in {text.lower() for text in accepted}
    if isinstance(value, list):
        return all(text in value for text in accepted)
    return ("" if value is None else str(value)) in accepted


def _has_address(value: Json, text: str) -> bool:
    """`text`: ``ip_address=192.0.2.10`` or ``subnet_id=...``, as clients write it."""
    key, equals, wanted = text.partition("=")
    if not equals or key not in ("ip_address", "subnet_id", "ip_address_substr"):
        raise Invalid(f"The filter fixed_ips={text[:60]} has no meaning; write ip_address=ADDRESS or subnet_id=ID.")
    rows = value if isinstance(value, list) else []
    if key == "ip_address_substr":
        return any(isinstance(row, dict) and wanted in str(row["ip_address"]) for row in rows)
    return any(isinstance(row, dict) and row[key] == wanted for row in rows)
