"""The pages of people and projects, for administrators of a plane that keeps its users itself."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError
from moorage.dashboard.page_request import PageRequest, redirect, require_admin
from moorage.dashboard.pages import Page, error_status, error_text
from moorage.dashboard.views import people_view as view
from moorage.dashboard.views.tables import headings, parse_order, table_rows
from moorage.wire.client import ServiceClient
from moorage.wire.http import Response

#: Rows of a table; the filter finds the others.
MAX_ROWS = 500

#: How long a link to choose a password is valid.
INVITATION_S = 72 * 3600

_NEW_PERSON: Mapping[str, str] = {"name": "", "project": "", "role": view.USUAL_ROLE}
_NEW_PROJECT: Mapping[str, str] = {"name": "", "description": ""}


def list_people(page_request: PageRequest) -> Page:
    return _people_page(page_request, _NEW_PERSON)


def add_person(page_request: PageRequest) -> Page | Response:
    """Creates the user with a role in a project. Without a password, the answer shows a link to choose one."""
    http, form = _identity(page_request), page_request.form
    typed = {name: form.text(name, usual) for name, usual in _NEW_PERSON.items()}
    try:
        has_password = bool(form.raw("password") or form.raw("again"))
        password = {"password": _new_password(page_request)} if has_password else {}
        project_id = _chosen(typed["project"], _projects(http), "project", "Project: select one")
        role_id = _chosen(typed["role"], _roles(http), "role", "Role: select one")
        record = {"name": typed["name"], **password, "default_project_id": project_id}
        made = http.request("POST", "/v3/users", json={"user": record})["user"]
        http.request("PUT", _grant_path(made["id"], project_id, role_id))
    except (Invalid, RemoteError) as error:
        return _people_page(page_request, typed, error=error)
    if not has_password:
        return show_person(page_request, made["id"], link=_new_link(page_request, made["id"]))
    return redirect(page_request, _page_path(made["id"]))


def list_projects(page_request: PageRequest) -> Page:
    return _projects_page(page_request, _NEW_PROJECT)


def add_project(page_request: PageRequest) -> Page | Response:
    http, form = _identity(page_request), page_request.form
    typed = {name: form.text(name) for name in _NEW_PROJECT}
    try:
        made = http.request("POST", "/v3/projects", json={"project": dict(typed)})["project"]
    except RemoteError as error:
        return _projects_page(page_request, typed, error=error)
    return redirect(
        page_request, "/people/projects?" + urlencode({"find": typed["name"], "done": "added", "project": made["id"]})
    )


def set_project_state(page_request: PageRequest, project_id: str) -> Page | Response:
    """Enables or disables a project. Disabling it ends the tokens for it, so not the one of this session."""
    http, is_enabled = _identity(page_request), page_request.form.has("enable")
    if project_id == page_request.user.project.id and not is_enabled:
        raise Invalid("you work in this project now; switch to another one at the top of the page to disable it")
    try:
        http.request("PATCH", f"/v3/projects/{_quoted(project_id)}", json={"project": {"enabled": is_enabled}})
    except RemoteError as error:
        return _projects_page(page_request, dict.fromkeys(_NEW_PROJECT, ""), error=error)
    done = {"done": "enabled" if is_enabled else "disabled", "project": project_id}
    return redirect(page_request, "/people/projects?" + urlencode(done))


def show_person(
    page_request: PageRequest, user_id: str, *, error: MoorageError | None = None, field: str = "", link: str = ""
) -> Page:
    """Raises `NotFound`."""
    http = _identity(page_request)
    person = next((row for row in view.person_rows(_users(http)) if row.id == user_id), None)
    if person is None:
        raise NotFound(f"there is no person {user_id}")
    form, query, projects, roles = page_request.form, page_request.http.query, _projects(http), _roles(http)
    role, project_id = query.first("role") or "", query.first("project") or ""
    changed = (role, project_id, projects.get(project_id, "")) if role in roles.values() else ("", "", "")
    values = {
        "one": person,
        "link": link,
        "is_self": person.id == page_request.user.user_id,
        "done": "" if error is not None else view.change_of_person(person, query.first("done") or "", *changed),
        "projects": projects,
        "roles": roles,
        "typed": {"project": form.text("project"), "role": form.text("role", view.USUAL_ROLE)},
        "error": "" if error is None else error_text(error),
        "error_field": field,
    }
    return Page("person.html", person.name, values, 200 if error is None else error_status(error))


def set_state(page_request: PageRequest, user_id: str) -> Page | Response:
    """Enables or disables the user."""
    http, is_enabled = _identity(page_request), page_request.form.has("enable")
    if user_id == page_request.user.user_id and not is_enabled:
        raise Invalid("you cannot disable yourself; another administrator can")
    try:
        http.request("PATCH", f"/v3/users/{_quoted(user_id)}", json={"user": {"enabled": is_enabled}})
    except RemoteError as error:
        return show_person(page_request, user_id, error=error)
    return redirect(page_request, f"{_page_path(user_id)}?done={'enabled' if is_enabled else 'disabled'}")


def set_password(page_request: PageRequest, user_id: str) -> Page | Response:
    """Gives another user a new password, which ends the user's tokens."""
    http = _identity(page_request)
    if user_id == page_request.user.user_id:
        return redirect(page_request, "/password")
    try:
        change = {"password": _new_password(page_request)}
        http.request("PATCH", f"/v3/users/{_quoted(user_id)}", json={"user": change})
    except (Invalid, RemoteError) as error:
        return show_person(page_request, user_id, error=error, field="password")
    return redirect(page_request, f"{_page_path(user_id)}?done=password")


