"""The part of the Networking API v2.0 (Neutron) that we serve: its route table and policy rules.

Not offered, and refused by name: routers, floating IPs, security groups, trunks and the other extensions.
``/moorage/v1`` is our own addition, for the compute service: the ports of servers.
"""

from dataclasses import replace

from moorage.identity.policy import RuleTable, admin, admin_or_service, in_project, member, reader, service
from moorage.network import handlers, schemas
from moorage.network.operation_docs import ABOUT, OPERATION_DOCS
from moorage.network.service import Networking
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema
from moorage.wire.errors import Problem
from moorage.wire.http import OperationDoc, Response, ResponseDoc, Route
from moorage.wire.openapi import openapi_route

#: Collections of Neutron that do not exist here.
ABSENT = (
    "address-groups", "address-scopes", "agents", "auto-allocated-topology", "default-security-group-rules", "flavors",
    "floatingips", "log", "metering", "network-ip-availabilities", "network_segment_ranges", "qos", "rbac-policies",
    "routers", "security-group-rules", "security-groups", "segments", "service-providers", "subnetpools", "trunks",
    "vpn",
)  # fmt: skip
#: Lists of `ABSENT` that clients read in the course of other work, and that are empty.
_EMPTY = {"floatingips": handlers.list_floating_ips, "security-groups": handlers.list_security_groups}

#: The rule of the routes for the compute service.
SERVER_PORTS_RULE = "moorage:server_ports"
#: The rule for releasing one port: also for the audit's repairs.
RELEASE_PORT_RULE = "moorage:release_port"
#: Every caller learns that something does not exist.
_ABSENT_RULE = "moorage:absent"


def neutron_error(problem: Problem) -> Response:
    """``{"NeutronError": {"type": "NetworkNotFound", "message": "...", "detail": ""}}``"""
    kind = problem.code.rpartition(".")[2].title().replace("_", "")
    return Response(problem.status, {"NeutronError": {"type": kind, "message": problem.message, "detail": ""}})


def _absent_routes() -> tuple[Route[Networking], ...]:
    routes: list[Route[Networking]] = []
    for name in ABSENT:
        for method in ("GET", "POST"):
            handler = _EMPTY.get(name, handlers.refuse) if method == "GET" else handlers.refuse
            routes.append(Route(method, f"/v2.0/{name}", handler, _ABSENT_RULE, reads="none"))
        routes += [
            Route(method, f"/v2.0/{name}/{{key}}", handlers.refuse, _ABSENT_RULE, reads="none")
            for method in ("GET", "PUT", "DELETE")
        ]
    return tuple(routes)


_NETWORK, _SUBNET, _PORT = "/v2.0/networks/{network_id}", "/v2.0/subnets/{subnet_id}", "/v2.0/ports/{port_id}"

_ROUTES: tuple[Route[Networking], ...] = (
    Route("GET", "/", handlers.show_versions, None, reads="none"),
    Route("GET", "/v2.0", handlers.show_version, None, reads="none"),
    Route("GET", "/v2.0/", handlers.show_version, None, reads="none"),
    Route("GET", "/v2.0/extensions", handlers.list_extensions, "get_extension"),
    Route("GET", "/v2.0/extensions/{alias}", handlers.show_extension, "get_extension"),
    Route("GET", "/v2.0/networks", handlers.list_networks, "get_network"),
    Route("POST", "/v2.0/networks", handlers.create_network, "create_network", schema=schemas.NEW_NETWORK),
    Route("GET", _NETWORK, handlers.show_network, "get_network"),
    Route("PUT", _NETWORK, handlers.update_network, "update_network", schema=schemas.CHANGED_NETWORK),
    Route("DELETE", _NETWORK, handlers.delete_network, "delete_network"),
    Route("GET", "/v2.0/subnets", handlers.list_subnets, "get_subnet"),
    Route("POST", "/v2.0/subnets", handlers.create_subnet, "create_subnet", schema=schemas.NEW_SUBNET),
    Route("GET", _SUBNET, handlers.show_subnet, "get_subnet"),
    Route("PUT", _SUBNET, handlers.update_subnet, "update_subnet", schema=schemas.CHANGED_SUBNET),
    Route("DELETE", _SUBNET, handlers.delete_subnet, "delete_subnet"),
    Route("GET", "/v2.0/ports", handlers.list_ports, "get_port"),
    Route("POST", "/v2.0/ports", handlers.create_port, "create_port", schema=schemas.NEW_PORT),
    Route("GET", _PORT, handlers.show_port, "get_port"),
    Route("PUT", _PORT, handlers.update_port, "update_port", schema=schemas.CHANGED_PORT),
    Route("DELETE", _PORT, handlers.delete_port, "delete_port"),
    Route("GET", "/v2.0/quotas/{project_id}", handlers.show_quota, "get_quota"),
    # Horizon asks for the first one, openstackclient for the second.
    Route("GET", "/v2.0/quotas/{project_id}/details", handlers.show_quota_details, "get_quota"),
    Route("GET", "/v2.0/quotas/{project_id}/details.json", handlers.show_quota_details, "get_quota"),
    Route(
        "PUT",
        "/moorage/v1/server-ports",
        handlers.provide_ports,
        SERVER_PORTS_RULE,
        schema=schemas.SERVER_PORTS,
        effect="routine",
    ),
    Route(
        "PUT",
        "/moorage/v1/learned-addresses",
        handlers.learn_addresses,
        SERVER_PORTS_RULE,
        schema=schemas.LEARNED_ADDRESSES,
        effect="routine",
    ),
    Route(
        "DELETE",
        "/moorage/v1/server-ports/{server_id}",
        handlers.release_ports,
        SERVER_PORTS_RULE,
        effect="routine",
    ),
    Route(
        "DELETE",
        "/moorage/v1/server-ports/{server_id}/{port_id}",
        handlers.release_port,
        RELEASE_PORT_RULE,
    ),
)

#: Path of the OpenAPI document. It has no API version in it, and Neutron has no route below it.
DOCUMENT_PATH = "/moorage/v1/openapi.json"
#: All routes except those that are refused by name.
DOCUMENTED = [replace(route, doc=OPERATION_DOCS[route.method, route.path]) for route in _ROUTES]
DOCUMENTED.append(
    openapi_route(
        DOCUMENT_PATH,
        DOCUMENTED,
        ABOUT,
        None,
        OperationDoc("Show this document", {200: ResponseDoc("An OpenAPI 3.1 document.", Schema({"type": "object"}))}),
    )
)

API: ServiceApi[Networking] = ServiceApi(
    name="network",
    error_shape=neutron_error,
    schema_error_message=schemas.describe_fault,
    max_json_bytes=1 << 20,
    routes=(*DOCUMENTED, *_absent_routes()),
)

#: Neutron's rule names. The services limit what a caller sees to its project and the networks that it may use.
RULES = RuleTable(
    {
        "get_extension": in_project,
        "get_network": reader,
        "create_network": admin,
        "update_network": admin,
        "delete_network": admin,
        "get_subnet": reader,
        "create_subnet": admin,
        "update_subnet": admin,
        "delete_subnet": admin,
        "get_port": reader,
        "create_port": member,
        handlers.ANY_ADDRESS_RULE: admin,
        handlers.MAC_RULE: admin,
        "update_port": member,
        "delete_port": member,
        "get_quota": reader,
        SERVER_PORTS_RULE: service,
        RELEASE_PORT_RULE: admin_or_service,
        _ABSENT_RULE: in_project,
    },
    refusal_text="({rule}) is disallowed by policy",
)
