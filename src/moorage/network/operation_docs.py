"""[pure] The texts and the schemas of the answers of each route, for the OpenAPI document of the network service.

The routes that are refused by name (`moorage.network.routes.ABSENT`) are not documented.
"""

from collections.abc import Iterable, Mapping

from moorage.network.resource_views import NETWORK_FILTERS, PORT_FILTERS, SUBNET_FILTERS
from moorage.wire.body import Schema
from moorage.wire.http import OperationDoc, ResponseDoc
from moorage.wire.openapi import ServiceDoc

_TEXT: dict[str, object] = {"type": "string"}
_TEXT_OR_NONE: dict[str, object] = {"type": ["string", "null"]}
_NUMBER: dict[str, object] = {"type": "integer"}
_FLAG: dict[str, object] = {"type": "boolean"}
_LIST: dict[str, object] = {"type": "array"}
_NONE: dict[str, object] = {"type": "null"}
_OBJECT: dict[str, object] = {"type": "object"}


def _object(properties: Mapping[str, object], optional: Iterable[str] = ()) -> dict[str, object]:
    required = sorted(properties.keys() - set(optional))
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


_COMMON = {
    **dict.fromkeys(("id", "name", "tenant_id", "project_id", "description", "created_at", "updated_at"), _TEXT),
    "tags": _LIST,
    "revision_number": _NUMBER,
}
_FOR_OPERATORS = {
    "provider:network_type": _TEXT,
    "provider:physical_network": _TEXT,
    "provider:segmentation_id": {"type": ["integer", "null"]},
}
_NETWORK = _object(
    {
        **_COMMON,
        **dict.fromkeys(("admin_state_up", "shared", "router:external", "port_security_enabled"), _FLAG),
        **dict.fromkeys(("availability_zone_hints", "availability_zones", "subnets"), _LIST),
        **dict.fromkeys(("ipv4_address_scope", "ipv6_address_scope"), _NONE),
        "status": _TEXT,
        "mtu": _NUMBER,
        **_FOR_OPERATORS,
    },
    _FOR_OPERATORS,
)
_SUBNET = _object(
    {
        **_COMMON,
        **dict.fromkeys(("network_id", "cidr"), _TEXT),
        **dict.fromkeys(("dns_nameservers", "allocation_pools", "host_routes", "service_types"), _LIST),
        **dict.fromkeys(("ipv6_address_mode", "ipv6_ra_mode", "subnetpool_id", "segment_id"), _NONE),
        "ip_version": {"enum": [4, 6]},
        "gateway_ip": _TEXT_OR_NONE,
        "enable_dhcp": _FLAG,
    }
)
_BINDINGS = {
    "binding:host_id": _TEXT,
    "binding:profile": _OBJECT,
    "binding:vif_details": _OBJECT,
    "binding:vif_type": _TEXT,
}
_PORT = _object(
    {
        **_COMMON,
        **dict.fromkeys(("network_id", "mac_address", "status", "device_id", "device_owner"), _TEXT),
        **dict.fromkeys(("admin_state_up", "port_security_enabled", "propagate_uplink_status"), _FLAG),
        **dict.fromkeys(("fixed_ips", "allowed_address_pairs", "extra_dhcp_opts", "security_groups"), _LIST),
        "binding:vnic_type": _TEXT,
        **_BINDINGS,
    },
    _BINDINGS,
)
_EXTENSION = _object(
    {"alias": _TEXT, "name": _TEXT, "description": _TEXT, "updated": _TEXT, "links": _LIST},
)


def _one(name: str, schema: Mapping[str, object]) -> Schema:
    return Schema(_object({name: schema}))


def _several(name: str, schema: Mapping[str, object], filters: Iterable[str]) -> tuple[Schema, Schema]:
    """(the answer, the query). With the parameter ``fields``, the items have only these keys."""
    # An item with all keys, or with some of them.
    items = {"type": "object", "properties": schema["properties"], "additionalProperties": False}
    answer = _object({name: {"type": "array", "items": items}, f"{name}_links": _LIST}, [f"{name}_links"])
    controls = ("fields", "limit", "marker", "sort_key", "sort_dir")
    query = {"type": "object", "properties": dict.fromkeys([*sorted(filters), *controls], _TEXT)}
    return Schema(answer), Schema(query)


