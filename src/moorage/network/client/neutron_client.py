"""A client of the network service (Neutron, Networking API v2.0): networks, subnets, ports and floating IPs.

It has only the calls that reservations of floating IPs need. It requires an administrator's credentials, because it
creates floating IPs with given addresses in other projects.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote

from moorage.core.errors import Conflict, NotFound, RemoteError
from moorage.wire.client import ServiceClient

#: Maximum addresses per request: the length of a URL is limited.
_MAX_ADDRESSES_PER_REQUEST = 50


@dataclass(frozen=True, slots=True)
class NeutronNetwork:
    id: str
    name: str
    is_external: bool  #: it can provide floating IPs


@dataclass(frozen=True, slots=True)
class NeutronSubnet:
    """`cidr`, `gateway` and the ends of `pools` (inclusive) are strings in Neutron's notation."""

    id: str
    cidr: str
    gateway: str | None
    pools: Sequence[tuple[str, str]]  #: (first, last) addresses that Neutron allocates from


@dataclass(frozen=True, slots=True)
class NeutronPort:
    """The user of an address. `owner` is Neutron's device owner, such as ``network:floatingip``."""

    id: str
    project_id: str
    owner: str


@dataclass(frozen=True, slots=True)
class FloatingIp:
    id: str
    network_id: str
    address: str
    project_id: str
    port_id: str | None  #: the port that it is associated with
    description: str
    tags: frozenset[str]


class NetworkClient:
    """`http` uses the network endpoint of the catalogue, without ``/v2.0``.

    Raises `RemoteError` if Neutron refuses a request, `Unavailable` if it does not answer.
    """

    def __init__(self, http: ServiceClient) -> None:
        self._http = http

    def network(self, network_id: str) -> NeutronNetwork | None:
        """None if there is no such network."""
        if network_id in ("", ".", ".."):  # quoting leaves dots as they are
            return None
        try:
            found = self._http.get(f"/v2.0/networks/{quote(network_id, safe='')}")["network"]
        except NotFound:
            return None
        return NeutronNetwork(found["id"], found.get("name") or "", bool(found.get("router:external")))

    def subnets(self, network_id: str) -> list[NeutronSubnet]:
        return [
            NeutronSubnet(
                row["id"],
                row["cidr"],
                row.get("gateway_ip"),
                [(pool["start"], pool["end"]) for pool in row.get("allocation_pools", ())],
            )
            for row in self._rows("subnets", [("network_id", network_id)])
        ]

    def ports_at(self, network_id: str, address: str) -> list[NeutronPort]:
        """The ports that use the address now: of servers, routers or floating IPs."""
        filters = [("network_id", network_id), ("fixed_ips", f"ip_address={address}")]
        return [
            NeutronPort(row["id"], row.get("project_id") or "", row.get("device_owner") or "")
            for row in self._rows("ports", filters)
        ]

    def floating_ips(self, network_id: str, addresses: Collection[str]) -> list[FloatingIp]:
        """The floating IPs with one of these addresses, in any project."""
        found, wanted = list[FloatingIp](), sorted(addresses)
        for first in range(0, len(wanted), _MAX_ADDRESSES_PER_REQUEST):
            some = wanted[first : first + _MAX_ADDRESSES_PER_REQUEST]
            filters = [("floating_network_id", network_id), *(("floating_ip_address", each) for each in some)]
            found += [_floating_ip(row) for row in self._rows("floatingips", filters)]
        return found

    def floating_ips_tagged(self, tag: str) -> list[FloatingIp]:
        return [_floating_ip(row) for row in self._rows("floatingips", [("tags", tag)])]

    def create_floating_ip(
        self, network_id: str, subnet_id: str, address: str, *, project_id: str, description: str
    ) -> FloatingIp:
        """Raises `Conflict` if the address is in use or the project's Neutron quota is exhausted.

        The request is not repeated: the answer may have been lost, so callers look for the floating IP before they try
        again.
        """
        wanted = {
            "floating_network_id": network_id,
            "subnet_id": subnet_id,
            "floating_ip_address": address,
            "project_id": project_id,
            "description": description,
        }
        try:
            made = self._http.request("POST", "/v2.0/floatingips", json={"floatingip": wanted}, repeatable=False)
        except RemoteError as error:
            if error.status == 409:
                raise Conflict(error.message) from error
            raise
        return _floating_ip(made["floatingip"])

    def set_tags(self, floating_ip_id: str, tags: Collection[str]) -> None:
        """Replace all tags. Raises `RemoteError` if the floating IP is gone; Neutron 29 answers 500."""
        self._http.request("PUT", f"/v2.0/floatingips/{floating_ip_id}/tags", json={"tags": sorted(tags)})

    def dissociate(self, floating_ip_id: str) -> None:
        """Dissociate it from its port. Ignores a floating IP that is gone."""
        path = f"/v2.0/floatingips/{floating_ip_id}"
        self._http.request_raw("PUT", path, json={"floatingip": {"port_id": None}}, accept=(404,))

    def delete_floating_ip(self, floating_ip_id: str) -> None:
        """Ignores a floating IP that is gone."""
        self._http.request_raw("DELETE", f"/v2.0/floatingips/{floating_ip_id}", accept=(404,))

    def _rows(self, resource: str, filters: Sequence[tuple[str, str]]) -> Iterator[Any]:
        return self._http.paged_rows(f"/v2.0/{resource}", resource, filters, more=f"{resource}_links")


class _FloatingIpRow(TypedDict):
    id: str
    floating_network_id: str
    floating_ip_address: str
    project_id: NotRequired[str]
    tenant_id: NotRequired[str]
    port_id: str | None
    description: NotRequired[str]
    tags: NotRequired[list[str]]


def _floating_ip(row: _FloatingIpRow) -> FloatingIp:
    return FloatingIp(
        row["id"],
        row["floating_network_id"],
        row["floating_ip_address"],
        row.get("project_id") or row.get("tenant_id") or "",
        row.get("port_id"),
        row.get("description") or "",
        frozenset(row.get("tags", ())),
    )
