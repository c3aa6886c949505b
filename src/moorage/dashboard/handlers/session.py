"""Signing in and out, the project, light and dark."""

from moorage.core.errors import Invalid, TooManyRequests, Unauthorized
from moorage.dashboard import cookies
from moorage.dashboard.page_request import ENTRIES, Visit, redirect
from moorage.dashboard.pages import Page
from moorage.dashboard.service import VERSIONS
from moorage.dashboard.signing_in import Person, SigningIn
from moorage.wire.errors import status_of
from moorage.wire.http import Response

_YEAR_S = 365 * 86_400


def show_first_page(visit: Visit) -> Reply | Page:
    """The first page that there is; without one, who is here and which services are reached."""
    for entry in ENTRIES:
        if visit.has(entry.needs) and (visit.who.is_admin or not entry.for_admins):
            return redirect(visit, entry.path)
    return Page("overview.html", "Overview", {"services": [(name, visit.has(name)) for name in VERSIONS]})


def show_sign_in(visit: Visit) -> Page | Reply:
    if visit.call.service.signing_in is None:
        return redirect(visit, "/")
    return _form(visit, visit.request.query.first("next") or "/", is_over=bool(visit.request.query.first("over")))


def sign_in(visit: Visit) -> Page | Response:
    service, form = _signing_in(visit), visit.form
    target = _local(form.text("next"))
    name, password = form.text("name"), form.raw("password")
    if not name or not password:
        return _form(visit, target, name, "type both the name and the password", status=400)
    try:
        person = service.sign_in(name, password, visit.request.address)
    except (Unauthorized, TooManyRequests) as error:
        return _form(visit, target, name, error.message, status=status_of(error))
    if visit.request.change is not None:
        project = person.project
        visit.request.change.set_initiator(name=person.user_name, project_id=project.id, project_name=project.name)
    return redirect(visit, target, _session(visit, person))


def sign_out(visit: Visit) -> Response:
    if token := visit.cookies.get(cookies.SESSION):
        _signing_in(visit).forget(token)
    gone = [cookies.cookie(name, "", visit.request.base_url, max_age_s=0) for name in (cookies.SESSION, cookies.SEED)]
    return redirect(visit, "/sign-in", *gone)


def switch_project(visit: Visit) -> Response:
    service, who = _signing_in(visit), visit.who
    wanted = visit.form.text("project_id")
    if wanted not in {project.id for project in who.projects}:
        raise Invalid("you have no role in this project (any more); load the page again")
    person = service.switch(who.token or "", wanted)
    return redirect(visit, _local(visit.form.text("next")), _session(visit, person))


def set_theme(visit: Visit) -> Reply:
    wanted = visit.form.text("theme")
    if wanted not in cookies.THEMES:
        raise Invalid(f"the theme is one of {', '.join(cookies.THEMES)}")
    kept = cookies.cookie(cookies.THEME, wanted, visit.request.base_url, max_age_s=_YEAR_S)
    return redirect(visit, _local(visit.form.text("next")), kept)


def _form(
    visit: Visit, target: str, name: str = "", trouble: str = "", *, is_over: bool = False, status: int = 200
) -> Page:
    values = {"next": _local(target), "name": name, "trouble": trouble, "is_over": is_over}
    return Page("sign_in.html", "Sign in", values, status)


def _signing_in(visit: Visit) -> SigningIn:
    """Raises `Invalid` where nobody signs in."""
    service = visit.request.service.signing_in
    if service is None:
        raise Invalid("nobody signs in here: [identity] mode is none")
    return service


def _session(visit: Visit, person: Person) -> str:
    return cookies.cookie(cookies.SESSION, person.token or "", visit.request.base_url)


def _local(target: str) -> str:
    """A path of ours to go on to; anything else is the first page. The mount is put before it, so it leads nowhere else."""
    is_path = target.startswith("/") and target.isascii() and target.isprintable() and not set(target) & set(" \\")
    return target if is_path else "/"
