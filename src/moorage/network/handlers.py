"""Handlers of the network service: each decodes a request, calls a use case and encodes the answer."""

from collections.abc import Sequence
from urllib.parse import urlencode

from moorage.core.errors import Forbidden, Invalid, NotBuilt, NotFound
from moorage.core.json import Json, JsonObject
from moorage.network.addressing import plan_subnet, version_of
from moorage.network.entries import checked_segment
from moorage.network.model import Network, NetworkKind, Port, PortAddress, Subnet
from moorage.network.network_service import NewNetwork
from moorage.network.port_service import LearnedAddresses, NewPort, ServerPort, WantedAddress
from moorage.network.resource_views import (
    NETWORK_FILTERS,
    PORT_FILTERS,
    SUBNET_FILTERS,
    filters_of,
    network_document,
    page_of,
    port_document,
    subnet_document,
)
from moorage.network.service import Networking
from moorage.network.store.network_store import PORT_COLUMNS
from moorage.wire.http import Request, Response

NetworkRequest = Request[Networking]

#: Aliases of the extensions that we have a part of, with their names.
_EXTENSIONS = {
    "provider": "Provider Network",
    "binding": "Port Binding",
    "project-id": "project_id field enabled",
    "quotas": "Quota management support",
    "security-group": "security-group",
    "net-mtu": "Network MTU",
    "port-security": "Port Security",
    "standard-attr-description": "standard-attr-description",
    "standard-attr-timestamp": "Resource timestamps",
}

ANY_ADDRESS_RULE = "create_port:fixed_ips"
MAC_RULE = "create_port:mac_address"


# ------------------------------------------------------------------------------------------- versions and extensions


def show_versions(request: NetworkRequest) -> Response:
    return Response(body={"versions": [_version(request)]})


def show_version(request: NetworkRequest) -> Response:
    return Response(body={"resources": [_resource(request, name) for name in ("network", "subnet", "port")]})


def _version(request: NetworkRequest) -> JsonObject:
    return {
        "id": "v2.0",
        "status": "CURRENT",
        "links": [{"rel": "self", "href": f"{request.base_url}/v2.0/"}],
    }


def _resource(request: NetworkRequest, name: str) -> JsonObject:
    links: Json = [{"rel": "self", "href": f"{request.base_url}/v2.0/{name}s"}]
    return {"name": name, "collection": f"{name}s", "links": links}


def list_extensions(request: NetworkRequest) -> Response:
    return Response(body={"extensions": [_extension(alias) for alias in _EXTENSIONS]})


def show_extension(request: NetworkRequest, alias: str) -> Response:
    if alias not in _EXTENSIONS:
        raise NotFound(f"Extension with alias {alias[:60]} does not exist")
    return Response(body={"extension": _extension(alias)})


def _extension(alias: str) -> JsonObject:
    return {
        "alias": alias,
        "name": _EXTENSIONS[alias],
        "description": _EXTENSIONS[alias],
        "updated": "2026-11-24T00:00:00-00:00",
        "links": [],
    }


# ---------------------------------------------------------------------------------------------------------- networks


def list_networks(request: NetworkRequest) -> Response:
    found = request.service.networks.networks(request.caller)
    return _list(request, "networks", [_network(request, *each) for each in found], NETWORK_FILTERS)


def show_network(request: NetworkRequest, network_id: str) -> Response:
    network, subnets = request.service.networks.network(request.caller, network_id)
    return Response(body={"network": _network(request, network, subnets)})


def create_network(request: NetworkRequest) -> Response:
    body = request.json["network"]
    kind = body.get("provider:network_type")
    if kind is None or not body.get("provider:physical_network"):
        raise Invalid(
            "A network needs the bridge, VLAN or libvirt network that hosts attach servers to: set "
            "provider:network_type to flat, vlan or local, and provider:physical_network to the name of the bridge or "
            "libvirt network (openstack network create --provider-network-type flat --provider-physical-network br0)."
        )
    segment = body.get("provider:segmentation_id")
    new = NewNetwork(
        name=body.get("name", ""),
        project_id=_project(request, body),
        segment=checked_segment(
            NetworkKind(kind), body["provider:physical_network"], None if segment is None else int(segment)
        ),
        is_shared=body.get("shared", False),
        description=body.get("description", ""),
    )
    return Response(201, {"network": _network(request, request.service.networks.create_network(new), [])})


