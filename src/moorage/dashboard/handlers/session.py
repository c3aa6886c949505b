"""Sign-in, sign-out, switching the project, the own password, invitations, and the theme."""

from urllib.parse import urlencode

from moorage.core.errors import Invalid, NotFound, RemoteError, TooManyRequests, Unauthorized
from moorage.dashboard import cookies
from moorage.dashboard.page_request import ENTRIES, PageRequest, redirect
from moorage.dashboard.pages import Page, error_status, error_text, sentence
from moorage.dashboard.service import VERSIONS
from moorage.dashboard.signing_in import Person, SigningIn
from moorage.wire.errors import status_of
from moorage.wire.http import Response

_YEAR_S = 365 * 86_400
#: What the page of sign-in says after another one.
_DONE = {
    "changed": "Your password is changed. Sign in with the new one.",
    "invited": "Your password is set. Sign in with it.",
}


def show_first_page(page_request: PageRequest) -> Response | Page:
    """Redirects to the first page in the navigation; if there is none, shows the user and the available services."""
    for entry in ENTRIES:
        if page_request.has(entry.needs) and (page_request.user.is_admin or not entry.for_admins):
            return redirect(page_request, entry.path)
    return Page("overview.html", "Overview", {"services": [(name, page_request.has(name)) for name in VERSIONS]})


def show_sign_in(page_request: PageRequest) -> Page | Response:
    if page_request.http.service.signing_in is None:
        return redirect(page_request, "/")
    return sign_in_form(
        page_request,
        page_request.http.query.first("next") or "/",
        page_request.http.query.first("name") or "",
        is_over=bool(page_request.http.query.first("over")),
        done=_DONE.get(page_request.http.query.first("done") or "", ""),
    )


def sign_in(page_request: PageRequest) -> Page | Response:
    service, form = signing_in(page_request), page_request.form
    target = safe_path(form.text("next"))
    name, password = form.text("name"), form.raw("password")
    if not name or not password:
        return sign_in_form(page_request, target, name, "Enter both the name and the password", status=400)
    try:
        person = service.sign_in(name, password, page_request.http.address)
    except (Unauthorized, TooManyRequests) as error:
        return sign_in_form(page_request, target, name, sentence(error.message), status=status_of(error))
    if page_request.http.change is not None:
        project = person.project
        page_request.http.change.set_initiator(name=person.user_name, project_id=project.id, project_name=project.name)
    return redirect(page_request, target, session_cookie(page_request, person))


def sign_out(page_request: PageRequest) -> Response:
    if token := page_request.cookies.get(cookies.SESSION):
        signing_in(page_request).revoke(token)
    return redirect(page_request, "/sign-in", *_no_session(page_request))


def switch_project(page_request: PageRequest) -> Response:
    service, who = signing_in(page_request), page_request.user
    wanted = page_request.form.text("project_id")
    if wanted not in {project.id for project in who.projects}:
        raise Invalid("you no longer have a role in this project; reload the page")
    person = service.switch(who.token or "", wanted)
    return redirect(page_request, safe_path(page_request.form.text("next")), session_cookie(page_request, person))


def show_password(page_request: PageRequest) -> Page | Response:
    return _password_page() if page_request.http.service.signing_in else redirect(page_request, "/")


def change_password(page_request: PageRequest) -> Page | Response:
    """Changes the own password, which ends the session."""
    service, form = signing_in(page_request), page_request.form
    original, new = form.raw("original"), form.raw("password")
    try:
        if not original:
            raise Invalid("Present password: enter it", field="original")
        if not new or new != form.raw("again"):
            raise Invalid("New password: enter the same one twice", field="password")
        service.change_password(page_request.user, original, new, page_request.http.address)
    except (Unauthorized, TooManyRequests) as error:
        wrong = "The present password is wrong" if isinstance(error, Unauthorized) else sentence(error.message)
        return _password_page(wrong, "original", status_of(error))
    except (Invalid, RemoteError) as error:
        return _password_page(error_text(error), str(error.fields.get("field", "password")), error_status(error))
    return redirect(page_request, "/sign-in?done=changed", *_no_session(page_request))


