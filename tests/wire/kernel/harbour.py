"""A small service for the tests of the kernel: every kind of route, and handlers that return their input.

It is also served over a socket: ``python -m tests.served tests.wire.kernel.harbour:application PORT``.
"""

from collections.abc import Mapping
from dataclasses import replace

from moorage.core import errors as e
from moorage.core.caller import Caller
from moorage.core.ids import RandomIds
from moorage.identity.policy import RuleTable, admin, anyone
from moorage.wire.app import AppContext, ServiceApi, WsgiApp, build_app, mount_apps
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.errors import Problem
from moorage.wire.forwarded import TrustedProxies
from moorage.wire.http import Request, Response, Route
from moorage.wire.microversion import Version, VersionRange

MAX_JSON_BYTES = 4096

BOAT = Schema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "length_m": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    }
)
BOAT_OLD = Schema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})


class Tokens:
    """``x-auth-token: <user>/<role>,<role>``."""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        user, _, roles = headers.get("x-auth-token", "").partition("/")
        if user == "slow":
            raise e.Unavailable("identity does not answer")
        if not user:
            raise e.Unauthorized("The request you have made requires authentication.")
        return Caller(user, "project", frozenset(roles.split(",")))


def root(request: Request) -> Response:
    return Response(body={"who": request.caller.user_id, "base_url": request.base_url})


def show(request: Request, name: str) -> Response:
    return Response(
        body={
            "name": name,
            "caller": request.caller.user_id,
            "version": str(request.version),
            "request_id": request.request_id,
            "path": request.path,
            "query": request.query.pairs,
            "may_sink": request.allowed("boat:sink"),
        },
        headers={"x-boat": name.encode("ascii", "replace").decode()},
    )


def create(request: Request) -> Response:
    return Response(201, {"given": request.json}, {"location": f"{request.base_url}/boats/{request.json['name']}"})


def echo(request: Request) -> Response:
    return Response(body={"given": request.json})


def sink(request: Request, name: str) -> Response:
    return Response(204)


def fail(request: Request, how: str) -> Response:
    raise {
        "conflict": e.Conflict("the berth is taken", code="harbour.taken"),
        "missing": e.NotFound("no such boat"),
        "away": e.Unavailable("the harbour master is away"),
        "remote": e.RemoteError("another harbour refused", status=418),
        "not-built": e.NotBuilt("no crane here"),
        "bug": ZeroDivisionError("a secret"),
    }[how]


def log_book(request: Request) -> Response:
    return Response(stream=(b"line %d\n" % number for number in range(1000)), content_type="text/plain")


def cargo(request: Request) -> Response:
    size = 0
    while block := request.stream.read(65536):
        size += len(block)
    return Response(body={"size": size, "type": request.headers.get("content-type")})


def raw(request: Request) -> Response:
    return Response(body=b"\x00\xff", content_type="application/octet-stream")


def newer(request: Request, name: str) -> Response:
    return Response(body={"name": name, "era": "new"})


def older(request: Request, name: str) -> Response:
    return Response(body={"name": name, "era": "old"})


def shape(problem: Problem) -> Response:
    return Response(
        problem.status,
        {"message": problem.message, "code": problem.code, "title": problem.title, "request_id": problem.request_id},
    )


V1_0, V1_1, V1_2, V1_3 = (Version(1, minor) for minor in range(4))

API: ServiceApi[None] = ServiceApi(
    name="harbour",
    error_shape=shape,
    versions=VersionRange("harbour", V1_0, V1_3, legacy_header="X-Harbour-API-Version"),
    max_json_bytes=MAX_JSON_BYTES,
    routes=(
        Route("GET", "/", root, None),
        Route("GET", "/boats/{name}", show, "boat:show"),
        Route("DELETE", "/boats/{name}", sink, "boat:sink"),
        Route("POST", "/boats", create, "boat:create", schema=VersionedSchema([(V1_0, BOAT_OLD), (V1_2, BOAT)])),
        Route("POST", "/echo", echo, "boat:show"),
        Route("PUT", "/quiet", echo, "boat:show", reads="none"),
        Route("GET", "/fail/{how}", fail, "boat:show"),
        Route("GET", "/log", log_book, "boat:show"),
        Route("GET", "/raw", raw, "boat:show"),
        Route("PUT", "/cargo", cargo, "boat:show", reads="stream"),
        Route("GET", "/eras/{name}", newer, "boat:show", since=V1_2),
        Route("GET", "/eras/{name}", older, "boat:show", since=V1_1, until=V1_1),
        Route("GET", "/unnamed-rule", show, "boat:forgotten"),
    ),
)

RULES = RuleTable({"boat:show": anyone, "boat:create": anyone, "boat:sink": admin})

troubles: dict[str, str] = {}


def application_of(*routes: Route[None]) -> WsgiApp:
    """The service with only these routes."""
    return mount_apps(
        {"/harbour": build_app(replace(API, routes=routes), None, AppContext(Tokens(), RULES, RandomIds()))}
    )


def application() -> WsgiApp:
    """``/behind`` trusts the proxies of this machine."""
    around = AppContext(Tokens(), RULES, RandomIds(), health=lambda: troubles)
    behind = replace(around, proxies=TrustedProxies(["127.0.0.0/8"]))
    return mount_apps(
        {
            "/harbour": build_app(API, None, around),
            "/other": build_app(API, None, around),
            "/behind": build_app(API, None, behind),
        }
    )