def change_role(page_request: PageRequest, user_id: str) -> Page | Response:
    """Gives or takes a role in a project."""
    http, form = _identity(page_request), page_request.form
    is_taken = form.has("take")
    try:
        # A role can also be taken in a project that is disabled.
        projects = {row["id"]: row["name"] for row in http.get("/v3/projects")["projects"]}
        project_id = _chosen(form.text("project"), projects, "project", "Project: select one")
        roles = _roles(http)
        role_id = _chosen(form.text("role"), roles, "role", "Role: select one")
        if is_taken and (user_id, project_id) == (page_request.user.user_id, page_request.user.project.id):
            raise Invalid("these are the rights with which you work now; another administrator can take them")
        before = next((row for row in view.person_rows(_users(http)) if row.id == user_id), None)
        http.request("DELETE" if is_taken else "PUT", _grant_path(user_id, project_id, role_id))
    except (Invalid, RemoteError) as error:
        return show_person(page_request, user_id, error=error, field="" if is_taken else _field_of(error, "role"))
    had = before is not None and view.has_role(before, project_id, roles[role_id])
    done = "taken" if is_taken else "had" if had else "given"
    return redirect(
        page_request,
        f"{_page_path(user_id)}?" + urlencode({"done": done, "role": roles[role_id], "project": project_id}),
    )


def clear_lock(page_request: PageRequest, user_id: str) -> Response:
    """Forgets the user's failed sign-ins."""
    _identity(page_request).request("DELETE", f"/moorage/v1/users/{_quoted(user_id)}/lock")
    return redirect(page_request, f"{_page_path(user_id)}?done=unlocked")


def change_invitation(page_request: PageRequest, user_id: str) -> Page | Response:
    """Makes a link with which the user chooses a password, which ends an earlier one; or withdraws it."""
    http = _identity(page_request)
    try:
        if page_request.form.has("withdraw"):
            http.request("DELETE", _invitation_path(user_id))
            return redirect(page_request, f"{_page_path(user_id)}?done=withdrawn")
        link = _new_link(page_request, user_id)
    except RemoteError as error:
        return show_person(page_request, user_id, error=error)
    return show_person(page_request, user_id, link=link)


# --- pages --------------------------------------------------------------------------------------------------------


