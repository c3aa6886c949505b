"""A placement with some cloud in it, and its published document with that cloud's names fed into the schemas.

Random uuids meet nothing but 404. So wherever a schema asks for a uuid, a resource class or a trait, the fed document
offers what is there beside what the schema says.
"""

import copy
import json
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from moorage.core.clock import SystemClock
from moorage.core.ids import SeededIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.authenticators import NoAuth
from moorage.placement.handlers.root import VERSIONS
from moorage.placement.openapi import ABOUT, DOCUMENT_PATH
from moorage.placement.routes import API, POLICIES, ROUTES
from moorage.placement.schemas.answers import REFUSAL
from moorage.placement.schemas.common import NAME, UUID_KEY
from moorage.placement.service import PlacementService
from moorage.wire.app import Surroundings, build
from moorage.wire.microversion import Version
from moorage.wire.openapi import document
from moorage.wire.transports import InProcessTransport

HOSTS = [f"{number}0000000-0000-4000-8000-00000000000{number}" for number in range(1, 5)]
CONSUMERS = [f"a0000000-0000-4000-8000-00000000000{number}" for number in range(1, 4)]
AGGREGATE = "b0000000-0000-4000-8000-000000000001"
CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_ONE"]
TRAITS = ["HW_CPU_X86_VMX", "CUSTOM_FAST", "MISC_SHARES_VIA_AGGREGATE"]

#: Values that go deeper than a random text, by the query parameter's name without its suffix.
TEXTS = {
    "resources": ["VCPU:1", "VCPU:1,CUSTOM_ONE:2", "MEMORY_MB:512", "VCPU:2147483647", "VCPU:9223372036854775808"],
    "required": ["CUSTOM_FAST", "!CUSTOM_FAST", "in:CUSTOM_FAST,HW_CPU_X86_VMX", "CUSTOM_FAST,!HW_CPU_X86_VMX"],
    "root_required": ["CUSTOM_FAST", "!CUSTOM_FAST"],
    "member_of": [AGGREGATE, f"!{AGGREGATE}", f"in:{AGGREGATE},{HOSTS[0]}", f"!in:{AGGREGATE}"],
    "in_tree": HOSTS,
    "same_subtree": ["_A,_B", "1,2", "_A"],
    "limit": ["1", "10", "1000", "99999999999999999999"],
    "name": ["host-1", "startswith:CUSTOM_", "in:CUSTOM_FAST", "CUSTOM_FAST", "CUSTOM_ONE", "VCPU"],
    "associated": ["true", "FALSE"],
    "project_id": ["project", "x" * 255],
    "consumer_type": ["INSTANCE", "all", "unknown"],
    "resource_class": CLASSES,
}
SUFFIXES = ["", "_A", "_B", "1", "2"]
OFFERED = {"resource_provider_generation": 0, "inventories": {name: {"total": 1000} for name in CLASSES}}


@dataclass
class World:
    """One process' placement: a tree of two, a sharing provider, a host, a consumer that holds something."""

    app: Any
    transport: InProcessTransport

    def ask(self, method: str, path: str, body: object = None, version: str = "1.39") -> int:
        headers = {"openstack-api-version": f"placement {version}", "content-type": "application/json"}
        return self.transport.send(method, path, headers, None if body is None else json.dumps(body).encode()).status


def make_world(directory) -> World:
    engine, ids = open_engine(f"sqlite:///{directory}/fuzzed.sqlite"), SeededIds(1)
    upgrade(engine, "placement")
    service = PlacementService(engine, SystemClock(), ids)
    service.start()
    app = build(API, service, Surroundings(NoAuth(), POLICIES["open"], ids))
    world = World(app, InProcessTransport(app))
    settled = [world.ask("POST", "/resource_classes", {"name": "CUSTOM_ONE"}), world.ask("PUT", "/traits/CUSTOM_FAST")]
    for number, host in enumerate(HOSTS, 1):
        parent = HOSTS[0] if number == 2 else None
        body = {"name": f"host-{number}", "uuid": host, "parent_provider_uuid": parent}
        below = f"/resource_providers/{host}"
        settled += [
            world.ask("POST", "/resource_providers", body),
            world.ask("PUT", f"{below}/inventories", OFFERED),
            world.ask("PUT", f"{below}/aggregates", {"aggregates": [AGGREGATE], "resource_provider_generation": 1}),
            world.ask("PUT", f"{below}/traits", {"traits": TRAITS[: number % 4], "resource_provider_generation": 2}),
        ]
    held = {
        "allocations": {HOSTS[0]: {"resources": {"VCPU": 1}}, HOSTS[2]: {"resources": {"CUSTOM_ONE": 2}}},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    settled.append(world.ask("PUT", f"/allocations/{CONSUMERS[0]}", held))
    assert all(200 <= status < 300 for status in settled), settled
    return world


def fed_document(minor: int) -> dict[str, Any]:
    published = document(ROUTES, ABOUT, VERSIONS, Version(1, minor))
    del published["paths"][DOCUMENT_PATH]
    for methods in published["paths"].values():
        for operation in methods.values():
            operation["parameters"] = [_fed_parameter(one) for one in operation["parameters"]]
            if "requestBody" in operation:
                operation["requestBody"] = _fed(operation["requestBody"])
    return published


def _fed_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    parameter = {name: value for name, value in parameter.items() if name != "example"}
    if parameter.get("name") == "by_pattern":
        properties = {
            f"{key}{suffix}": {"anyOf": [{"enum": TEXTS[key]}, {"type": "string"}]}
            for key in ("resources", "required", "member_of", "in_tree")
            for suffix in SUFFIXES
            if any(f"^{key}" in pattern for pattern in parameter["schema"]["patternProperties"])
        }
        return parameter | {"schema": parameter["schema"] | {"properties": properties}}
    if values := TEXTS.get(parameter.get("name", "")):
        return parameter | {"schema": {"anyOf": [{"enum": values}, parameter["schema"]]}}
    return _fed(parameter)


def _fed(schema: Any) -> Any:
    """`schema` with what is there offered beside it."""
    if isinstance(schema, list):
        return [_fed(one) for one in schema]
    if not isinstance(schema, dict):
        return copy.copy(schema)
    if schema.get("format") == "uuid":
        return {"anyOf": [{"enum": [*HOSTS, AGGREGATE, *CONSUMERS]}, schema]}
    fed = {name: _fed(value) for name, value in schema.items()}
    if patterns := fed.get("patternProperties"):
        known = {UUID_KEY: [*HOSTS, *CONSUMERS], NAME: CLASSES}
        fed["properties"] = {name: value for key, value in patterns.items() for name in known.get(key, [])}
        fed["maxProperties"] = 4
    return fed


#: By whether the answer is in a version that has error codes; a version that could not be read has none.
_REFUSALS = [jsonschema_rs.validator_for(schema.document) for _, schema in REFUSAL.rows if schema is not None]


def trouble_with(status: int, content_type: str, body: bytes) -> str | None:
    """What is wrong with an answer whatever was asked; None where it is sound."""
    if status >= 500:
        return f"{status}: {body[:500]!r}"
    if status < 400:
        return None
    if not content_type.startswith("application/json"):
        return f"a refusal in {content_type}"
    if not any(validator.is_valid(json.loads(body)) for validator in _REFUSALS):
        return f"not the peers' error shape: {body[:500]!r}"
    return None
