"""A reservation service with hosts, leases and a hold, and its OpenAPI document with their names in the schemas."""

import json
from typing import Any

import jsonschema_rs

from moorage.identity.authentication.authenticators import NoAuth
from moorage.reservation.api.routes import ABOUT, DOCUMENT_PATH, DOCUMENTED, VERSIONS
from moorage.wire.microversion import Version
from moorage.wire.openapi import document
from tests.fuzz.world import below
from tests.wire.reservation.neutron import INSIDE, NETWORK, Neutron
from tests.wire.reservation.plane import Plane, instance, lease

_DEEP: Any = "1"
for _ in range(60):
    _DEEP = ["not", _DEEP]
QUERIES = ["", '["=", "$rack", "9"]', '[">=", "$vcpus", "1e999"]', '["and"]', '["<", "$vcpus", "nan"]', "[" * 999, "\0",
           json.dumps(_DEEP), '["in", "$id", []]', '["=", "$" , "1"]', "{}", "null", '["=", "$nothing", "1"]']  # fmt: skip
DATES = ["now", "2026-03-05 10:00", "2026-03-06 10:00", "2026-03-01 09:31", "2026-03-01 09:30", "0001-01-01 00:00",
         "9999-12-31 23:59", "2026-02-30 10:00", "2026-03-05 24:00", "2026-03-05", "", "\u0662026-03-05 10:00", "soon"]  # fmt: skip
RESERVATIONS = [
    *(instance(memory_mb=n) for n in range(1, 13)),
    instance(2, affinity=True),
    instance(2, affinity=False),
    instance(100_000, vcpus=1, memory_mb=0, disk_gb=0),
    instance(vcpus=0, memory_mb=0, disk_gb=0),
    instance(vcpus=2**31 - 1),
    instance(vcpus=2**31),
    instance(amount=0),
    instance(amount=1.0),
    instance(amount=10**30),
    instance(affinity="sometimes"),
    *(instance(resource_properties=text) for text in QUERIES),
    {"resource_type": "physical:host", "min": 1, "max": 1, "hypervisor_properties": "", "resource_properties": ""},
    {"resource_type": "resource:any", "resources": {"VCPU": 1}, "amount": 1},
    {"resource_type": "resource:any", "resources": {"VCPU": 10**30, "x" * 300: 1}, "traits": {"": 1}, "amount": 1},
    {"resource_type": "virtual:floatingip"},
    *({"resource_type": "virtual:floatingip", "network_id": network, "amount": amount, "required_floatingips": required}
      for network, amount, required in [(NETWORK, 1, []), (NETWORK, "2", ["192.0.2.7"]), (NETWORK, 1, ["x", "\0"]),
                                        ("nowhere", 1, []), ("", 0, []), (NETWORK, 10**30, []), (None, "many", None)]),
    {"resource_type": "x:y"},
    {"resource_type": None},
    {"resource_type": "virtual:instance"},
    {},
]  # fmt: skip
#: Large enough that some requests succeed.
SOUND = {
    "POST /v1/leases": [
        lease(
            instance(number), start=f"2026-03-0{day} 09:00", end=f"2026-03-{day + 8} 09:00", before_end_date=before_end
        )
        for number in (1, 5)
        for day in (2, 5)
        for before_end in (None, "2026-03-09 10:00")
    ],
    "POST /v1/holds": [{"duration_minutes": length, "reservations": [instance()]} for length in (1, 9, 10_000)],
    "POST /v1/floatingips": [
        {"floating_network_id": NETWORK, "floating_ip_address": f"192.0.2.{number}"} for number in range(2, 9)
    ],
    "POST /v1/os-hosts": [{"name": "compute-1"}, {"name": "compute-2", "rack": "9"}],
}
#: Values by the name of a property or parameter: valid ones, then unusual ones.
VALUES: dict[str, list[Any]] = {
    "name": ["lease", "x" * 255, "\U0001f600", "rack"],
    "start_date": [*(f"2026-03-0{day} 09:00" for day in range(2, 8)), *DATES],
    "end_date": [*(f"2026-03-{day} 09:00" for day in range(10, 20)), *DATES],
    "before_end_date": [None, "2026-03-09 09:00", "2026-03-09 10:00", "2026-03-09 11:00", *DATES],
    "earliest_start": DATES,
    "latest_start": DATES,
    "ends_after": DATES[1:5],
    "starts_before": DATES[1:5],
    "duration_minutes": [1, 60, 527_040],
    "events": [[]],
    "host_id": ["1", "2", "99", "x", "9" * 400, "\u0661"],
    "floating_network_id": [NETWORK, INSIDE, "..", "x/../y", "\0"],
    "floating_ip_address": ["192.0.2.7", "192.0.2.150", "192.0.2.0", "2001:DB8::7", "192.0.2.07", "x", "\u0661.2.3.4"],
    "marker": ["1", "2", "99"],
    "limit": ["1", "2", "1000", "999999999"],
    "properties": QUERIES,
}