def show_invitation(page_request: PageRequest) -> Page:
    """The form of an invited person. The code is in the fragment of the address, which no server gets."""
    _inviting(page_request)
    return _invitation_page()


def accept_invitation(page_request: PageRequest) -> Page | Response:
    service, form = _inviting(page_request), page_request.form
    # Somebody who pastes may paste the whole link.
    code, password = form.text("code").rpartition("#")[2], form.raw("password")
    try:
        if not code:
            raise Invalid("Code: enter the part of the link after #", field="code")
        if not password or password != form.raw("again"):
            raise Invalid("Password: enter the same one twice", field="password")
        name = service.accept_invitation(code, password, page_request.http.address)
    except (Unauthorized, TooManyRequests) as error:
        return _invitation_page(code, error.message, "code", status_of(error))
    except (Invalid, RemoteError) as error:
        field = str(error.fields.get("field", "password"))
        return _invitation_page(code, error_text(error), field, error_status(error))
    return redirect(page_request, "/sign-in?" + urlencode({"done": "invited", "name": name}))


def set_theme(page_request: PageRequest) -> Response:
    wanted = page_request.form.text("theme")
    if wanted not in cookies.THEMES:
        raise Invalid(f"theme must be one of {', '.join(cookies.THEMES)}")
    kept = cookies.set_cookie(cookies.THEME, wanted, page_request.http.base_url, max_age_s=_YEAR_S)
    return redirect(page_request, safe_path(page_request.form.text("next")), kept)


def sign_in_form(
    page_request: PageRequest,
    target: str,
    name: str = "",
    error: str = "",
    *,
    is_over: bool = False,
    done: str = "",
    status: int = 200,
) -> Page:
    service = page_request.http.service.signing_in
    provider = service.provider_name() if service is not None and page_request.has("identity") else None
    values = {
        "next": safe_path(target),
        "name": name,
        "error": error,
        "is_over": is_over,
        "done": done,
        "provider": provider,
    }
    return Page("sign_in.html", "Sign in", values, status)


def _password_page(error: str = "", error_field: str = "", status: int = 200) -> Page:
    return Page("password.html", "Change your password", {"error": error, "error_field": error_field}, status)


def _invitation_page(code: str = "", error: str = "", error_field: str = "", status: int = 200) -> Page:
    values = {"code": code, "error": error, "error_field": error_field}
    return Page("invitation.html", "Choose a password", values, status)


def _inviting(page_request: PageRequest) -> SigningIn:
    """Raises `NotFound` if Moorage does not keep the users."""
    service = page_request.http.service.signing_in
    if service is None or not page_request.has("identity"):
        raise NotFound("Moorage does not keep the users of this cloud, and invites nobody")
    return service


def signing_in(page_request: PageRequest) -> SigningIn:
    """Raises `Invalid` if sign-in is off."""
    service = page_request.http.service.signing_in
    if service is None:
        raise Invalid("sign-in is off: [identity] mode is none")
    return service


def _no_session(page_request: PageRequest) -> list[str]:
    """The cookies that end the session in the browser."""
    return [
        cookies.set_cookie(name, "", page_request.http.base_url, max_age_s=0)
        for name in (cookies.SESSION, cookies.SEED)
    ]


def session_cookie(page_request: PageRequest, person: Person) -> str:
    return cookies.set_cookie(cookies.SESSION, person.token or "", page_request.http.base_url)


def safe_path(target: str) -> str:
    """A safe path to return to, or "/". The caller puts the mount before it, so it cannot lead to another site."""
    is_path = target.startswith("/") and target.isascii() and target.isprintable() and not set(target) & set(" \\")
    return target if is_path else "/"
