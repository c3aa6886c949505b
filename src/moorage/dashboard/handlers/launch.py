"""The page that launches servers on a lease."""

from collections.abc import Mapping
from typing import Any
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
    if lease["project_id"] != page_request.user.project.id:
        return _page(page_request, lease, view.DEFAULTS)
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
    targets, title = view.launch_targets(lease), f"Launch on {lease['name']}"
    values: dict[str, object] = {"lease_id": lease["id"], "lease_name": lease["name"]}
    if lease["project_id"] != page_request.user.project.id:
        values["foreign_project"] = page_request.names.project(lease["project_id"])
        return Page("launch.html", title, values, 200 if page_request.http.method == "GET" else 403)
    said = "" if error is None else error_text(error)
    needs_flavor = any(each.needs_flavor for each in targets)
    values |= {
        "foreign_project": "",
        "status_of_lease": lease["status"],
        "targets": targets,
        "networks": view.NETWORKS,
        "images": view.image_choices(_rows(page_request, "image", "/v2/images", "images", {"status": "active"})),
        "flavors": view.flavor_choices(_rows(page_request, "compute", "/v2.1/flavors/detail", "flavors"))
        if needs_flavor
        else [],
        "keys": _key_pairs(page_request),
        "typed": typed,
        "error": said,
        "error_field": field_of(error, view.DEFAULTS),
        "is_over_quota": said.startswith("Quota exceeded"),
    }
    return Page("launch.html", title, values, 200 if error is None else error_status(error))


def _rows(
    page_request: PageRequest, service: str, path: str, key: str, more: Mapping[str, str] = {}
) -> list[Mapping[str, Any]]:
    """Empty if the service is missing or does not answer."""
    if not page_request.has(service):
        return []
    try:
        found = page_request.client(service).get(with_query(path, {"limit": _MAX_CHOICES, **more}))[key]
    except MoorageError:
        return []
    return list(found)


def _key_pairs(page_request: PageRequest) -> list[str]:
    try:
        rows = page_request.client("compute").get("/v2.1/os-keypairs")["keypairs"]
    except MoorageError:
        return []
    return [row["keypair"]["name"] for row in rows]
