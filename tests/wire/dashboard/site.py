"""The dashboard as a browser without scripts sees it: keeps cookies, and sends forms with their hidden fields."""

import re
from html import unescape

import httpx

URL = "http://127.0.0.1:8778"
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


class Site:
    def __init__(self, app, url: str = URL) -> None:
        """Without an application, requests go to the socket at `url`."""
        self.url = url
        transport = httpx.HTTPTransport() if app is None else httpx.WSGITransport(app=app)
        self.http = httpx.Client(transport=transport, base_url=url, timeout=60)

    def get(self, path: str, **options) -> httpx.Response:
        return self.http.get(f"/ui{path}", **options)

    def post(self, path: str, *, origin: str | None = None, token: str | None = None, **fields) -> httpx.Response:
        """Sends a form as the dashboard's pages do. `origin` and `token` simulate another page or a wrong form."""
        data = {"form_token": self.form_token() if token is None else token, **fields}
        headers = {} if origin == "" else {"origin": origin or self.url}
        return self.http.post(f"/ui{path}", data=data, headers=headers)

    def form_token(self) -> str:
        """The token of the first form on the page."""
        page = self.get("/", follow_redirects=True).text
        return next(unescape(value) for name, value in _HIDDEN.findall(page) if name == "form_token")

    def sign_in(self, name: str, password: str, **fields) -> httpx.Response:
        return self.post("/sign-in", name=name, password=password, **fields)