def _crud(
    kind: str, text: str, schema: Mapping[str, object], filters: Iterable[str], example: Mapping[str, str]
) -> dict[tuple[str, str], OperationDoc]:
    """The five routes of one collection. `kind`: network, subnet or port."""
    path, one = f"/v2.0/{kind}s", _one(kind, schema)
    listed, query = _several(f"{kind}s", schema, filters)
    item = f"{path}/{{{kind}_id}}"
    return {
        ("GET", path): OperationDoc(
            f"List {kind}s", {200: ResponseDoc(f"The {kind}s that {text}.", listed)}, query=query, example=example
        ),
        ("POST", path): OperationDoc(
            f"Create a {kind}", {201: ResponseDoc(f"The {kind}.", one)}, error_statuses=frozenset({404})
        ),
        ("GET", item): OperationDoc(f"Show a {kind}", {200: ResponseDoc(f"The {kind}.", one)}),
        ("PUT", item): OperationDoc(f"Update a {kind}", {200: ResponseDoc(f"The {kind}.", one)}),
        ("DELETE", item): OperationDoc(f"Delete a {kind}", {204: ResponseDoc("The body is empty.")}),
    }


_VERSION = OperationDoc("Show the version", {200: ResponseDoc("Its resources.", _one("resources", _LIST))})
_PORTS = "/moorage/v1/server-ports"
_RELEASED = {204: ResponseDoc("The body is empty.")}

OPERATION_DOCS: Mapping[tuple[str, str], OperationDoc] = {
    ("GET", "/"): OperationDoc("List versions", {200: ResponseDoc("The only version.", _one("versions", _LIST))}),
    ("GET", "/v2.0"): _VERSION,
    ("GET", "/v2.0/"): _VERSION,
    ("GET", "/v2.0/extensions"): OperationDoc(
        "List extensions", {200: ResponseDoc("Those that exist here.", _one("extensions", _LIST))}
    ),
    ("GET", "/v2.0/extensions/{alias}"): OperationDoc(
        "Show an extension", {200: ResponseDoc("The extension.", _one("extension", _EXTENSION))}
    ),
    **_crud("network", "the project may use", _NETWORK, NETWORK_FILTERS, {"name": "lab"}),
    **_crud("subnet", "belong to them", _SUBNET, SUBNET_FILTERS, {"ip_version": "4"}),
    **_crud("port", "the project has; administrators get all", _PORT, PORT_FILTERS, {"status": "DOWN"}),
    ("GET", "/v2.0/quotas/{project_id}"): OperationDoc(
        "Show a project's limits", {200: ResponseDoc("{name: limit}; -1 is unlimited.", _one("quota", _OBJECT))}
    ),
    ("GET", "/v2.0/quotas/{project_id}/details.json"): OperationDoc(
        "Show a project's limits and usage",
        {200: ResponseDoc("{name: {limit, used, reserved}}", _one("quota", _OBJECT))},
    ),
    ("GET", "/v2.0/quotas/{project_id}/details"): OperationDoc(
        "Show a project's limits and usage",
        {200: ResponseDoc("{name: {limit, used, reserved}}", _one("quota", _OBJECT))},
    ),
    ("PUT", _PORTS): OperationDoc(
        "Bind ports to servers, and make those that are missing",
        {200: ResponseDoc("What hosts need to attach the servers.", _one("ports", _LIST))},
        notes="For the compute service. All ports are bound or none; it may be repeated.",
        error_statuses=frozenset({404}),
    ),
    ("PUT", "/moorage/v1/learned-addresses"): OperationDoc(
        "Replace the addresses that hosts learned from DHCP servers",
        {200: ResponseDoc("The learned addresses that each port has now.", _one("ports", _LIST))},
        notes="For the compute service. An address that the port may not have is left out; it may be repeated.",
    ),
    ("DELETE", f"{_PORTS}/{{server_id}}"): OperationDoc("Release the ports of a server", _RELEASED),
    ("DELETE", f"{_PORTS}/{{server_id}}/{{port_id}}"): OperationDoc("Release one port of a server", _RELEASED),
}  # fmt: skip

ABOUT = ServiceDoc(
    title="Network",
    description="Networks, subnets and ports: the part of Neutron's Networking API v2.0 that flat networks need. "
    "Routes of its other collections exist only to refuse them by name.",
    parameters={
        name: {"type": "string"} for name in ("network_id", "subnet_id", "port_id", "project_id", "server_id", "alias")
    },
    error_schema=_one("NeutronError", _object({"type": _TEXT, "message": _TEXT, "detail": _TEXT})),
)
