"""Turns a service's route table into a WSGI application, and mounts several applications behind path prefixes.

Checks reject a request in the same order as upstream: 401, then the microversion (400, 406), the route (404, 405), the
body's type and size (415, 413), policy (403), the body (400). Only then does the handler run.
"""

import io
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar, cast
from wsgiref.types import WSGIEnvironment

import falcon

from moorage.core import errors as e
from moorage.core.caller import ANONYMOUS, Caller
from moorage.core.ids import Ids
from moorage.telemetry.logs import caller_context, global_request, request_context
from moorage.telemetry.request_meter import NO_ROUTE, RequestMeter, RequestMeters
from moorage.telemetry.trail import Trail
from moorage.wire import forwarded
from moorage.wire.audit_entries import AuditedChange, EntryTemplate, failed_login_change
from moorage.wire.body import NUL_REFUSED, Schema, VersionedSchema, decode_json, encode_json
from moorage.wire.errors import ErrorShape, disk_error, problem_of
from moorage.wire.forwarded import TrustedProxies
from moorage.wire.http import Authenticator, Headers, Policy, Query, Request, Response, Route
from moorage.wire.microversion import HEADER, Version, VersionRange

if TYPE_CHECKING:
    import jsonschema

log = logging.getLogger(__name__)

S = TypeVar("S")
WsgiApp = Callable[[WSGIEnvironment, Callable[..., object]], Iterable[bytes]]

#: Key of the WSGI environment. After the response it holds the path template of the route, for middleware to read.
ROUTE_KEY = "moorage.route"

#: Key of the WSGI environment. True after the response if the caller was authenticated.
AUTHENTICATED_KEY = "moorage.known"

#: Key of the WSGI environment. Holds the `_Served` that handles the request.
_SERVED_KEY = "moorage.served"

#: Retry-After of a 503, in seconds. A database that was restarted is back sooner.
RETRY_AFTER_S = 2

MAX_JSON_BYTES = 10 * 1024 * 1024

_REQUEST_ID = re.compile(r"req-[0-9a-fA-F-]{36}\Z")


@dataclass(frozen=True)
class ServiceApi(Generic[S]):
    """A service as the kernel sees it: its routes, its microversions and the shape of its errors."""

    name: str  #: ``placement``; also the first word of its logs
    routes: Sequence[Route[S]]
    error_shape: ErrorShape
    #: Answers requests to addresses without a route; None: an error of `error_shape`. It checks permissions itself.
    unknown_address: Callable[[Request[S]], Response] | None = None
    versions: VersionRange | None = None
    schema_error_message: Callable[["jsonschema.ValidationError"], str] = (
        str  #: Turns the fault of a body into upstream's message.
    )
    max_json_bytes: int = MAX_JSON_BYTES
    #: Placement's behaviour: public routes reject a bad microversion too, and a body must declare that it is JSON.
    strict: bool = False
    #: The headers of an answer that carry the request's id.
    request_id_headers: Sequence[str] = ("x-openstack-request-id",)

    @cached_property
    def falcon_app(self) -> "falcon.App[falcon.Request, falcon.Response]":
        """The Falcon application; it finds service and `AppContext` in the WSGI environment, under `_SERVED_KEY`.

        Therefore the routes are compiled only once per API. Compiling takes 40 ms, and tests and simulations start
        hundreds of services with the same API.
        """
        return _falcon_app(self)


@dataclass(frozen=True)
class AppContext:
    """Authentication, policy, metrics and audit trail, which all services of a plane share."""

    authenticator: Authenticator
    policy: Policy
    ids: Ids
    public_url: str | None = None  #: overrides the request's Host header
    proxies: TrustedProxies = field(
        default_factory=TrustedProxies
    )  #: forwarding headers from these override the Host header
    health: Callable[[], Mapping[str, str]] = dict  #: {component: problem}; empty if all is well
    requests: RequestMeter = field(default_factory=lambda: RequestMeters().of_service(""))
    trail: Trail | None = None  #: None: no audit trail is kept
    reveals_details: bool = False  #: show full error messages to every caller, since only operators can reach this API


