"""Ending, cancelling and deleting leases, one or several: `selection` with the requests to the reservation service."""

from urllib.parse import quote

from moorage.dashboard.handlers import selection
from moorage.dashboard.handlers.leases import list_address
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page
from moorage.dashboard.views.lease_list import list_parameters
from moorage.dashboard.views.lease_view import LeaseDetails, lease_details
from moorage.dashboard.views.selected_leases import LEASES


def confirm_selected(page_request: PageRequest) -> Page:
    return selection.confirm(page_request, _LEASES)


def act_on_selected(page_request: PageRequest) -> Page:
    return selection.act(page_request, _LEASES)


def _read(page_request: PageRequest, lease_id: str) -> LeaseDetails:
    return lease_details(page_request.client("reservation").get(_path(lease_id))["lease"])


def _carry_out(page_request: PageRequest, lease_id: str, act: str) -> None:
    client = page_request.client("reservation")
    if act == "end":
        client.request("PUT", _path(lease_id), json={"end_date": "now"})
    else:
        client.request("DELETE", _path(lease_id))


def _path(lease_id: str) -> str:
    return f"/v1/leases/{quote(lease_id, safe='')}"


_LEASES: selection.Selectable[LeaseDetails] = selection.Selectable(
    kind=LEASES,
    parameters=list_parameters,
    address=list_address,
    page=lambda lease_id: f"/leases/{quote(lease_id, safe='')}",
    project_id=lambda lease: lease.project_id,
    name=lambda lease: lease.name,
    read=_read,
    carry_out=_carry_out,
)
