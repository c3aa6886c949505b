"""The page that launches servers on a lease."""

from collections.abc import Mapping
from urllib.parse import quote

from moorage.core.errors import Invalid, MoorageError, RemoteError
from moorage.dashboard.page_request import PageRequest, redirect
from moorage.dashboard.pages import Page, error_status, error_text, field_of
from moorage.dashboard.views import launch_view as view
from moorage.dashboard.views.reservation_documents import LeaseDocument
from moorage.wire.client import with_query
from moorage.wire.http import Response

#: Maximum length of the lists of images, flavors and key pairs.
_MAX_CHOICES = 500


def show_launch(page_request: PageRequest, lease_id: str) -> Page:
    lease = _lease(page_request, lease_id)
    typed = {**view.DEFAULTS, "name": "-".join(lease["name"].split())[:60]}
    return _page(page_request, lease, typed)


def launch(page_request: PageRequest, lease_id: str) -> Page | Response:
    """Creates the servers with the viewer's token, in the project of the session."""
    lease, form = _lease(page_request, lease_id), page_request.form
    typed = {name: form.text(name, usual) for name, usual in view.DEFAULTS.items()}
    try:
        body = view.launch_body(typed, view.launch_targets(lease))
        made = page_request.client("compute").request("POST", "/v2.1/servers", json=body)["server"]
    except (Invalid, RemoteError) as error:
        return _page(page_request, lease, typed, error=error)
    return redirect(page_request, "/servers" if typed["count"] != "1" else f"/servers/{made['id']}")


def _lease(page_request: PageRequest, lease_id: str) -> LeaseDocument:
    found: LeaseDocument = page_request.client("reservation").get(f"/v1/leases/{quote(lease_id, safe='')}")["lease"]
    return found


def _page(
    page_request: PageRequest, lease: LeaseDocument, typed: Mapping[str, str], *, error: MoorageError | None = None
) -> Page:
    targets = view.launch_targets(lease)
    values = {
        "lease_id": lease["id"],
        "lease_name": lease["name"],
        "status_of_lease": lease["status"],
        "is_own_project": lease["project_id"] == page_request.user.project.id,
        "project": page_request.names.project(lease["project_id"]),
        "targets": targets,
        "networks": view.NETWORKS,
        "images": _choices(page_request, "image", "/v2/images", "images", {"status": "active"}),
        "flavors": _choices(page_request, "compute", "/v2.1/flavors", "flavors")
        if any(each.needs_flavor for each in targets)
        else [],
        "keys": _key_pairs(page_request),
        "typed": typed,
        "error": "" if error is None else error_text(error),
        "error_field": field_of(error, view.DEFAULTS),
    }
    return Page("launch.html", f"Launch on {lease['name']}", values, 200 if error is None else error_status(error))


def _choices(
    page_request: PageRequest, service: str, path: str, key: str, more: Mapping[str, str] = {}
) -> list[tuple[str, str]]:
    """[(id, name)], sorted by name; empty if the service is missing or does not answer."""
    if not page_request.has(service):
        return []
    try:
        rows = page_request.client(service).get(with_query(path, {"limit": _MAX_CHOICES, **more}))[key]
    except MoorageError:
        return []
    return sorted(((str(row["id"]), str(row["name"] or row["id"])) for row in rows), key=lambda row: row[1])


def _key_pairs(page_request: PageRequest) -> list[str]:
    try:
        rows = page_request.client("compute").get("/v2.1/os-keypairs")["keypairs"]
    except MoorageError:
        return []
    return [row["keypair"]["name"] for row in rows]