class World:
    """A service with one host and one lasting lease; everything else is restored after it was deleted."""

    def __init__(self, directory) -> None:
        self.plane = Plane(directory, neutron=Neutron(), authenticator=NoAuth())
        self.plane.stop_runner()
        for name in ("compute-1", "compute-2"):
            self.plane.add_host(name)
        self.app = below("/reservation", self.plane.cloud)
        self._transport = self.plane.cloud.transport("/reservation")
        self.leases: list[str] = []
        self.holds: list[str] = []

    def stock(self) -> None:
        """Restores hosts, two leases and a hold, and deletes earlier ones to free their capacity."""
        for each in self._ask("GET", "/v1/leases")["leases"]:
            self._ask("DELETE", f"/v1/leases/{each['id']}")
        for each in self._ask("GET", "/v1/holds")["holds"]:
            self._ask("DELETE", f"/v1/holds/{each['id']}")
        for name in ("compute-1", "compute-2"):
            self._ask("POST", "/v1/os-hosts", {"name": name, "rack": "9"})
        later = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}
        made = [self._ask("POST", "/v1/leases", lease(instance(), **later))["lease"] for _ in range(2)]
        self.leases[:] = [each["id"] for each in made]
        held = self._ask("POST", "/v1/holds", {"duration_minutes": 60, "reservations": [instance()]})
        self.holds[:] = [held["hold"]["id"]]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"openstack-api-version": "reservation 1.1", "content-type": "application/json"}
        answer = self._transport.send(method, path, headers, None if body is None else json.dumps(body).encode())
        return json.loads(answer.body or b"null")


def fed_document(minor: int, *, values: bool) -> dict[str, Any]:
    """`values`: whether values of bodies and queries are chosen from `VALUES`, too. Ids in paths are set for each
    call.
    """
    published = document(DOCUMENTED, ABOUT, VERSIONS, Version(1, minor))
    del published["paths"][DOCUMENT_PATH]
    for methods in published["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                parameter.pop("example", None)
                if (values or parameter.get("in") == "path") and parameter.get("name") in VALUES:
                    parameter["schema"] = {"enum": VALUES[parameter["name"]]}
            if values and "requestBody" in operation:
                operation["requestBody"] = _fed(operation["requestBody"])
    return published


def _fed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_fed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    fed = {name: _fed(value) for name, value in schema.items()}
    for name in fed.get("properties", {}):
        if name == "reservations":
            fed["properties"][name] = {"type": "array", "items": {"enum": RESERVATIONS}, "minItems": 1, "maxItems": 3}
        elif name in VALUES:
            fed["properties"][name] = {"enum": VALUES[name]}
    return fed


_REFUSAL = jsonschema_rs.validator_for(ABOUT.error_schema.document)


def trouble_with(status: int, content_type: str, body: bytes) -> str | None:
    """The error in an answer, whatever the request; None if there is none. 501 is allowed: not implemented."""
    if status >= 500 and status != 501:
        return f"{status}: {body[:500]!r}"
    if status < 400:
        return None
    if not content_type.startswith("application/json"):
        return f"a refusal in {content_type}"
    if not _REFUSAL.is_valid(json.loads(body)):
        return f"not the peer's error shape: {body[:500]!r}"
    return None
