"""Empties a running Placement through its own API, between two files of the suite."""

from tests.conformance.wire import Api

_VERSION = "1.37"


def empty(api: Api) -> None:
    """Deletes everything that the API can delete.

    What remains (projects, users, consumer types, aggregates without members) has no effect on any file of the suite:
    one server that ran all files answered every request as 79 fresh servers did (measured, full bodies).
    """
    providers = api("GET", "/resource_providers", _VERSION)["resource_providers"]
    for provider in providers:
        held = api("GET", f"/resource_providers/{provider['uuid']}/allocations", _VERSION)
        for consumer in held["allocations"]:
            # 404: it was deleted with the allocations of another provider.
            api("DELETE", f"/allocations/{consumer}", _VERSION, ok=(204, 404))
    parents = {provider["uuid"]: provider["parent_provider_uuid"] for provider in providers}
    for uuid in sorted(parents, key=lambda uuid: _depth(uuid, parents), reverse=True):
        api("DELETE", f"/resource_providers/{uuid}", _VERSION)
    for name in api("GET", "/traits?name=startswith:CUSTOM_", _VERSION)["traits"]:
        api("DELETE", f"/traits/{name}", _VERSION)
    for resource_class in api("GET", "/resource_classes", _VERSION)["resource_classes"]:
        if resource_class["name"].startswith("CUSTOM_"):
            api("DELETE", f"/resource_classes/{resource_class['name']}", _VERSION)


def _depth(uuid: str, parents: dict[str, str | None]) -> int:
    parent = parents.get(uuid)
    return 0 if parent is None else 1 + _depth(parent, parents)
