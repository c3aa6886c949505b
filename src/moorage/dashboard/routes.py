"""The addresses of the dashboard, below ``/ui``. A page is a row here, a handler, a view and a template."""

from collections.abc import Callable, Sequence
from typing import Literal

from moorage.dashboard.forms import MOST_BYTES
from moorage.dashboard.handlers import (
    calendar,
    explain,
    holds,
    leases,
    maintenance,
    provider_config,
    reserving,
    servers,
    session,
)
from moorage.dashboard.handlers import map as map_pages
from moorage.dashboard.page_request import Handler, page, plain_error
from moorage.dashboard.service import Dashboard
from moorage.identity.policy import RuleTable
from moorage.wire.app import ServiceApi
from moorage.wire.http import Request, Response, Route

#: No rule of our own: what somebody may do, the services say.
RULES = RuleTable({}, refusal_text="{rule} is not allowed")


def static_file(request: Request[Dashboard], name: str) -> Response:
    return request.service.files.response(name, request.headers.get("if-none-match"))


def _shows(path: str, handler: Handler, *, is_public: bool = False) -> Route[Dashboard]:
    return _route("GET", path, page(handler, is_public=is_public), "none")


def _does(
    path: str,
    handler: Handler,
    *,
    is_public: bool = False,
    max_bytes: int | None = None,
    effect: Literal["change", "none"] = "change",
) -> Route[Dashboard]:
    answer = page(handler, is_public=is_public)
    return Route("POST", path, answer, rule=None, reads="raw", max_bytes=max_bytes, effect=effect)


def _route(method: str, path: str, handler: Callable[..., Response], reads: str) -> Route[Dashboard]:
    return Route(method, path, handler, rule=None, reads=reads)


ROUTES: Sequence[Route[Dashboard]] = (
    _route("GET", "/static/{name}", static_file, "none"),
    _shows("/", session.home),
    _shows("/sign-in", session.ask, is_public=True),
    _does("/sign-in", session.sign_in, is_public=True),
    _does("/sign-out", session.sign_out, is_public=True),
    _does("/project", session.switch_project),
    _does("/theme", session.theme, is_public=True, effect="none"),
    _shows("/calendar", calendar.show),
    _shows("/leases", leases.index),
    _shows("/leases/new", reserving.ask),
    _does("/leases/new", reserving.answer),
    _shows("/leases/holds", holds.index),
    _shows("/leases/holds/{hold_id}", holds.show),
    _does("/leases/holds/{hold_id}", holds.lease),
    _does("/leases/holds/{hold_id}/release", holds.release),
    _shows("/leases/maintenance", maintenance.ask),
    _does("/leases/maintenance", maintenance.answer),
    _shows("/leases/{lease_id}", leases.show),
    _shows("/leases/{lease_id}/change", leases.ask_change),
    _does("/leases/{lease_id}/change", leases.change),
    _does("/leases/{lease_id}/end", leases.end),
    _does("/leases/{lease_id}/delete", leases.delete),
    _shows("/map", map_pages.show),
    _shows("/map/{uuid}", map_pages.tree),
    _shows("/servers", servers.index),
    _shows("/servers/{server_id}", servers.show),
    _shows("/accelerators", servers.accelerators),
    _shows("/devices/{uuid}", servers.device),
    _shows("/explain", explain.show),
    _shows("/provider-config", provider_config.show),
    _does("/provider-config", provider_config.order, max_bytes=MOST_BYTES),
)


def api(service: Dashboard, root: str) -> ServiceApi[Dashboard]:
    """`root`: where browsers find the dashboard, a path."""
    return ServiceApi("dashboard", ROUTES, error_shape=plain_error(service, root))
