"""A placement with a small cloud, and its OpenAPI document with the cloud's names in the schemas.

Random uuids would only cause 404. So wherever a schema has a uuid, a resource class or a trait, this document lists
existing names and one missing name. (An ``anyOf`` of such a list and any text would not work: most of the values
generated from it are texts.)
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jsonschema_rs

from moorage.identity.authentication.authenticators import NoAuth
from moorage.placement.api.handlers.answers import VERSIONS
from moorage.placement.api.routes import ABOUT, DOCUMENT_PATH, ROUTES
from moorage.placement.api.schemas.answers import REFUSAL
from moorage.placement.api.schemas.common import NAME, UUID_KEY
from moorage.wire.microversion import Version
from moorage.wire.openapi import document
from tests.plane import InProcessPlane

HOSTS = [f"{number}0000000-0000-4000-8000-00000000000{number}" for number in range(1, 5)]
CONSUMERS = [f"a0000000-0000-4000-8000-00000000000{number}" for number in range(1, 4)]
AGGREGATE = "b0000000-0000-4000-8000-000000000001"
CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_ONE"]
TRAITS = ["HW_CPU_X86_VMX", "CUSTOM_FAST", "MISC_SHARES_VIA_AGGREGATE"]

TIMES = ["2026-01-01T00:00:00Z", "2099-01-01T00:00:00+00:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
         "2026-01-01", "now", "1e999", "2026-13-01T00:00:00Z"]  # fmt: skip
#: Values of query parameters, by the name without its suffix, and of names in the path: valid ones, then unusual ones.
TEXTS = {
    "resources": ["VCPU:1", "VCPU:1,CUSTOM_ONE:2", "MEMORY_MB:512", "VCPU:2147483647",
                  "VCPU:9223372036854775808", "VCPU:\u0663", "VCPU:1e3", "VCPU:1,VCPU:2", "VCPU:" + "9" * 5000, ":1", ","],
    "required": ["CUSTOM_FAST", "!CUSTOM_FAST", "in:CUSTOM_FAST,HW_CPU_X86_VMX", "CUSTOM_FAST,!HW_CPU_X86_VMX",
                 "CUSTOM_FAST,!CUSTOM_FAST", "in:", "!", "!!CUSTOM_FAST", "CUSTOM_NONE", ",".join(["CUSTOM_FAST"] * 999)],
    "root_required": ["CUSTOM_FAST", "!CUSTOM_FAST", "in:CUSTOM_FAST"],
    "member_of": [AGGREGATE, f"!{AGGREGATE}", f"in:{AGGREGATE},{HOSTS[0]}", f"!in:{AGGREGATE}", "in:", "!", "\0"],
    "in_tree": [*HOSTS, AGGREGATE, "{" + HOSTS[0] + "}", HOSTS[0].replace("-", "").upper()],
    "same_subtree": ["_A,_B", "1,2", "_A", ",", "_A,_A"],
    "limit": ["1", "10", "1000", "99999999999999999999", "9" * 5000],
    "name": ["host-1", "startswith:CUSTOM_", "in:CUSTOM_FAST", "CUSTOM_FAST", "CUSTOM_ONE", "VCPU", "CUSTOM_NEW",
             "in:" + ",".join(f"CUSTOM_{number}" for number in range(3000)), "x" * 255, "CUSTOM_" + "X" * 5000, "\u00ff\n"],
    "associated": ["true", "FALSE", "1"],
    "project_id": ["project", "x" * 255, "\U0001f600"],
    "consumer_type": ["INSTANCE", "all", "unknown", "allx"],
    "resource_class": [*CLASSES, "CUSTOM_NONE", "vcpu"],
    "uuid": [*HOSTS, HOSTS[0].replace("-", "").upper(), "c0000000-0000-4000-8000-000000000001"],
    "consumer_uuid": [*CONSUMERS, "c0000000-0000-4000-8000-000000000001"],
    "since": ["0", "1", "5.1", "-1", "99999999999999999999", "1.99999999999999999999", "x"],
    "after": ["0", "1", "5.1", "-1", "99999999999999999999", "x"],
    "kind": ["provider", "provider,usages", "consumer", ",", "x" * 5000],
    "subject": [*HOSTS, *CONSUMERS, "x"],
    "at": TIMES,
    "from": TIMES,
    "to": TIMES,
}  # fmt: skip
UUIDS = [*HOSTS, *CONSUMERS, AGGREGATE, HOSTS[0].replace("-", "").upper(), "c0000000-0000-4000-8000-000000000001"]
SUFFIXES = ["", "_A", "_B", "1", "2"]
OFFERED = {name: {"total": 1000} for name in CLASSES}
#: The route whose answers do not end.
WATCH = "/moorage/v1/events"


class World:
    """The placement service of one process: a tree of two, a sharing provider, a host, a consumer with allocations."""

    def __init__(self, directory: Path) -> None:
        self.plane = InProcessPlane(directory, "placement", authenticator=NoAuth(), placement={"policy": "open"})
        self.app = below("/placement", self.plane)
        self._transport = self.plane.transport("/placement")
        self.stock()

    def stock(self) -> None:
        """Restores what was deleted; does not change anything else."""
        self.ask("POST", "/resource_classes", {"name": "CUSTOM_ONE"})
        self.ask("PUT", "/traits/CUSTOM_FAST")
        for number, host in enumerate(HOSTS, 1):
            below = f"/resource_providers/{host}"
            parent = HOSTS[0] if number == 2 else None
            self.ask(
                "POST", "/resource_providers", {"name": f"host-{number}", "uuid": host, "parent_provider_uuid": parent}
            )
            self.ask("PUT", f"{below}/inventories", {"inventories": OFFERED, "resource_provider_generation": 0})
            self.ask("PUT", f"{below}/aggregates", {"aggregates": [AGGREGATE], "resource_provider_generation": 1})
            self.ask("PUT", f"{below}/traits", {"traits": TRAITS[: number % 4], "resource_provider_generation": 2})
            assert self.ask("GET", below) == 200
        held = {HOSTS[0]: {"resources": {"VCPU": 1}}, HOSTS[2]: {"resources": {"CUSTOM_ONE": 2}}}
        self.ask(
            "PUT",
            f"/allocations/{CONSUMERS[0]}",
            {
                "allocations": held,
                "project_id": "project",
                "user_id": "user",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            },
        )

    def ask(self, method: str, path: str, body: object = None) -> int:
        headers = {"openstack-api-version": "placement 1.39", "content-type": "application/json"}
        return self._transport.send(method, path, headers, None if body is None else json.dumps(body).encode()).status


def below(path: str, plane: InProcessPlane) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """The application of `plane` restricted to `path`, without that prefix."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["PATH_INFO"] = path + environ["PATH_INFO"]
        return plane.plane.app(environ, start_response)

    return app


