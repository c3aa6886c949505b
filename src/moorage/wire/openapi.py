"""Renders a service's route table as an OpenAPI 3.1 document, with the schemas that requests are validated against.

OpenAPI has no microversions. The document of a single microversion is exact: its routes, queries and bodies. The
document of a range lists, for each operation, the versions that have it, and combines the schemas of all versions with
``anyOf``, each titled with its versions. The functions are pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from re import match, sub
from typing import Any

from moorage.wire.body import Schema, VersionedSchema, encode_json
from moorage.wire.http import OperationDoc, Request, Response, Route, S
from moorage.wire.microversion import HEADER, Version, VersionRange

DIALECT = "https://json-schema.org/draft/2020-12/schema"
AUTH_HEADER = "X-Auth-Token"

Json = dict[str, Any]
AnySchema = Schema | VersionedSchema | None


@dataclass(frozen=True)
class ServiceDoc:
    """The documentation of one service."""

    title: str
    description: str
    parameters: Mapping[str, Json]  #: schema of each placeholder in the paths
    error_schema: AnySchema  #: the shape of all errors


@dataclass(frozen=True)
class _VersionSpan:
    """Microversions from `since` to `until`, both included; None for a service without any."""

    since: Version | None
    until: Version | None

    def __str__(self) -> str:
        return f"{self.since}" if self.since == self.until else f"{self.since} to {self.until}"

    def cut(self, since: Version | None, until: Version | None) -> "_VersionSpan | None":
        """The part of the span between these two; None if nothing is left."""
        if self.since is None or self.until is None:
            return self
        later, earlier = max(self.since, since or self.since), min(self.until, until or self.until)
        return _VersionSpan(later, earlier) if later <= earlier else None


def document(
    routes: Sequence[Route[S]], service_doc: ServiceDoc, versions: VersionRange | None, only: Version | None = None
) -> Json:
    """The OpenAPI document of the whole range, or of the microversion `only`.

    One row of each method and path has the texts, for all of its versions.
    """
    whole = _VersionSpan(only, only) if only or versions is None else _VersionSpan(versions.minimum, versions.maximum)
    docs = {(route.method, route.path): route.doc for route in routes if route.doc is not None}
    operations: dict[str, dict[str, list[tuple[_VersionSpan, Route[S]]]]] = {}
    for route in routes:
        if span := whole.cut(route.since, route.until):
            operations.setdefault(route.path, {}).setdefault(route.method, []).append((span, route))
    components: Json = {
        "responses": {"Refusal": _response("A refusal", service_doc.error_schema, whole)},
        "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": AUTH_HEADER}},
    }
    if versions is not None:
        components["parameters"] = {"Microversion": _microversion(versions, only)}
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": service_doc.title,
            "version": str(only or (versions.maximum if versions else 1)),
            "description": service_doc.description,
        },
        "security": [{"token": []}],
        "paths": {
            path: {
                method.lower(): _operation(docs[method, path], service_doc, versions, path, method, spans)
                for method, spans in methods.items()
            }
            for path, methods in operations.items()
        },
        "components": components,
    }


def openapi_route(
    path: str,
    routes: Sequence[Route[S]],
    service_doc: ServiceDoc,
    versions: VersionRange | None,
    doc: OperationDoc | None = None,
) -> Route[S]:
    """A public route that returns the document of `routes`; the route may be appended to `routes` itself,
    then with a `doc`.

    A request with a microversion gets the document of that version, one without gets the document of the range. Each
    document is rendered at its first request: the documents of forty versions take a few megabytes, and most are never
    requested.
    """

    @cache
    def encoded(only: Version | None) -> bytes:
        return encode_json(document(routes, service_doc, versions, only))

    def show(request: Request[S]) -> Response:
        named = versions is not None and HEADER.lower() in request.headers
        return Response(200, encoded(request.version if named else None))

    return Route("GET", path, show, None, reads="none", doc=doc)


def _microversion(versions: VersionRange, only: Version | None) -> Json:
    minors = range(versions.minimum.minor, versions.maximum.minor + 1)
    numbers = [str(only)] if only else [f"{versions.minimum.major}.{minor}" for minor in minors]
    values = [f"{versions.service_type} {number}" for number in (*numbers, *(() if only else ("latest",)))]
    return {
        "name": HEADER,
        "in": "header",
        "required": only is not None,
        "description": f"The microversion to answer in; {versions.minimum} where it is not given.",
        "schema": {"type": "string", "enum": values},
    }


def _operation(
    doc: OperationDoc,
    service_doc: ServiceDoc,
    versions: VersionRange | None,
    path: str,
    method: str,
    spans: Sequence[tuple[_VersionSpan, Route[S]]],
) -> Json:
    placeholders = [name for part in path.split("/") if (name := part.strip("{}")) != part]
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": service_doc.parameters[name]} for name in placeholders
    ]
    if versions is not None:
        parameters.append({"$ref": "#/components/parameters/Microversion"})
    parameters += _query(doc, [span for span, _ in spans])
    bodies = [part for span, route in spans if route.reads == "json" for part in _by_version(route.schema, span)]
    operation: Json = {
        "operationId": sub(r"\W+", "_", f"{method.lower()} {path}").strip("_"),
        "summary": doc.summary,
        "parameters": parameters,
        "responses": _responses(doc, spans, has_body=bool(bodies), may_miss=bool(placeholders)),
    }
    if doc.notes:
        operation["description"] = doc.notes
    if versions is not None:
        operation["x-openstack-microversions"] = [str(span) for span, _ in spans]
    if bodies:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _any_of(bodies)}}}
    elif any(route.reads in ("stream", "raw") for _, route in spans):
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    if all(route.rule is None for _, route in spans):
        operation["security"] = []
    return operation


def _responses(
    doc: OperationDoc, spans: Sequence[tuple[_VersionSpan, Route[S]]], *, has_body: bool, may_miss: bool
) -> Json:
    span = _enclosing_span([span for span, _ in spans])
    successes = {
        str(status): _response(answer.description, answer.body, span, answer.content_type)
        for status, answer in sorted(doc.responses.items())
    }
    statuses = {400, 406, 503} | doc.error_statuses
    if any(route.rule is not None for _, route in spans):
        statuses |= {401, 403}
    if may_miss or any(route.since for _, route in spans):
        statuses.add(404)
    if any(route.method != "GET" for _, route in spans):
        statuses.add(409)
    if has_body:
        statuses |= {413, 415}
    return successes | {str(status): {"$ref": "#/components/responses/Refusal"} for status in sorted(statuses)}


def _response(says: str, schema: AnySchema, span: _VersionSpan, content_type: str = "application/json") -> Json:
    parts = list(_by_version(schema, span))
    return {"description": says} | ({"content": {content_type: {"schema": _any_of(parts)}}} if parts else {})


def _enclosing_span(spans: Sequence[_VersionSpan]) -> _VersionSpan:
    """From the first version of all `spans` to the last."""
    return _VersionSpan(
        min((span.since for span in spans if span.since), default=None),
        max((span.until for span in spans if span.until), default=None),
    )


def _by_version(schema: AnySchema, span: _VersionSpan) -> Iterator[tuple[_VersionSpan, Json]]:
    """Each schema that applies within `span`, with the span in which it applies."""
    if isinstance(schema, Schema):
        yield span, dict(schema.document)
    elif isinstance(schema, VersionedSchema) and span.since is None:
        yield from _by_version(schema.for_version(None), span)
    elif isinstance(schema, VersionedSchema):
        ends = [Version(since.major, since.minor - 1) for since, _ in schema.rows[1:]]
        for (since, one), end in zip(schema.rows, [*ends, None], strict=True):
            if one is not None and (part := span.cut(since, end)):
                yield part, dict(one.document)


def _any_of(parts: Sequence[tuple[_VersionSpan, Json]]) -> Json:
    if len(parts) == 1:
        return parts[0][1]
    return {"anyOf": [{"title": str(span)} | schema for span, schema in parts]}


def _query(doc: OperationDoc, spans: Sequence[_VersionSpan]) -> Iterator[Json]:
    """The query parameters. All parameters named by patterns become one object parameter, with a property for each."""
    parts = [part for span in spans for part in _by_version(doc.query, span)]
    named: dict[str, list[tuple[_VersionSpan, Json]]] = {}
    patterns: Json = {}
    for span, schema in parts:
        for name, one in schema.get("properties", {}).items():
            named.setdefault(name, []).append((span, one))
        patterns |= schema.get("patternProperties", {})
    for name, schemas in named.items():
        different = [one for at, one in enumerate(schemas) if one[1] not in [other for _, other in schemas[:at]]]
        parameter: Json = {
            "name": name,
            "in": "query",
            "required": all(name in schema.get("required", ()) for _, schema in parts),
            "schema": _any_of(different),
        }
        if schemas[0][0].since != parts[0][0].since or schemas[-1][0].until != parts[-1][0].until:
            parameter["description"] = f"In {_VersionSpan(schemas[0][0].since, schemas[-1][0].until)}."
        if name in doc.example:
            parameter["example"] = doc.example[name]
        yield parameter
    if patterns:
        example = {
            name: value for name, value in doc.example.items() if any(match(pattern, name) for pattern in patterns)
        }
        yield {
            "name": "by_pattern",
            "in": "query",
            "style": "form",
            "explode": True,
            "description": "Each property is a parameter of its own; their names follow the patterns.",
            "schema": {"type": "object", "patternProperties": patterns, "additionalProperties": False},
            "example": example,
        }
