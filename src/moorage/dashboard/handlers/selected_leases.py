"""Ending, cancelling and deleting several leases of the list: a page to confirm it, and what came of each lease.

The form carries the leases; nothing is kept between the pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from moorage.core.errors import NotFound, RemoteError, Unavailable
from moorage.dashboard.handlers.leases import list_address
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import selected_leases as view
from moorage.dashboard.views.lease_list import list_parameters
from moorage.dashboard.views.lease_view import LeaseDetails, lease_details

_NOT_READ = "Does not exist any more, or belongs to another project."
_NO_ANSWER = "The reservation service does not answer any more. Go back to the list to see the lease's status."


@dataclass(frozen=True, slots=True)
class SelectedLease:
    """`lease` is None if it cannot be read. `act`: a key of `ACTS`, empty if nothing happens to it. `words`: what
    happens, or why nothing does.
    """

    id: str
    lease: LeaseDetails | None
    act: str
    words: str

    @property
    def done(self) -> str:
        return view.ACTS[self.act].done


def confirm_selected(page_request: PageRequest) -> Page:
    """What would happen to each of the leases ``lease=ID&lease=ID`` by ``do``, a key of `CHOICES`."""
    query = page_request.http.query
    kept, choice, ids = list_parameters(query.first), query.first("do") or "", _without_repeats(query.every("lease"))
    if choice not in view.CHOICES:
        return _refusal(kept, "Leases", "Choose what to do with the leases: go back to the list and use its buttons.")
    title, nothing = view.CHOICES[choice]
    if reason := view.why_not_selected(len(ids)):
        return _refusal(kept, title, reason)
    found = sorted((_selected(page_request, lease_id, choice) for lease_id in ids), key=lambda one: not one.act)
    acts = [one.act for one in found if one.act]
    readable = [one.lease for one in found if one.lease is not None]
    is_foreign = any(lease.project_id != page_request.user.project.id for lease in readable)
    button = view.button_text(acts) if acts else ""
    values = {
        "leases": found, "button": button, "is_foreign": is_foreign,
        "names": page_request.names if is_foreign else None, "kept": kept, "back": list_address(kept), "refusal": "",
    }  # fmt: skip
    return Page("leases_selected.html", f"{button}?" if acts else nothing, values, 200 if readable else 404)


def act_on_selected(page_request: PageRequest) -> Page:
    """Carries out what was confirmed, one lease after another. A refusal of one does not stop the others."""
    form = page_request.form
    kept = list_parameters(form.text)
    confirmed = {lease_id: act for act in view.ACTS for lease_id in _without_repeats(form.every(act))}
    if reason := view.why_not_selected(len(confirmed)):
        return _refusal(kept, "Leases", reason)
    done: list[SelectedLease] = []
    refused: list[SelectedLease] = []
    for lease_id, act in confirmed.items():
        try:
            result = _carried_out(page_request, lease_id, act)
        except (Unavailable, RemoteError) as error:
            # Each further lease would be tried several times in vain, while the browser waits.
            if not done:
                raise
            reason = error_text(error) if isinstance(error, RemoteError) and error.status < 500 else _NO_ANSWER
            seen = {one.id for one in (*done, *refused)}
            refused += [SelectedLease(one, None, "", reason) for one in confirmed if one not in seen]
            break
        (done if result.act else refused).append(result)
    values = {"done": done, "refused": refused, "back": list_address(kept)}
    title = view.done_text([one.act for one in done], len(refused))
    return Page("leases_done.html", title, values, 200 if done else 409)


def _selected(page_request: PageRequest, lease_id: str, choice: str) -> SelectedLease:
    try:
        lease = lease_details(page_request.client("reservation").get(_path(lease_id))["lease"])
    except (NotFound, RemoteError) as error:
        if isinstance(error, RemoteError) and error.status not in (400, 403, 404):
            raise
        return SelectedLease(lease_id, None, "", _NOT_READ)
    return SelectedLease(lease_id, lease, *view.act_on(lease, choice))


def _carried_out(page_request: PageRequest, lease_id: str, act: str) -> SelectedLease:
    """The lease as it was before; with the reason and without an act if it was refused.

    Raises `Unavailable` or `RemoteError` if the service cannot tell the lease's status.
    """
    found = _selected(page_request, lease_id, view.choice_of(act))
    if found.lease is None or not found.act:
        return found
    if found.act != act:
        return SelectedLease(lease_id, found.lease, "", f"Its status is {found.lease.status} now. Select it again.")
    client = page_request.client("reservation")
    try:
        if act == "end":
            client.request("PUT", _path(lease_id), json={"end_date": "now"})
        else:
            client.request("DELETE", _path(lease_id))
    except (NotFound, RemoteError) as error:
        return SelectedLease(lease_id, found.lease, "", error_text(error))
    return found


def _refusal(kept: Mapping[str, str], title: str, reason: str) -> Page:
    values = {"refusal": reason, "back": list_address(kept)}
    return Page("leases_selected.html", title, values, 400)


def _without_repeats(ids: Sequence[str]) -> list[str]:
    return [each for each in dict.fromkeys(ids) if each]


def _path(lease_id: str) -> str:
    return f"/v1/leases/{quote(lease_id, safe='')}"
