"""Sign-in with an OpenID provider: the way to its page, and the way back.

The browser keeps a random secret and the page to return to in a cookie, for `UNDER_WAY_S`. The identity service derives
everything else from the secret and checks the provider's answer.
"""

from urllib.parse import quote, unquote

from moorage.core.errors import MoorageError, Unauthorized
from moorage.dashboard import cookies
from moorage.dashboard.handlers.session import safe_path, session_cookie, sign_in_form, signing_in
from moorage.dashboard.page_request import PageRequest, render_page
from moorage.dashboard.pages import Page, error_status, error_text
from moorage.wire.http import Response

#: How long a person may take at the provider's pages.
UNDER_WAY_S = 600

#: Of the provider's word for an error.
_MAX_ERROR = 100


def go_to_provider(page_request: PageRequest) -> Page | Response:
    service, secret = signing_in(page_request), page_request.http.service.new_seed()
    target = safe_path(page_request.http.query.first("next") or "/")
    try:
        url = service.provider_url(secret)
    except MoorageError as error:
        return sign_in_form(page_request, target, error=error_text(error), status=error_status(error))
    kept = f"{secret}.{quote(target, safe='')}"
    cookie = cookies.set_cookie(cookies.PROVIDER, kept, page_request.http.base_url, max_age_s=UNDER_WAY_S)
    return Response(303, headers={"location": url}, cookies=(cookie,))


def come_back(page_request: PageRequest) -> Page | Response:
    """Where the provider sends the browser. The cookie is used up, whatever the answer is."""
    kept = page_request.cookies.get(cookies.PROVIDER, "")
    answer = _signed_in(page_request, *kept.partition(".")[::2])
    used_up = cookies.set_cookie(cookies.PROVIDER, "", page_request.http.base_url, max_age_s=0)
    answer.cookies = (*answer.cookies, used_up)
    return answer


def _signed_in(page_request: PageRequest, secret: str, kept_target: str) -> Response:
    service, query = signing_in(page_request), page_request.http.query
    target = safe_path(unquote(kept_target))
    try:
        if refusal := query.first("error"):
            said = "".join(one for one in refusal[:_MAX_ERROR] if one.isprintable())
            raise Unauthorized(f"the provider refused the sign-in ({said}); start again")
        given = {name: value for name in ("state", "code", "iss") if (value := query.first(name))}
        if not secret or not {"state", "code"} <= given.keys():
            raise Unauthorized("this sign-in was not started in this browser, or it took too long; start again")
        person = service.sign_in_with_code({"browser_secret": secret, **given}, page_request.http.address)
    except MoorageError as error:
        page = sign_in_form(page_request, target, error=error_text(error), status=error_status(error))
        return render_page(page_request, page)
    # The browser comes from another site, so it would not send the new cookie (SameSite=Strict) after a redirect. It
    # does after a page of ours.
    answer = render_page(page_request, Page("signed_in.html", "Signed in", {"next": target}))
    answer.cookies = (session_cookie(page_request, person),)
    return answer