def update_network(request: NetworkRequest, network_id: str) -> Response:
    body = request.json["network"]
    columns = {"name": "name", "description": "description", "shared": "is_shared"}
    values = {columns[name]: value for name, value in body.items() if name in columns}
    request.service.networks.update_network(request.caller, network_id, values)
    return show_network(request, network_id)


def delete_network(request: NetworkRequest, network_id: str) -> Response:
    request.service.networks.delete_network(request.caller, network_id)
    return Response(204)


def _network(request: NetworkRequest, network: Network, subnets: Sequence[Subnet]) -> JsonObject:
    return network_document(network, subnets, is_operator=_is_operator(request))


# ----------------------------------------------------------------------------------------------------------- subnets


def list_subnets(request: NetworkRequest) -> Response:
    found = request.service.networks.networks(request.caller)
    documents = [subnet_document(subnet) for _, subnets in found for subnet in subnets]
    return _list(request, "subnets", documents, SUBNET_FILTERS)


def show_subnet(request: NetworkRequest, subnet_id: str) -> Response:
    return Response(body={"subnet": subnet_document(request.service.networks.subnet(request.caller, subnet_id))})


def create_subnet(request: NetworkRequest) -> Response:
    body = request.json["subnet"]
    pools = body.get("allocation_pools")
    plan = plan_subnet(
        body["cidr"],
        body.get("gateway_ip", ""),
        body.get("dns_nameservers") or (),
        None if pools is None else [(pool["start"], pool["end"]) for pool in pools],
    )
    if int(body.get("ip_version", version_of(plan.cidr))) != version_of(plan.cidr):
        raise Invalid(f"The ip_version {body['ip_version']} does not match the cidr {plan.cidr}; correct one of them.")
    project = _project(request, body) if body.keys() & {"project_id", "tenant_id"} else None
    subnet = request.service.networks.create_subnet(
        request.caller, body["network_id"], project, body.get("name", ""), plan
    )
    return Response(201, {"subnet": subnet_document(subnet)})


def update_subnet(request: NetworkRequest, subnet_id: str) -> Response:
    body = request.json["subnet"]
    if "name" in body:
        request.service.networks.update_subnet(request.caller, subnet_id, body["name"])
    return show_subnet(request, subnet_id)


def delete_subnet(request: NetworkRequest, subnet_id: str) -> Response:
    request.service.networks.delete_subnet(request.caller, subnet_id)
    return Response(204)


# ------------------------------------------------------------------------------------------------------------- ports


def list_ports(request: NetworkRequest) -> Response:
    in_sql = {name: values for name, values in filters_of(request.query, PORT_FILTERS).items() if name in PORT_COLUMNS}
    found = request.service.ports.ports(request.caller, in_sql)
    return _list(request, "ports", [_port(request, port) for port in found], PORT_FILTERS)


def show_port(request: NetworkRequest, port_id: str) -> Response:
    return Response(body={"port": _port(request, request.service.ports.port(request.caller, port_id))})


def create_port(request: NetworkRequest) -> Response:
    body = request.json["port"]
    mac = body.get("mac_address")
    if mac is not None and not request.allowed(MAC_RULE):
        raise Forbidden("Only operators choose the mac_address of a port; leave it out, and the port gets one.")
    addresses = body.get("fixed_ips")
    new = NewPort(
        network_id=body["network_id"],
        project_id=_project(request, body),
        name=body.get("name", ""),
        description=body.get("description", ""),
        wanted=None
        if addresses is None
        else [WantedAddress(one.get("subnet_id"), one.get("ip_address")) for one in addresses],
        mac=None if mac is None else mac.lower(),
    )
    any_address = request.allowed(ANY_ADDRESS_RULE)
    port = request.service.ports.create_port(request.caller, new, any_address=any_address)
    return Response(201, {"port": _port(request, port)})


def update_port(request: NetworkRequest, port_id: str) -> Response:
    body = request.json["port"]
    values = {name: body[name] for name in ("name", "description") if name in body}
    request.service.ports.update_port(request.caller, port_id, values)
    return show_port(request, port_id)


def delete_port(request: NetworkRequest, port_id: str) -> Response:
    request.service.ports.delete_port(request.caller, port_id)
    return Response(204)


def _port(request: NetworkRequest, port: Port) -> JsonObject:
    return port_document(port, is_operator=_is_operator(request))


# ------------------------------------------------------------------------------- what clients read and we do not have


def list_security_groups(request: NetworkRequest) -> Response:
    """There are none: traffic of servers is filtered by address only."""
    return Response(body={"security_groups": []})