def _people_page(page_request: PageRequest, typed: Mapping[str, str], *, error: MoorageError | None = None) -> Page:
    http, query = _identity(page_request), page_request.http.query
    wanted, order = (query.first("find") or "").strip(), parse_order(query.first("sort"), view.PEOPLE)
    rows = table_rows(view.person_rows(_users(http)), view.PEOPLE, order, wanted)
    kept = {"find": wanted} if wanted else {}
    values = {
        "find": wanted,
        "rows": rows[:MAX_ROWS],
        "count": len(rows),
        "headings": headings(view.PEOPLE, order, kept, urlencode),
        "projects": _projects(http),
        "roles": _roles(http),
        "typed": typed,
        "error": "" if error is None else error_text(error),
        "error_field": _field_of(error, "name"),
    }
    return Page("people.html", "People", values, 200 if error is None else error_status(error))


def _projects_page(page_request: PageRequest, typed: Mapping[str, str], *, error: MoorageError | None = None) -> Page:
    http, query = _identity(page_request), page_request.http.query
    wanted, order = (query.first("find") or "").strip(), parse_order(query.first("sort"), view.PROJECTS)
    found = view.project_rows(http.get("/v3/projects")["projects"], view.person_rows(_users(http)))
    rows = table_rows(found, view.PROJECTS, order, wanted)
    kept = {"find": wanted} if wanted else {}
    changed = next((row for row in found if row.id == query.first("project")), None)
    values = {
        "find": wanted,
        "done": "" if error is not None else view.change_of_project(changed, query.first("done") or ""),
        "rows": rows[:MAX_ROWS],
        "count": len(rows),
        "headings": headings(view.PROJECTS, order, kept, urlencode),
        "typed": typed,
        "error": "" if error is None else error_text(error),
        "error_field": _field_of(error, "name"),
    }
    return Page("projects.html", "Projects", values, 200 if error is None else error_status(error))


def _new_link(page_request: PageRequest, user_id: str) -> str:
    """A new link. Browsers send the part after the ``#`` to no server, so no log has it."""
    body = {"expires_s": INVITATION_S}
    made = _identity(page_request).request("POST", _invitation_path(user_id), json=body)
    return f"{page_request.http.base_url}/invitation#{made['token']}"


def _identity(page_request: PageRequest) -> ServiceClient:
    """The identity service. Raises `Forbidden` for others than administrators, and `NotFound` with a Keystone."""
    require_admin(page_request)
    if not page_request.has("identity"):
        raise NotFound("Moorage does not keep the users of this cloud; manage them where they are")
    return page_request.client("identity")


def _users(http: ServiceClient) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = http.get("/moorage/v1/users")["users"]
    return rows


def _projects(http: ServiceClient) -> dict[str, str]:
    """{id: name} of the enabled projects."""
    return dict(view.choices(http.get("/v3/projects")["projects"]))


def _roles(http: ServiceClient) -> dict[str, str]:
    """{id: name}"""
    return dict(view.choices(http.get("/v3/roles")["roles"]))


def _chosen(given: str, records: Mapping[str, str], field: str, words: str) -> str:
    """The id that a form names by id or name. Raises `Invalid` with `words` for an unknown one."""
    found = next((each for each, name in records.items() if given in (each, name)), None)
    if found is None or not given:
        raise Invalid(words, field=field)
    return found


def _new_password(page_request: PageRequest) -> str:
    """Raises `Invalid`."""
    password = page_request.form.raw("password")
    if not password:
        raise Invalid("Password: enter one", field="password")
    if password != page_request.form.raw("again"):
        raise Invalid("Password: the two are not the same; enter both again", field="password")
    return password


def _field_of(error: MoorageError | None, usual: str) -> str:
    """The field that an error is about; the identity service names none, and `usual` is what it checks otherwise."""
    if error is None:
        return ""
    named = error.fields.get("field")
    if isinstance(named, str):
        return named
    return "password" if error_text(error).startswith("A password ") else usual


def _grant_path(user_id: str, project_id: str, role_id: str) -> str:
    return f"/v3/projects/{_quoted(project_id)}/users/{_quoted(user_id)}/roles/{_quoted(role_id)}"


def _invitation_path(user_id: str) -> str:
    return f"/moorage/v1/users/{_quoted(user_id)}/invitation"


def _page_path(user_id: str) -> str:
    return f"/people/users/{_quoted(user_id)}"


def _quoted(record_id: str) -> str:
    return quote(record_id, safe="")
