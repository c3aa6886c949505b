"""The addresses of the dashboard, below ``/ui``. A page is a row here, a handler, a view and a template."""

from collections.abc import Callable, Sequence
from typing import Literal

from moorage.dashboard.forms import MAX_FORM_BYTES
from moorage.dashboard.handlers import (
    accelerators,
    audit,
    calendar,
    consoles,
    explain,
    hosts,
    launch,
    leases,
    new_lease,
    people,
    provider_config,
    provider_sign_in,
    search,
    selected_leases,
    selected_servers,
    servers,
    session,
)
from moorage.dashboard.handlers import map as map_pages
from moorage.dashboard.page_request import Handler, page, plain_error, unknown_address
from moorage.dashboard.service import Dashboard
from moorage.identity.policy import RuleTable
from moorage.wire.app import ServiceApi
from moorage.wire.http import Request, Response, Route

#: No rules here: the services check permissions.
RULES = RuleTable({}, refusal_text="{rule} is not allowed")


def static_file(request: Request[Dashboard], name: str) -> Response:
    return request.service.files.response(name, request.headers.get("if-none-match"))


def _get(path: str, handler: Handler, *, is_public: bool = False) -> Route[Dashboard]:
    return _route("GET", path, page(handler, is_public=is_public), "none")


def _post(
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
    _get("/", session.show_first_page),
    _get("/sign-in", session.show_sign_in, is_public=True),
    _post("/sign-in", session.sign_in, is_public=True),
    _get("/sign-in/provider", provider_sign_in.go_to_provider, is_public=True),
    _get("/sign-in/provider/callback", provider_sign_in.come_back, is_public=True),
    _post("/sign-out", session.sign_out, is_public=True),
    _post("/project", session.switch_project),
    _post("/theme", session.set_theme, is_public=True, effect="none"),
    _get("/password", session.show_password),
    _post("/password", session.change_password),
    _get("/invitation", session.show_invitation, is_public=True),
    _post("/invitation", session.accept_invitation, is_public=True),
    _get("/people", people.list_people),
    _post("/people", people.add_person),
    _get("/people/projects", people.list_projects),
    _post("/people/projects", people.add_project),
    _post("/people/projects/{project_id}/state", people.set_project_state),
    _get("/people/users/{user_id}", people.show_person),
    _post("/people/users/{user_id}/state", people.set_state),
    _post("/people/users/{user_id}/password", people.set_password),
    _post("/people/users/{user_id}/roles", people.change_role),
    _post("/people/users/{user_id}/lock", people.clear_lock),
    _post("/people/users/{user_id}/invitation", people.change_invitation),
    _get("/hosts", hosts.list_hosts),
    _post("/hosts", hosts.enrol_host),
    _get("/hosts/{host}", hosts.show_host),
    _post("/hosts/{host}/state", hosts.set_host_state),
    _post("/hosts/{host}/retire", hosts.retire_host),
    _get("/calendar", calendar.show_calendar),
    _get("/leases", leases.list_leases),
    _get("/leases/new", new_lease.new_lease),
    _post("/leases/new", new_lease.submit_lease),
    _get("/leases/holds", leases.list_holds),
    _get("/leases/holds/{hold_id}", leases.show_hold),
    _post("/leases/holds/{hold_id}", leases.lease_hold),
    _post("/leases/holds/{hold_id}/release", leases.release_hold),
    _get("/leases/maintenance", new_lease.new_maintenance),
    _post("/leases/maintenance", new_lease.submit_maintenance),
    _get("/leases/selected", selected_leases.confirm_selected),
    _post("/leases/selected", selected_leases.act_on_selected),
    _get("/leases/{lease_id}", leases.show_lease),
    _get("/leases/{lease_id}/change", leases.edit_lease),
    _post("/leases/{lease_id}/change", leases.change_lease),
    _get("/leases/{lease_id}/launch", launch.show_launch),
    _post("/leases/{lease_id}/launch", launch.launch),
    _get("/map", map_pages.show_map),
    _get("/map/{uuid}", map_pages.show_provider_tree),
    _get("/servers", servers.list_servers),
    _get("/servers/selected", selected_servers.confirm_selected),
    _post("/servers/selected", selected_servers.act_on_selected),
    _get("/servers/{server_id}", servers.show_server),
    _get("/servers/{server_id}/console", consoles.show_console),
    _post("/servers/{server_id}/console", consoles.open_console),
    _get("/accelerators", accelerators.list_accelerators),
    _get("/quarantine", accelerators.list_quarantine),
    _get("/audit", audit.show_audit),
    _post("/audit", audit.run_audit, effect="none"),
    _get("/accelerators/release", accelerators.show_release),
    _post("/accelerators/release", accelerators.release_handle),
    _get("/devices/{uuid}", accelerators.show_device),
    _get("/explain", explain.show_explanation),
    _get("/search", search.show_search),
    _get("/provider-config", provider_config.show_provider_config),
    _post("/provider-config", provider_config.submit_provider_config, max_bytes=MAX_FORM_BYTES),
)


def dashboard_api(service: Dashboard, root: str) -> ServiceApi[Dashboard]:
    """`root`: where browsers find the dashboard, a path."""
    return ServiceApi("dashboard", ROUTES, error_shape=plain_error(service, root), unknown_address=unknown_address)
