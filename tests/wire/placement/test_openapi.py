"""The published document contains the route table and the schemas, and answers conform to it."""

import jsonschema
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from moorage.placement.api.handlers.answers import VERSIONS
from moorage.placement.api.routes import ABOUT, DOCUMENT_PATH, ROUTES
from moorage.wire.microversion import Version
from moorage.wire.openapi import document

MINORS = range(VERSIONS.maximum.minor + 1)
HOST, DISK, CONSUMER = (f"{number}0000000-0000-4000-8000-000000000000" for number in (1, 2, 3))


def operations(published):
    return {f"{method.upper()} {path}" for path, methods in published["paths"].items() for method in methods}


def test_the_document_has_exactly_the_routes_of_the_service(wire):
    assert operations(wire.does("GET", DOCUMENT_PATH, version=None)) == {
        f"{route.method} {route.path}" for route in ROUTES
    }


def test_one_route_of_each_operation_has_its_description():
    documented = [f"{route.method} {route.path}" for route in ROUTES if route.doc is not None]
    assert sorted(documented) == sorted({f"{route.method} {route.path}" for route in ROUTES})


@pytest.mark.parametrize("minor", MINORS)
def test_the_document_of_a_microversion_has_the_routes_of_that_version(wire, minor):
    version = Version(1, minor)
    published = wire.does("GET", DOCUMENT_PATH, version=str(version))
    assert operations(published) == {
        f"{route.method} {route.path}"
        for route in ROUTES
        if (route.since or version) <= version <= (route.until or version)
    }
    assert published["info"]["version"] == str(version)


@pytest.mark.parametrize("only", [None, *(Version(1, minor) for minor in MINORS)])
def test_documents_are_valid_openapi_3_1_and_their_schemas_json_schemas(only):
    published = document(ROUTES, ABOUT, VERSIONS, only)
    jsonschema_rs.validator_for(OPENAPI_31).validate(published)
    for schema in schemas_in(published):
        jsonschema.Draft202012Validator.check_schema(schema)