def fed_document(minor: int, *, texts: bool) -> dict[str, Any]:
    """`texts`: whether values of the query are chosen from `TEXTS`, too."""
    published = document(ROUTES, ABOUT, VERSIONS, Version(1, minor))
    del published["paths"][DOCUMENT_PATH], published["paths"][WATCH]
    for methods in published["paths"].values():
        for operation in methods.values():
            operation["parameters"] = [_fed_parameter(one, texts=texts) for one in operation["parameters"]]
            if "requestBody" in operation:
                operation["requestBody"] = _fed(operation["requestBody"])
    return published


def _fed_parameter(parameter: dict[str, Any], *, texts: bool) -> dict[str, Any]:
    parameter = {name: value for name, value in parameter.items() if name != "example"}
    values = TEXTS.get(parameter.get("name", "")) if texts or parameter.get("in") == "path" else None
    if values:
        return parameter | {"schema": {"enum": values}}
    if texts and parameter.get("name") == "by_pattern":
        properties = {
            f"{key}{suffix}": {"enum": TEXTS[key]}
            for key in ("resources", "required", "member_of", "in_tree")
            for suffix in SUFFIXES
            if any(f"^{key}" in pattern for pattern in parameter["schema"]["patternProperties"])
        }
        return parameter | {"schema": {"type": "object", "properties": properties, "additionalProperties": False}}
    return _fed(parameter)


def _fed(schema: Any) -> Any:
    """`schema` with a choice wherever it expects a uuid, and with existing names among its properties."""
    if isinstance(schema, list):
        return [_fed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "uuid":
        return {"enum": UUIDS}
    fed = {name: _fed(value) for name, value in schema.items()}
    known = {UUID_KEY: [*HOSTS, *CONSUMERS], NAME: CLASSES}
    if patterns := {key: value for key, value in fed.get("patternProperties", {}).items() if key in known}:
        fed["properties"] = {name: value for key, value in patterns.items() for name in known[key]}
        fed["maxProperties"] = 4
    return fed


#: Indexed by whether the microversion of the answer has error codes; an answer without a readable version has none.
_REFUSALS = [jsonschema_rs.validator_for(schema.document) for _, schema in REFUSAL.rows if schema is not None]


def trouble_with(status: int, content_type: str, body: bytes) -> str | None:
    """The error in an answer, whatever the request; None if there is none."""
    if status >= 500:
        return f"{status}: {body[:500]!r}"
    if status < 400:
        return None
    if not content_type.startswith("application/json"):
        return f"a refusal in {content_type}"
    if not any(validator.is_valid(json.loads(body)) for validator in _REFUSALS):
        return f"not the peers' error shape: {body[:500]!r}"
    return None
