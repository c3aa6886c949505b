"""A small Neutron in memory, for cases that are hard to cause in a real one: lost requests or answers, refusals.

`tests/system/reservation/test_floating_ips.py` shows that the client works with a real one.
"""

import json
from urllib.parse import parse_qsl, urlsplit

from moorage.core.errors import Unavailable
from moorage.network.client.neutron_client import NetworkClient
from moorage.wire.client import ServiceClient
from moorage.wire.transports import ClientResponse

NETWORK, INSIDE = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
SUBNET = "22222222-0000-4000-8000-000000000001"
SUBNET6 = "22222222-0000-4000-8000-000000000002"


class Neutron:
    """A transport. `asked` has (method, path) of all requests; `before` and `after` run around each and may raise."""

    def __init__(self):
        self.networks = {
            NETWORK: {"id": NETWORK, "name": "public", "router:external": True},
            INSIDE: {"id": INSIDE, "name": "inside", "router:external": False},
        }
        self.subnets = [
            {
                "id": SUBNET,
                "network_id": NETWORK,
                "cidr": "192.0.2.0/24",
                "gateway_ip": "192.0.2.1",
                "allocation_pools": [{"start": "192.0.2.100", "end": "192.0.2.200"}],
            },
            {
                "id": SUBNET6,
                "network_id": NETWORK,
                "cidr": "2001:db8::/64",
                "gateway_ip": None,
                "allocation_pools": [{"start": "2001:db8::1000", "end": "2001:db8::ffff"}],
            },
        ]
        self.ports = []
        self.floating_ips = {}
        self.asked = []
        self.is_down = False
        self.before = self.after = lambda method, path: None

    def client(self, clock):
        return NetworkClient(ServiceClient(self, service_type="network", clock=clock))

    def addresses(self, project="demo"):
        return sorted(
            each["floating_ip_address"] for each in self.floating_ips.values() if each["project_id"] == project
        )

    def send(self, method, target, headers, body=None):
        path = urlsplit(target).path.removeprefix("/v2.0")
        if self.is_down:
            raise Unavailable("network does not answer")
        self.before(method, path)
        self.asked.append((method, path))
        status, document = self._answer(method, path.split("/")[1:], parse_qsl(urlsplit(target).query), body)
        self.after(method, path)
        return ClientResponse(status, {}, b"" if document is None else json.dumps(document).encode())

    def _answer(self, method, parts, query, body):
        match method, parts:
            case "GET", ["networks", key]:
                found = self.networks.get(key)
                return (200, {"network": found}) if found else self._refused(404, f"Network {key} could not be found.")
            case "GET", [kind]:
                rows = {"floatingips": list(self.floating_ips.values()), "subnets": self.subnets, "ports": self.ports}
                return 200, {kind: [row for row in rows[kind] if self._matches(row, query)]}
            case "POST", ["floatingips"]:
                return self._create(json.loads(body)["floatingip"])
            case _, ["floatingips", key, *which]:
                if key not in self.floating_ips:
                    return self._refused(404, f"Floating IP {key} could not be found")
                return self._change(method, key, which, body)
        raise AssertionError((method, parts))

    def _change(self, method, key, which, body):
        if method == "DELETE":
            del self.floating_ips[key]
            return 204, None
        values = json.loads(body)
        self.floating_ips[key] |= values if which == ["tags"] else values["floatingip"]
        return 200, values

    def _create(self, wanted):
        address = wanted["floating_ip_address"]
        if any(each["floating_ip_address"] == address for each in self.floating_ips.values()):
            return self._refused(409, f"IP address {address} already allocated in subnet {wanted['subnet_id']}")
        key = f"33333333-0000-4000-8000-{len(self.asked):012}"
        self.floating_ips[key] = {**wanted, "id": key, "port_id": None, "tags": []}
        return 201, {"floatingip": self.floating_ips[key]}

    @staticmethod
    def _refused(status, message):
        return status, {"NeutronError": {"type": "Refused", "message": message, "detail": ""}}

    @staticmethod
    def _matches(row, query):
        wanted = {}
        for name, value in query:
            wanted.setdefault(name, []).append(value)
        if "tags" in wanted:
            return set(wanted["tags"]) <= set(row["tags"])
        if "fixed_ips" in wanted:
            return row["address"] == wanted["fixed_ips"][0].removeprefix("ip_address=")
        return all(row[name] in values for name, values in wanted.items())
