"""One look at a page: who looks, what they sent, and the answer as a page.

A handler is ``def show(visit: Visit, **path) -> Page | Response``; `page` makes it one that the kernel calls. Whatever it
raises becomes a page that says what is wrong and what to do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from urllib.parse import quote, urlsplit

from moorage.core.errors import Forbidden, MoorageError, Unauthorized
from moorage.dashboard import cookies
from moorage.dashboard.forms import Form, check_origin, read_form, split_address
from moorage.dashboard.pages import HEADERS, HTML, Page, error_page, trouble_page
from moorage.dashboard.service import Dashboard
from moorage.dashboard.signing_in import Person
from moorage.wire.client import ServiceClient
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response


@dataclass(frozen=True, slots=True)
class Visit:
    request: Request[Dashboard]
    cookies: Mapping[str, str]
    seed: str  #: of the forms' tokens; new for a browser that came without
    form: Form
    person: Person | None = None

    @property
    def who(self) -> Person:
        """Raises `Unauthorized` on a page that nobody had to sign in for."""
        if self.person is None:
            raise Unauthorized("sign in first", code="dashboard.session_over")
        return self.person

    def client(self, service_type: str) -> ServiceClient:
        """As the signed-in user. Raises `Unavailable` where the service is not there at all."""
        return self.request.service.ways.client(service_type, self.who.token)

    def has(self, service_type: str) -> bool:
        return self.request.service.ways.has(service_type)

    @property
    def root(self) -> str:
        """The path that the dashboard is mounted at, as browsers see it: ``/ui``."""
        return urlsplit(self.request.base_url).path


Handler = Callable[..., Page | Response]


def page(handler: Handler, *, is_public: bool = False) -> Callable[..., Response]:
    """`handler` behind sign-in, form checks and error pages."""

    @wraps(handler)
    def answer(request: Request[Dashboard], **path: str) -> Response:
        sent = cookies.read(request.headers)
        visit = Visit(request, sent, sent.get(cookies.SEED) or request.service.new_seed(), Form([]))
        try:
            visit = _admitted(visit, is_public=is_public)
            return _reply(visit, handler(visit, **path))
        except Unauthorized as error:
            if request.service.signing_in is None or is_public:
                return _reply(visit, error_page(error))
            return to_sign_in(visit, error if sent.get(cookies.SESSION) else None)
        except MoorageError as error:
            return _reply(visit, error_page(error))

    return answer


def _admitted(visit: Visit, *, is_public: bool) -> Visit:
    """With the form checked and the person known. Raises `Forbidden`, `Unauthorized`."""
    request, session = visit.request, visit.cookies.get(cookies.SESSION, "")
    form = visit.form
    if request.method == "POST":
        check_origin(request)
        form = read_form(request)
        if not cookies.is_form_token(form.text("form_token"), visit.cookies.get(cookies.SEED, ""), session):
            raise Forbidden(
                "this form was made for another session, or cookies are switched off; load the page again and repeat "
                "what you did",
                code="dashboard.form_token",
            )
    person = None if is_public else request.service.person(session or None, request.caller)
    if person is None and not is_public:
        raise Unauthorized("sign in first", code="dashboard.session_over")
    if person is not None and request.change is not None:
        request.change.set_initiator(
            name=person.user_name, project_id=person.project.id, project_name=person.project.name
        )
    return Visit(request, visit.cookies, visit.seed, form, person)


def _reply(visit: Visit, answer: Page | Response) -> Response:
    response = answer if isinstance(answer, Response) else rendered(visit, answer)
    response.headers = {**HEADERS, **response.headers}
    if visit.seed != visit.cookies.get(cookies.SEED):
        response.cookies = (*response.cookies, cookies.cookie(cookies.SEED, visit.seed, visit.request.base_url))
    return response


def rendered(visit: Visit, answer: Page) -> Response:
    theme = visit.cookies.get(cookies.THEME, "auto")
    values = {
        "title": answer.title,
        "root": visit.root,
        "path": visit.request.path,
        "here": _here(visit.request),
        "form_token": cookies.form_token(visit.seed, visit.cookies.get(cookies.SESSION, "")),
        "theme": theme if theme in cookies.THEMES else "auto",
        "person": visit.person,
        "signs_in": visit.request.service.signing_in is not None,
        "entries": [
            entry
            for entry in ENTRIES
            if visit.person and visit.has(entry.needs) and (visit.person.is_admin or not entry.for_admins)
        ],
        "now": visit.request.service.clock.now(),
        **answer.values,
    }
    body = visit.request.service.templates.render(answer.template, values)
    return Response(answer.status, body, content_type=HTML)


def _here(request: Request[Dashboard]) -> str:
    """Path and query of this page, below the mount, to come back to: of what a form did, the page that it was on."""
    if request.method != "GET":
        sent_from, root = split_address(request.headers.get("referer", "")), urlsplit(request.base_url).path
        if not sent_from.path.startswith(f"{root}/"):
            return "/"
        return sent_from.path.removeprefix(root) + (f"?{sent_from.query}" if sent_from.query else "")
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in request.query.pairs)
    return f"{request.path}?{query}" if query else request.path


def redirect(visit: Visit, path: str, *new_cookies: str) -> Response:
    """To a page of ours: 303, so that the browser asks for it with GET."""
    return Response(303, headers={"location": visit.root + path}, cookies=new_cookies)


def to_sign_in(visit: Visit, over: MoorageError | None) -> Response:
    """`over`: why the session that there was is none any more."""
    target = quote(_here(visit.request), safe="")
    gone = [cookies.cookie(cookies.SESSION, "", visit.request.base_url, max_age_s=0)] if over else []
    return _reply(visit, redirect(visit, f"/sign-in?next={target}{'&over=1' if over else ''}", *gone))


def plain_error(service: Dashboard, root: str) -> Callable[[Problem], Response]:
    """What goes wrong before a page is found or inside one that has a fault: an `ErrorShape`."""

    def shape(problem: Problem) -> Response:
        answer = trouble_page(problem.status, problem.message, problem.code, problem.request_id)
        values = {
            "title": answer.title, "root": root, "path": "", "here": "/", "form_token": "", "theme": "auto",
            "person": None, "signs_in": False, "entries": [], "now": service.clock.now(), **answer.values,
        }  # fmt: skip
        body = service.templates.render(answer.template, values)
        return Response(problem.status, body, dict(HEADERS), content_type=HTML)

    return shape


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    path: str  #: below ``/ui``
    label: str
    needs: str  #: the service whose page it is; left out where this cloud has none
    for_admins: bool = False


ENTRIES: tuple[NavigationEntry, ...] = (
    NavigationEntry("/calendar", "Calendar", "reservation"),
    NavigationEntry("/leases", "Leases", "reservation"),
    NavigationEntry("/map", "Map", needs="placement", for_admins=True),
    NavigationEntry("/servers", "Servers and accelerators", needs="compute"),
    NavigationEntry("/explain", "Explain", needs="compute"),
    NavigationEntry("/provider-config", "Provider configuration", needs="compute", for_admins=True),
)


def require_admin(visit: Visit) -> None:
    """Raises `Forbidden`. The services decide themselves, too: this is for the words."""
    if visit.who.is_admin:
        return
    roles = ", ".join(sorted(visit.who.roles)) or "none"
    raise Forbidden(
        f"this page is for operators: it needs the role admin, and {visit.who.user_name} has {roles} in the project "
        f"{visit.who.project.name}. Ask an administrator, or switch to a project where you have it",
        code="dashboard.role",
    )