@dataclass(frozen=True)
class _Served(Generic[S]):
    service: S
    app_context: AppContext


def build_app(api: ServiceApi[S], service: S, app_context: AppContext) -> WsgiApp:
    """The WSGI application that serves `api` with the use cases in `service`."""
    app, served = api.falcon_app, _Served(service, app_context)

    def serve(environ: WSGIEnvironment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ[_SERVED_KEY] = served
        return app(environ, start_response)

    return serve


def _falcon_app(api: ServiceApi[S]) -> "falcon.App[falcon.Request, falcon.Response]":
    app: falcon.App[falcon.Request, falcon.Response] = falcon.App(middleware=[_RequestMiddleware(api)])
    # A response without a body has no content type. Falcon accepts None for this, although its annotation is str.
    app.resp_options.default_media_type = cast(str, None)
    app.req_options.strip_url_path_trailing_slash = False
    by_path: dict[str, dict[str, list[Route[S]]]] = defaultdict(lambda: defaultdict(list))
    for route in api.routes:
        by_path[route.path][route.method].append(route)
    for path, methods in by_path.items():
        app.add_route(path, _resource(api, methods))
    app.add_route("/healthcheck", _Healthcheck())
    if api.unknown_address is not None:
        app.add_sink(_sink(api, api.unknown_address), "/")

    def on_error(req: falcon.Request, resp: falcon.Response, error: BaseException, params: dict[str, Any]) -> None:
        _send_error(api, req, resp, error)

    app.add_error_handler(Exception, on_error)
    app.add_error_handler(falcon.HTTPError, on_error)  # Falcon's own handler would win over Exception's
    return app


def mount_apps(services: Mapping[str, WsgiApp], home: str = "") -> WsgiApp:
    """One application that serves several services on one address, each below its prefix (``/placement``).

    A browser that opens the address itself is redirected to the prefix `home`, if something is served there.
    """

    def dispatch(environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        prefix = "/" + path[1:].partition("/")[0]
        service = services.get(prefix)
        if path == "/" and home in services and environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            # Relative, so that it also holds behind a proxy that serves this address below a path of its own.
            start_response("302 Found", [("location", f"{home[1:]}/"), ("content-length", "0")])
            return [b""]
        if service is None:
            names = ", ".join(sorted(services))
            body = encode_json({"message": f"no service at {path or '/'}; services are at {names}"})
            start_response("404 Not Found", [("content-type", "application/json"), ("content-length", str(len(body)))])
            return [body]
        environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + prefix
        environ["PATH_INFO"] = path[len(prefix) :]
        return service(environ, start_response)

    return dispatch


class _RequestMiddleware(Generic[S]):
    """Determines request id, caller and microversion before routing, and measures the request afterwards.

    An error found before routing is kept until the route is known, because public routes ignore some of them.
    """

    def __init__(self, api: ServiceApi[S]) -> None:
        self._api = api

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        context = req.context
        app_context = _app_context(req)
        context.began = app_context.requests.begin_request()
        context.headers = headers = Headers(req.env)
        context.request_id = app_context.ids.request_id()
        request_context.set((self._api.name, context.request_id))
        # The client's id never replaces ours: requests with equal ids could not be distinguished in the log, and a
        # client could make its requests look like another client's.
        given = headers.get("x-openstack-request-id")
        global_request.set(given if given and _REQUEST_ID.match(given) else "")
        caller_context.set(("", ""))  # the thread still has the values of its previous request
        for name in self._api.request_id_headers:
            resp.set_header(name, context.request_id)
        context.caller = ANONYMOUS
        context.refusal = None
        context.change = None
        context.version_refusal = None
        context.version = Version(0, 0)
        try:
            context.caller = app_context.authenticator.authenticate(headers, req.env)
            caller_context.set((context.caller.project_id or "", context.caller.user_id or ""))
            if context.caller is not ANONYMOUS:
                req.env[AUTHENTICATED_KEY] = True
        except e.MoorageError as error:
            context.refusal = error
            context.change = failed_login_change(self._api.name, error.error_code)
        try:
            if versions := self._api.versions:
                legacy = headers.get(versions.legacy_header) if versions.legacy_header else None
                context.version, response_headers = versions.negotiate_with_headers(headers.get(HEADER), legacy or None)
                for name, value in response_headers:
                    resp.set_header(name, value)
        except e.MoorageError as error:
            context.refusal = context.refusal or error
            context.version_refusal = error
        if self._api.strict and context.refusal is None:
            context.refusal = _body_header_fault(req)

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, _resource: object, _req_succeeded: bool
    ) -> None:
        req.env[ROUTE_KEY] = req.uri_template or NO_ROUTE
        if req.context.change is not None:
            _write_entry_after(req, req.context.change, resp.status_code)
        method = req.method if req.method in _METHODS else "OTHER"
        _app_context(req).requests.end_request(
            req.context.began, method, req.uri_template or NO_ROUTE, resp.status_code
        )


_METHODS = frozenset(falcon.constants.COMBINED_METHODS)


def _write_entry_before(req: falcon.Request, change: AuditedChange) -> None:
    """Write the pending entry, if the audit trail is required. Raises `Unavailable` if it cannot be written."""
    trail = _app_context(req).trail
    if trail is not None and trail.required and (trail.agents or not change.template.is_routine):
        trail.write_before_change(_audit_entry(req, trail, change, None))


def _write_entry_after(req: falcon.Request, change: AuditedChange, status: int) -> None:
    """Write the entry with the outcome."""
    trail = _app_context(req).trail
    if trail is not None and (status >= 400 or trail.agents or not change.template.is_routine):
        trail.write_entry(_audit_entry(req, trail, change, status))


def _audit_entry(req: falcon.Request, trail: Trail, change: AuditedChange, status: int | None) -> dict[str, Any]:
    context, address = req.context, _app_context(req).proxies.full_address(req.env)
    return change.build_entry(trail, context.caller, address, req.query_string, context.request_id, status)


def _app_context(req: falcon.Request) -> AppContext:
    served: _Served[Any] = req.env[_SERVED_KEY]
    return served.app_context


def _resource(api: ServiceApi[S], methods: Mapping[str, Sequence[Route[S]]]) -> object:
    """A Falcon resource for one path, with a responder for each method."""

    def responder(routes: Sequence[Route[S]]) -> Callable[..., None]:
        template = EntryTemplate.for_route(api.name, routes[0]) if routes[0].is_change else None

        def respond(_self: object, req: falcon.Request, resp: falcon.Response, **params: str) -> None:
            if template is not None:
                req.context.change = AuditedChange(template, params)
            if api.strict and req.context.version_refusal is not None:
                raise req.context.version_refusal
            route = _route_at(routes, req)
            request = _decode_request(api, req.env[_SERVED_KEY], req, route, params)
            if request.change is None:
                _send(resp, route.handler(request, **params))
                return
            _write_entry_before(req, request.change)
            request.change.response = response = route.handler(request, **params)
            _send(resp, response)

        return respond

    def refuse(_self: object, req: falcon.Request, resp: falcon.Response, **_params: str) -> None:
        if req.context.refusal is not None and (api.strict or not public):
            raise req.context.refusal
        raise e.MethodNotAllowed(
            f"The method {req.method} is not allowed for this resource.", allowed=", ".join(sorted(methods))
        )

    public = all(route.rule is None for routes in methods.values() for route in routes)
    members: dict[str, Any] = {f"on_{method.lower()}": refuse for method in falcon.constants.COMBINED_METHODS}
    members |= {f"on_{method.lower()}": responder(routes) for method, routes in methods.items()}
    return type("RouteResource", (), members)()


def _sink(api: ServiceApi[S], handler: Callable[[Request[S]], Response]) -> Callable[..., None]:
    """Falcon's function for addresses that no route matches."""
    route: Route[S] = Route("GET", "", handler, rule=None, reads="none")

    def respond(req: falcon.Request, resp: falcon.Response, **_params: str) -> None:
        _send(resp, handler(_decode_request(api, req.env[_SERVED_KEY], req, route, {})))

    return respond


def _route_at(routes: Sequence[Route[S]], req: falcon.Request) -> Route[S]:
    version = req.context.version
    for route in routes:
        since, until = route.since or version, route.until or version
        if since <= version <= until:
            if req.context.refusal is not None and route.rule is not None:
                raise req.context.refusal
            return route
    raise req.context.refusal or e.NotFound("The resource could not be found.")


def _decode_request(
    api: ServiceApi[S],
    served: _Served[S],
    req: falcon.Request,
    route: Route[S],
    params: Mapping[str, str],
) -> Request[S]:
    app_context = served.app_context
    caller: Caller = req.context.caller
    document = None
    raw = b""
    if route.reads == "json" and req.method in ("POST", "PUT", "PATCH"):
        raw = _read_body(api, req, wanted=route.schema is not None)
    if route.rule is not None and not app_context.policy.allows(route.rule, caller):
        raise e.Forbidden(app_context.policy.refusal_message(route.rule), rule=route.rule)
    if raw or (api.strict and route.schema is not None):
        document = decode_json(raw)
    change: AuditedChange | None = req.context.change
    if change is not None:
        change.set_body(document)
    request = Request(
        service=served.service,
        caller=caller,
        method=req.method,
        path=req.path,
        query=_parsed_query(req),
        version=req.context.version,
        request_id=req.context.request_id,
        base_url=_base_url(app_context, req),
        headers=req.context.headers,
        address=app_context.proxies.client_address(req.env),
        json=document,
        stream=_body_stream(req) if route.reads in ("stream", "raw") else io.BytesIO(),
        has_chunked_body=_ends_by_itself(req) and req.env.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked",
        allowed=lambda rule: app_context.policy.allows(rule, caller),
        change=change,
    )
    if route.before_schema is not None:
        route.before_schema(request, **params)
    schema = (
        route.schema.for_version(req.context.version) if isinstance(route.schema, VersionedSchema) else route.schema
    )
    if isinstance(schema, Schema):
        schema.validate(document, api.schema_error_message)
    return request


def _parsed_query(req: falcon.Request) -> Query:
    query = Query(req.query_string)
    pairs = query.pairs
    if "\0" in req.path or (pairs and any("\0" in name or "\0" in value for name, value in pairs)):
        raise e.Invalid(NUL_REFUSED)
    return query


def _read_body(api: ServiceApi[S], req: falcon.Request, *, wanted: bool) -> bytes:
    """The raw JSON body; empty if there is none and the route does not need one (`wanted`)."""
    length = req.content_length or 0
    if length > api.max_json_bytes:
        raise e.TooLarge(f"the body has {length} bytes; this service accepts at most {api.max_json_bytes}")
    raw = req.stream.read(length) if length else _body_stream(req).read(api.max_json_bytes + 1)
    if len(raw) > api.max_json_bytes:
        raise e.TooLarge(f"the body is longer than the {api.max_json_bytes} bytes that this service accepts")
    if not raw and not wanted:
        return b""
    media_type = (req.content_type or "").partition(";")[0].strip().lower()
    if api.strict and wanted and media_type != "application/json":
        media_type = media_type or "None"
        message = f"The media type {media_type} is not supported, use application/json"
        raise e.UnsupportedMedia(message, media_type=media_type)
    is_json = media_type == "application/json" or media_type.endswith("+json")
    # A page of any origin can make a browser send a body of another type, or of none, without a CORS preflight.
    if not is_json and (raw or media_type):
        raise e.UnsupportedMedia(f"The media type {media_type or 'None'} is not supported, use application/json")
    return raw or (b"" if api.strict else b"null")


def _body_header_fault(req: falcon.Request) -> e.MoorageError | None:
    """Content-Length and Content-Type as Placement checks them: before it looks for the route."""
    length = req.env.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal():
        return e.Invalid("content-length header must be an integer")
    if int(length) and not req.env.get("CONTENT_TYPE"):
        return e.Invalid("content-type header required when content-length > 0")
    return None


def _body_stream(req: falcon.Request) -> IO[bytes]:
    """The body as a stream that ends with the body. A chunked body has no length; our server ends the stream itself
    (``wsgi.input_terminated``), others may not.
    """
    return cast(IO[bytes], req.stream if _ends_by_itself(req) else req.bounded_stream)


def _ends_by_itself(req: falcon.Request) -> bool:
    return req.content_length is None and bool(req.env.get("wsgi.input_terminated"))


def _base_url(app_context: AppContext, req: falcon.Request) -> str:
    prefix = req.root_path.rstrip("/")
    if app_context.public_url:
        return app_context.public_url.rstrip("/") + prefix
    scheme, host = forwarded.scheme_and_host(req.env) if app_context.proxies.trusts(req.env) else (None, None)
    host = host or req.netloc
    if not _HOST.match(host):
        raise e.Invalid(f"the Host header {host[:255]!r} is not a host name or address with an optional port")
    return f"{scheme or req.scheme}://{host}{prefix}"


#: The Host header becomes part of links; RFC 9110 demands that requests with an invalid one are rejected.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~-]{0,255})(:[0-9]{0,5})?\Z")


def _send(resp: falcon.Response, response: Response) -> None:
    resp.status = response.status
    for name, value in response.headers.items():
        resp.set_header(name, value)
    for cookie in response.cookies:
        resp.append_header("set-cookie", cookie)
    if response.stream is not None:
        resp.content_type = response.content_type
        resp.stream = response.stream
    elif isinstance(response.body, bytes):
        resp.content_type = response.content_type
        resp.data = response.body
    elif response.body is not None:
        resp.content_type = response.content_type
        resp.data = encode_json(response.body)


def _send_error(api: ServiceApi[S], req: falcon.Request, resp: falcon.Response, error: BaseException) -> None:
    if isinstance(error, falcon.HTTPRouteNotFound):
        error = req.context.refusal or e.NotFound("The resource could not be found.")
    elif isinstance(error, falcon.HTTPMethodNotAllowed):
        allowed = cast(Mapping[str, str], error.headers)["Allow"]
        error = e.MethodNotAllowed(f"The method {req.method} is not allowed for this resource.", allowed=allowed)
    elif isinstance(error, falcon.HTTPError):
        error = e.Invalid(error.description or error.title or "the request cannot be read")
    elif refused := disk_error(error):
        log.error("the disk fails", extra={"reason": str(error)})
        error = refused
    context, app_context = req.context, _app_context(req)
    is_operator = app_context.reveals_details or context.caller.is_admin or context.caller.is_service
    accept = req.get_header("Accept") or "*/*"
    problem = problem_of(error, context.request_id, accept, context.version, to_operators=is_operator)
    full_message = error.message if isinstance(error, e.MoorageError) else problem.message
    if problem.status >= 500:
        _log_failure(error, full_message, {"method": req.method, "path": req.path})
    elif problem.message != full_message:
        log.info("refused by another service", extra={"method": req.method, "path": req.path, "reason": full_message})
    if req.context.change is not None:
        req.context.change.code = problem.code
    response = api.error_shape(problem)
    if isinstance(error, e.MethodNotAllowed):
        response.headers.setdefault("allow", str(error.fields["allowed"]))
    if isinstance(error, e.TooManyRequests):
        response.headers["retry-after"] = str(error.fields["retry_after_s"])
    if problem.status == 503:
        response.headers.setdefault("retry-after", str(RETRY_AFTER_S))
    _send(resp, response)


def _log_failure(error: BaseException, message: str, where: dict[str, str]) -> None:
    """Log a stack trace only if the failure may be a bug of ours."""
    if isinstance(error, e.NotBuilt):
        log.info("not built", extra=where | {"reason": message})
    elif isinstance(error, e.Unavailable):
        log.warning("request failed", extra=where | {"reason": message})
    else:
        log.error("request failed", exc_info=error, extra=where)


class _Healthcheck:
    """Answers 200 ``{"status": "ok"}``, or 503 with the problems. Public."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        troubles = dict(_app_context(req).health())
        resp.status = 503 if troubles else 200
        resp.content_type = "application/json"
        resp.data = encode_json({"status": "failing" if troubles else "ok", "troubles": troubles})
