"""Acting on several leases or servers of a list: a page to confirm it, and what came of each.

The forms carry the ids; nothing is kept between the pages. What differs between leases and servers is in `Selectable`,
and its two values in `selected_leases` and `selected_servers`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from moorage.core.errors import NotFound, RemoteError, Unauthorized, Unavailable
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import selection as view

T = TypeVar("T")
_ID = re.compile(r"[0-9A-Fa-f-]{36}")

_NOT_READ = "Does not exist any more, or belongs to another project."
_NO_ANSWER = "The {service} service does not answer any more. Go back to the list to see the {one}'s status."
#: The parameter of a link from the page of one object, to which "Back" then leads. Any value.
_FROM_PAGE = "from_page"


@dataclass(frozen=True, slots=True)
class Selectable(Generic[T]):
    """`parameters`: reads those of the list's address. `address`: of the list with these parameters. `page`: the path
    of an object's page. `read`, `carry_out` (with the id and the act): requests to the service, as the user; they raise
    `NotFound`, `RemoteError` or `Unavailable`.
    """

    kind: view.SelectableKind[T]
    parameters: Callable[[Callable[[str], str | None]], dict[str, str]]
    address: Callable[[Mapping[str, str]], str]
    page: Callable[[str], str]
    project_id: Callable[[T], str]
    name: Callable[[T], str]
    read: Callable[[PageRequest, str], T]
    carry_out: Callable[[PageRequest, str, str], None]


@dataclass(frozen=True, slots=True)
class Selected(Generic[T]):
    """`found` is None if the object cannot be read. `act`: a key of the kind's acts, empty if nothing happens to it.
    `words`: what happens, or why nothing does.
    """

    id: str
    found: T | None
    act: str
    words: str


def confirm(page_request: PageRequest, selectable: Selectable[T]) -> Page:
    """What would happen to each of the objects ``lease=ID&lease=ID`` by ``do``, a key of the kind's choices."""
    query, kind = page_request.http.query, selectable.kind
    kept, choice = selectable.parameters(query.first), query.first("do") or ""
    ids = _without_repeats(query.every(kind.one))
    if choice not in kind.choices:
        words = f"Choose what to do with the {kind.many}: go back to the list and use its buttons."
        return _refusal(selectable, kept, kind.many.capitalize(), words)
    title, nothing = kind.choices[choice]
    if reason := view.why_not_selected(kind, len(ids)):
        return _refusal(selectable, kept, title, reason)
    selected = sorted((_selected(page_request, selectable, each, choice) for each in ids), key=lambda one: not one.act)
    acts = [one.act for one in selected if one.act]
    readable = [one.found for one in selected if one.found is not None]
    is_foreign = any(selectable.project_id(each) != page_request.user.project.id for each in readable)
    button = view.button_text(kind, acts) if acts else ""
    is_one_page = len(readable) == len(ids) == 1 and query.first(_FROM_PAGE) is not None
    values = {
        **_list_values(selectable, kept), "selected": selected, "button": button, "is_foreign": is_foreign,
        "names": page_request.names if is_foreign else None, "kept": kept, "refusal": "",
        **({"back": selectable.page(ids[0])} if is_one_page else {}),
    }  # fmt: skip
    return Page(kind.template, f"{button}?" if acts else nothing, values, 200 if readable else 404)


def act(page_request: PageRequest, selectable: Selectable[T]) -> Page:
    """Carries out what was confirmed, one object after another. A refusal of one does not stop the others."""
    form, kind = page_request.form, selectable.kind
    kept = selectable.parameters(form.text)
    confirmed = {each: act for act in kind.acts for each in _without_repeats(form.every(act))}
    if reason := view.why_not_selected(kind, len(confirmed)):
        return _refusal(selectable, kept, kind.many.capitalize(), reason)
    done: list[Selected[T]] = []
    refused: list[Selected[T]] = []
    for each, act in confirmed.items():
        try:
            result = _carried_out(page_request, selectable, each, act)
        except (Unauthorized, Unavailable, RemoteError) as error:
            # Each further object would be tried several times in vain, while the browser waits.
            if not done:
                raise
            is_answer = isinstance(error, Unauthorized) or (isinstance(error, RemoteError) and error.status < 500)
            reason = error_text(error) if is_answer else _NO_ANSWER.format(service=kind.service, one=kind.one)
            seen = {one.id for one in (*done, *refused)}
            refused += [Selected(one, None, "", reason) for one in confirmed if one not in seen]
            break
        (done if result.act else refused).append(result)
    values = {**_list_values(selectable, kept), "done": done, "refused": refused, "name": selectable.name}
    title = view.done_text(kind, [one.act for one in done], len(refused))
    return Page("selection_done.html", title, values, 200 if done else 409)


def _selected(page_request: PageRequest, selectable: Selectable[T], some_id: str, choice: str) -> Selected[T]:
    if not _ID.fullmatch(some_id):  # it could name another route of the service
        return Selected(some_id, None, "", _NOT_READ)
    try:
        found = selectable.read(page_request, some_id)
    except (NotFound, RemoteError) as error:
        if isinstance(error, RemoteError) and error.status not in (400, 403, 404):
            raise
        return Selected(some_id, None, "", _NOT_READ)
    return Selected(some_id, found, *selectable.kind.act_on(found, choice))


def _carried_out(page_request: PageRequest, selectable: Selectable[T], some_id: str, act: str) -> Selected[T]:
    """The object as it was before; with the reason and without an act if it was refused.

    Raises `Unavailable` or `RemoteError` if the service cannot tell the object's status.
    """
    kind = selectable.kind
    one = _selected(page_request, selectable, some_id, kind.acts[act].choice)
    if one.found is None or not one.act:
        return one
    if one.act != act:
        words = f"Its status is {kind.status(one.found)} now. Select it again."
        return Selected(some_id, one.found, "", words)
    try:
        selectable.carry_out(page_request, some_id, act)
    except (NotFound, RemoteError) as error:
        return Selected(some_id, one.found, "", error_text(error))
    return one


def _refusal(selectable: Selectable[T], kept: Mapping[str, str], title: str, reason: str) -> Page:
    return Page(selectable.kind.template, title, {**_list_values(selectable, kept), "refusal": reason}, 400)


def _list_values(selectable: Selectable[T], kept: Mapping[str, str]) -> dict[str, object]:
    address = selectable.address(kept)
    return {"kind": selectable.kind, "list": address, "back": address, "page": selectable.page}


def _without_repeats(ids: Sequence[str]) -> list[str]:
    return [each for each in dict.fromkeys(ids) if each]