def list_floating_ips(request: NetworkRequest) -> Response:
    """There are none: openstacksdk asks for them whenever it creates or deletes a server."""
    return Response(body={"floatingips": []})


def show_quota(request: NetworkRequest, project_id: str) -> Response:
    return Response(body={"quota": _quota(request, project_id)})


def show_quota_details(request: NetworkRequest, project_id: str) -> Response:
    quota = _quota(request, project_id)
    used = {"port": request.service.ports.count(project_id)}
    details = {name: {"limit": limit, "used": used.get(name, 0), "reserved": 0} for name, limit in quota.items()}
    return Response(body={"quota": details})


def _quota(request: NetworkRequest, project_id: str) -> dict[str, int]:
    """Networks and subnets are the operator's, who needs no limit; the others do not exist."""
    if not request.caller.may_see(project_id):
        raise Forbidden("Only operators read the quota of another project.")
    unlimited = {"network": -1, "subnet": -1}
    absent = dict.fromkeys(("floatingip", "router", "security_group", "security_group_rule", "subnetpool"), 0)
    return {**unlimited, "port": request.service.deps.quota_ports, **absent, "rbac_policy": 0}


def refuse(request: NetworkRequest, **_path: str) -> Response:
    name = request.path.removeprefix("/v2.0/").partition("/")[0]
    raise NotBuilt(
        f"This network service has no {name}: it has flat networks, subnets and ports. To use {name}, run a Neutron."
    )


# --------------------------------------------------------------------------------------------------- compute's routes


def provide_ports(request: NetworkRequest) -> Response:
    wanted = [ServerPort(**one) for one in request.json["ports"]]
    return Response(body={"ports": [_server_port(*each) for each in request.service.ports.provide(wanted)]})


def _server_port(port: Port, network: Network, subnets: Sequence[Subnet]) -> JsonObject:
    """The data with which a host attaches the server, and the server configures its interface."""
    by_id = {subnet.id: subnet for subnet in subnets}
    return {
        "id": port.id,
        "mac": port.mac,
        "network_id": network.id,
        "network_name": network.name,
        "kind": network.segment.kind.value,
        "physical_network": network.segment.physical_network,
        "segmentation_id": network.segment.segmentation_id,
        "is_made": port.is_for_server,
        "is_dhcp": not port.given and bool(subnets),
        "addresses": [_bound_address(one, by_id[one.subnet_id]) for one in port.given],
    }


def _bound_address(address: PortAddress, subnet: Subnet) -> JsonObject:
    return {
        "address": address.address,
        "subnet_id": subnet.id,
        "cidr": subnet.cidr,
        "gateway": subnet.gateway,
        "dns": list(subnet.dns),
    }


def learn_addresses(request: NetworkRequest) -> Response:
    reports = [LearnedAddresses(**one) for one in request.json["ports"]]
    learned = request.service.ports.learn(reports)
    ports: Json = [
        {"id": report.port_id, "addresses": [_bound_address(*one) for one in each]}
        for report, each in zip(reports, learned, strict=True)
    ]
    return Response(body={"ports": ports})


def release_ports(request: NetworkRequest, server_id: str) -> Response:
    request.service.ports.release(server_id)
    return Response(204)


def release_port(request: NetworkRequest, server_id: str, port_id: str) -> Response:
    request.service.ports.release(server_id, port_id)
    return Response(204)


# ------------------------------------------------------------------------------------------------------------ general


def _list(request: NetworkRequest, name: str, documents: Sequence[JsonObject], attributes: frozenset[str]) -> Response:
    page, last_id = page_of(request.query, documents, attributes)
    body: dict[str, Json] = {name: page}
    if last_id is not None:
        pairs = [pair for pair in request.query.pairs if pair[0] != "marker"]
        pairs.append(("marker", last_id))
        body[f"{name}_links"] = [{"rel": "next", "href": f"{request.base_url}/v2.0/{name}?{urlencode(pairs)}"}]
    return Response(body=body)


def _is_operator(request: NetworkRequest) -> bool:
    return request.caller.is_admin or request.caller.is_service


def _project(request: NetworkRequest, body: JsonObject) -> str:
    """The project of a new object. Raises `Forbidden` for another one than the caller's, except for operators."""
    wanted = body.get("project_id") or body.get("tenant_id") or request.caller.project_id
    if not request.caller.may_see(str(wanted)):
        raise Forbidden("Only operators create networks and ports for other projects; leave project_id out.")
    return str(wanted)