def schemas_in(part):
    """All values of the key ``schema``."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "schema":
                yield value
            else:
                yield from schemas_in(value)
    elif isinstance(part, list):
        for item in part:
            yield from schemas_in(item)


def test_the_document_can_be_read_without_a_token(wire):
    assert wire.send("GET", DOCUMENT_PATH, who=None)[0] == 200


def test_the_documented_body_is_the_schema_that_validates_it():
    published = document(ROUTES, ABOUT, VERSIONS, Version(1, 12))
    route = next(one for one in ROUTES if (one.method, one.path) == ("PUT", "/allocations/{consumer_uuid}"))
    content = published["paths"][route.path]["put"]["requestBody"]["content"]
    assert content["application/json"]["schema"] == route.schema.for_version(Version(1, 12)).document


def test_parameters_name_the_microversion_that_added_them():
    published = document(ROUTES, ABOUT, VERSIONS)
    parameters = published["paths"]["/resource_providers"]["get"]["parameters"]
    said = {one["name"]: one.get("description") for one in parameters if one.get("in") == "query"}
    assert said == {
        "name": None,
        "uuid": None,
        "member_of": "In 1.3 to 1.39.",
        "resources": "In 1.4 to 1.39.",
        "in_tree": "In 1.14 to 1.39.",
        "required": "In 1.18 to 1.39.",
    }


# --- documented answers are the answers ---------------------------------------------------------------------------


class Documented:
    """Sends requests, and compares each answer with the document of its microversion."""

    def __init__(self, wire, minor):
        self.wire, self.version = wire, Version(1, minor)
        self.paths = wire.does("GET", DOCUMENT_PATH, version=str(self.version))
        self.seen = set()

    def send(self, method, template, body=None, *, query="", **placeholders):
        """Sends a request; returns its status, or None if this version has no such route."""
        operation = self.paths["paths"].get(template, {}).get(method.lower())
        if operation is None:
            return None
        path = template.format(**placeholders) + query
        status, headers, answer = self.wire.send(method, path, body, version=str(self.version), roles="admin,service")
        self.check(operation, status, headers, answer)
        self.seen.add((f"{method} {template}", status))
        return status

    def check(self, operation, status, headers, answer):
        said = operation["responses"][str(status)]
        if "$ref" in said:
            said = self.paths["components"]["responses"]["Refusal"]
        if "content" not in said:
            assert answer == ""
            assert "content-type" not in headers
            return
        ((content_type, content),) = said["content"].items()
        assert headers["content-type"] == content_type
        jsonschema.validate(answer, content["schema"], cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("minor", MINORS)
def test_answers_are_as_documented(wire, minor):
    """Every operation of the version succeeds at least once."""
    documented = Documented(wire, minor)
    send = documented.send
    use_all_routes(send, minor)
    succeeded = {operation for operation, status in documented.seen if status < 300}
    # Before 1.5 the method exists, but is refused.
    refused = {"DELETE /resource_providers/{uuid}/inventories"} if minor < 5 else set()
    assert succeeded == operations(documented.paths) - refused


def use_all_routes(send, minor):
    """Creates two providers of one aggregate, uses them by a consumer, and deletes everything."""
    provider, inventory = "/resource_providers/{uuid}", "/resource_providers/{uuid}/inventories/{resource_class}"
    send("GET", "/")
    send("GET", DOCUMENT_PATH)
    send("POST", "/resource_classes", {"name": "CUSTOM_ONE"})
    send("PUT", "/resource_classes/{name}", {"name": "CUSTOM_TWO"}, name="CUSTOM_ONE")
    send("GET", "/resource_classes/{name}", name="VCPU")
    send("GET", "/resource_classes")
    send("PUT", "/traits/{name}", name="CUSTOM_FAST")
    send("PUT", "/traits/{name}", name="CUSTOM_FAST")
    send("PUT", "/traits/{name}", name="CUSTOM_SLOW")
    send("GET", "/traits/{name}", name="CUSTOM_FAST")
    send("DELETE", "/traits/{name}", name="CUSTOM_SLOW")
    send("GET", "/traits", query="?name=startswith:CUSTOM_")
    send("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    send("POST", "/resource_providers", {"name": "disk", "uuid": DISK})
    send("POST", "/resource_providers", {"name": "disk", "uuid": DISK})
    send("PUT", provider, {"name": "Host"}, uuid=HOST)
    send("GET", provider, uuid=HOST)
    send("GET", inventory, uuid=HOST, resource_class="VCPU")
    send("POST", f"{provider}/inventories", {"resource_class": "VCPU", "total": 8}, uuid=HOST)
    send("PUT", inventory, {"total": 9, "resource_provider_generation": 1}, uuid=HOST, resource_class="VCPU")
    send("GET", inventory, uuid=HOST, resource_class="VCPU")
    send("PUT", inventory, {"total": 9, "resource_provider_generation": 77}, uuid=HOST, resource_class="VCPU")
    send("DELETE", inventory, uuid=HOST, resource_class="VCPU")
    offered = {"resource_provider_generation": 3, "inventories": {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 4096}}}
    send("PUT", f"{provider}/inventories", offered, uuid=HOST)
    send("PUT", f"{provider}/traits", {"traits": ["CUSTOM_FAST"], "resource_provider_generation": 4}, uuid=HOST)
    generation = 5 if minor >= 6 else 4
    aggregates = [CONSUMER] if minor < 19 else {"aggregates": [CONSUMER], "resource_provider_generation": generation}
    send("PUT", f"{provider}/aggregates", aggregates, uuid=HOST)
    claim(send, minor)
    for below in ("inventories", "usages", "aggregates", "traits", "allocations"):
        send("GET", f"{provider}/{below}", uuid=HOST)
    send("GET", "/resource_providers")
    send("GET", "/allocations/{consumer_uuid}", consumer_uuid=CONSUMER)
    send("GET", "/usages", query="?project_id=one")
    send("GET", "/allocation_candidates", query="?resources=VCPU:1")
    use_own_routes(send)
    send("GET", "/resource_providers", query="?nonsense=1")
    send("POST", "/reshaper", {"inventories": {DISK: unoffered(0)}, "allocations": {}})
    send("DELETE", "/allocations/{consumer_uuid}", consumer_uuid=CONSUMER)
    send("DELETE", "/allocations/{consumer_uuid}", consumer_uuid=CONSUMER)
    send("GET", "/allocations/{consumer_uuid}", consumer_uuid=CONSUMER)
    send("DELETE", f"{provider}/traits", uuid=HOST)
    send("DELETE", f"{provider}/inventories", uuid=DISK)
    send("DELETE", provider, uuid=DISK)
    send("DELETE", "/resource_classes/{name}", name="CUSTOM_ONE" if minor >= 7 else "CUSTOM_TWO")


def use_own_routes(send):
    """Requests to the routes that only our service has."""
    send("GET", "/moorage/v1/explain", query="?resources=VCPU:100")
    for kind, subject in (("providers/{uuid}", HOST), ("consumers/{consumer_uuid}", CONSUMER)):
        for below in ("", "/changes"):
            send("GET", f"/moorage/v1/history/{kind}{below}", uuid=subject, consumer_uuid=subject)
    send("GET", "/moorage/v1/survey", query="?resource_class=VCPU")
    send("GET", "/moorage/v1/trees", query="?search=host&limit=1")
    send("GET", "/moorage/v1/trees/{uuid}", uuid=HOST)
    send("GET", "/moorage/v1/trees/{uuid}", query="?at=2999-01-01T00:00:00Z", uuid=HOST)
    send("GET", "/moorage/v1/changes", query="?limit=1000")
    send("GET", "/moorage/v1/events", query="?since=0&kind=consumer")


def unoffered(generation):
    return {"resource_provider_generation": generation, "inventories": {}}


def claim(send, minor):
    """A claim in the format of the version; also by POST, if the version has it."""
    if minor < 12:
        held = [{"resource_provider": {"uuid": HOST}, "resources": {"VCPU": 2}}]
    else:
        held = {HOST: {"resources": {"VCPU": 2}}}
    body = {"allocations": held}
    if minor >= 8:
        body |= {"project_id": "one", "user_id": "two"}
    if minor >= 28:
        body |= {"consumer_generation": None}
    if minor >= 38:
        body |= {"consumer_type": "INSTANCE"}
    send("PUT", "/allocations/{consumer_uuid}", body, consumer_uuid=CONSUMER)
    send("PUT", "/allocations/{consumer_uuid}", {"nonsense": 1}, consumer_uuid=CONSUMER)
    again = body | ({"consumer_generation": 1} if minor >= 28 else {})
    send("POST", "/allocations", {CONSUMER: again})
