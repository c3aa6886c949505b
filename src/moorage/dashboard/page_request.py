"""One request for a page: the signed-in user, the form and cookies, and the answer.

A handler has the signature ``def show_x(page_request: PageRequest, **path) -> Page | Response``. `page` wraps it for
the WSGI kernel and turns every error it raises into a page that explains the error and what to do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from urllib.parse import quote, urlsplit

from moorage.core.errors import Forbidden, MoorageError, NotFound, Unauthorized
from moorage.dashboard import cookies
from moorage.dashboard.forms import Form, check_origin, read_form, split_address
from moorage.dashboard.pages import HEADERS, HTML, Page, error_page, status_page
from moorage.dashboard.service import Dashboard
from moorage.dashboard.signing_in import Names, Person
from moorage.wire.client import ServiceClient
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response


@dataclass(frozen=True, slots=True)
class PageRequest:
    http: Request[Dashboard]
    cookies: Mapping[str, str]
    seed: str  #: seed of the form tokens; new if the browser sent none
    form: Form
    person: Person | None = None

    @property
    def user(self) -> Person:
        """The signed-in user. Raises `Unauthorized` on a public page."""
        if self.person is None:
            raise Unauthorized("sign in first", code="dashboard.session_over")
        return self.person

    def client(self, service_type: str) -> ServiceClient:
        """A client that acts as the signed-in user. Raises `Unavailable` if the cloud has no such service."""
        return self.http.service.services.client(service_type, self.user.token)

    def has(self, service_type: str) -> bool:
        return self.http.service.services.has(service_type)

    @property
    def names(self) -> Names:
        """The names of projects and users that the signed-in user may know."""
        return self.http.service.names(self.user)

    @property
    def root(self) -> str:
        """The path at which browsers see the dashboard: ``/ui``."""
        return urlsplit(self.http.base_url).path


Handler = Callable[..., Page | Response]


def page(handler: Handler, *, is_public: bool = False) -> Callable[..., Response]:
    """Wraps `handler` with sign-in, form checks and error pages."""

    @wraps(handler)
    def answer(request: Request[Dashboard], **path: str) -> Response:
        sent = cookies.read_cookies(request.headers)
        page_request = PageRequest(request, sent, sent.get(cookies.SEED) or request.service.new_seed(), Form([]))
        try:
            page_request = _admit(page_request, is_public=is_public)
            return _respond(page_request, handler(page_request, **path))
        except Unauthorized as error:
            if request.service.signing_in is None or is_public:
                return _respond(page_request, error_page(error))
            return to_sign_in(page_request, error if sent.get(cookies.SESSION) else None)
        except MoorageError as error:
            person = page_request.person
            has_projects = person is not None and len(person.projects) > 1
            return _respond(
                page_request,
                error_page(error, request.path, has_session=person is not None, has_projects=has_projects),
            )

    return answer


def _admit(page_request: PageRequest, *, is_public: bool) -> PageRequest:
    """The request with its form checked and its user known. Raises `Forbidden`, `Unauthorized`."""
    request, session = page_request.http, page_request.cookies.get(cookies.SESSION, "")
    form = page_request.form
    if request.method == "POST":
        check_origin(request)
        form = read_form(request)
        if not cookies.is_form_token(form.text("form_token"), page_request.cookies.get(cookies.SEED, ""), session):
            raise Forbidden(
                "this form belongs to another session, or cookies are disabled; reload the page and try again",
                code="dashboard.form_token",
            )
    person = None if is_public else request.service.person(session or None, request.caller)
    if person is None and not is_public:
        raise Unauthorized("sign in first", code="dashboard.session_over")
    if person is not None and request.change is not None:
        request.change.set_initiator(
            name=person.user_name, project_id=person.project.id, project_name=person.project.name
        )
    return PageRequest(request, page_request.cookies, page_request.seed, form, person)


def _respond(page_request: PageRequest, answer: Page | Response) -> Response:
    response = answer if isinstance(answer, Response) else render_page(page_request, answer)
    response.headers = {**HEADERS, **response.headers}
    if page_request.seed != page_request.cookies.get(cookies.SEED):
        response.cookies = (
            *response.cookies,
            cookies.set_cookie(cookies.SEED, page_request.seed, page_request.http.base_url),
        )
    return response


def render_page(page_request: PageRequest, answer: Page) -> Response:
    theme = page_request.cookies.get(cookies.THEME, "auto")
    values = {
        "title": answer.title,
        "root": page_request.root,
        "path": page_request.http.path,
        "here": _here(page_request.http),
        "form_token": cookies.form_token(page_request.seed, page_request.cookies.get(cookies.SESSION, "")),
        "theme": theme if theme in cookies.THEMES else "auto",
        "q": "",
        "person": page_request.person,
        "signs_in": page_request.http.service.signing_in is not None,
        "entries": [
            entry
            for entry in ENTRIES
            if page_request.person
            and page_request.has(entry.needs)
            and (page_request.person.is_admin or not entry.for_admins)
        ],
        "now": page_request.http.service.clock.now(),
        **answer.values,
    }
    body = page_request.http.service.templates.render(answer.template, values)
    return Response(answer.status, body, content_type=HTML)


def _here(request: Request[Dashboard]) -> str:
    """Path and query of this page below the mount, to return to. After a form was sent: of the page with the form."""
    if request.method != "GET":
        sent_from, root = split_address(request.headers.get("referer", "")), urlsplit(request.base_url).path
        if not sent_from.path.startswith(f"{root}/"):
            return "/"
        return sent_from.path.removeprefix(root) + (f"?{sent_from.query}" if sent_from.query else "")
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in request.query.pairs)
    return f"{request.path}?{query}" if query else request.path


def redirect(page_request: PageRequest, path: str, *new_cookies: str) -> Response:
    """Redirects to a page of the dashboard with status 303, so that the browser uses GET."""
    return Response(303, headers={"location": page_request.root + path}, cookies=new_cookies)


def to_sign_in(page_request: PageRequest, over: MoorageError | None) -> Response:
    """`over`: why the session has ended, if there was one."""
    target = quote(_here(page_request.http), safe="")
    gone = [cookies.set_cookie(cookies.SESSION, "", page_request.http.base_url, max_age_s=0)] if over else []
    return _respond(page_request, redirect(page_request, f"/sign-in?next={target}{'&over=1' if over else ''}", *gone))


def unknown_address(request: Request[Dashboard]) -> Response:
    """The page for an address that no page has: with navigation for a signed-in user, and without for anybody else."""
    sent = cookies.read_cookies(request.headers)
    try:
        person = request.service.person(sent.get(cookies.SESSION) or None, request.caller)
    except MoorageError:  # the session is over, or the identity service does not answer
        person = None
    seed = sent.get(cookies.SEED) or request.service.new_seed()
    message, advice = "There is no page at this address", "Check the address, or look for the page in the navigation."
    answer = status_page(404, message, NotFound.code, advice=advice if person else "Check the address.")
    return _respond(PageRequest(request, sent, seed, Form([]), person), answer)


def plain_error(service: Dashboard, root: str) -> Callable[[Problem], Response]:
    """The `ErrorShape` for errors outside a handler: methods that a page does not have, and faults in a page."""

    def shape(problem: Problem) -> Response:
        answer = status_page(problem.status, problem.message, problem.code, problem.request_id)
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
    needs: str  #: the service that the page uses; the entry is hidden if the cloud has none
    for_admins: bool = False


ENTRIES: tuple[NavigationEntry, ...] = (
    NavigationEntry("/calendar", "Calendar", "reservation"),
    NavigationEntry("/leases", "Leases", "reservation"),
    NavigationEntry("/servers", "Servers", needs="compute"),
    NavigationEntry("/accelerators", "Accelerators", needs="accelerator"),
    NavigationEntry("/explain", "Explain", needs="compute"),
    NavigationEntry("/map", "Map", needs="placement", for_admins=True),
    NavigationEntry("/hosts", "Hosts", needs="compute", for_admins=True),
    NavigationEntry("/provider-config", "Provider configuration", needs="compute", for_admins=True),
    NavigationEntry("/quarantine", "Quarantine", needs="accelerator", for_admins=True),
    NavigationEntry("/audit", "Audit", needs="placement", for_admins=True),
    NavigationEntry("/people", "People", needs="identity", for_admins=True),
)


def require_admin(page_request: PageRequest) -> None:
    """Raises `Forbidden` with the missing role. Services check permissions too; this only gives a clear message."""
    if page_request.user.is_admin:
        return
    roles = ", ".join(sorted(page_request.user.roles)) or "none"
    raise Forbidden(
        f"this page requires the role admin, but {page_request.user.user_name} has {roles} in the project "
        f"{page_request.user.project.name}",
        code="dashboard.role",
    )
