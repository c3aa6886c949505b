"""Token sources for the services of this plane and the CLI: they log in at any Keystone v3, ours or a real one."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NotRequired, TypedDict

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import NotFound, RemoteError, Unauthorized, Unavailable
from moorage.wire.client import decode_body, error_of_response, naming_peer
from moorage.wire.transports import Transport

#: A token is renewed this long before it expires, so that none expires during a request; a short-lived one at half of
#: its lifetime.
RENEWAL_MARGIN = timedelta(seconds=120)

_DEFAULT_DOMAIN = "default"


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    expires_at: datetime
    renew_at: datetime
    user_id: str
    project_id: str | None
    roles: frozenset[str]
    #: (service type, interface, region) -> URL
    endpoints: Mapping[tuple[str, str, str], str]

    def __repr__(self) -> str:
        return f"Token(user_id={self.user_id!r}, project_id={self.project_id!r}, expires_at={self.expires_at!r})"


class RenewedTokens(ABC):
    """A `TokenSource` that renews its token before it expires. Thread-safe; all threads share one token."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._shown = threading.local()

    @abstractmethod
    def _fetch_token(self) -> Token:
        """Get a new token. Raises `Unauthorized` if identity rejects the login, `Unavailable` if it does not answer."""

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """``X-Auth-Token``. With `renew`, a token other than the last one this thread received."""
        token = self.current_token(refused=getattr(self._shown, "text", None) if renew else None)
        self._shown.text = token.text
        return {"x-auth-token": token.text}

    def current_token(self, *, refused: str | None = None) -> Token:
        """The current token. Fetches one if there is none, if it is about to expire, or if it is `refused`.

        If the token of several threads is rejected at the same time, they fetch one new token. Raises as
        `_fetch_token`.
        """
        token = self._token
        if token is not None and token.text != refused and self._clock.now() < token.renew_at:
            return token
        with self._lock:
            token = self._token
            if token is None or token.text == refused or self._clock.now() >= token.renew_at:
                token = self._token = self._fetch_token()
            return token


class PasswordTokens(RenewedTokens):
    """Logs in with a password.

    `transport` leads to ``OS_AUTH_URL`` without ``/v3``: ``http://host/identity``.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        username: str,
        password: str,
        project: str,
        clock: Clock,
        user_domain_id: str = _DEFAULT_DOMAIN,
        project_domain_id: str = _DEFAULT_DOMAIN,
    ) -> None:
        super().__init__(clock)
        self._transport = transport
        self._who = f"{username} in project {project}"
        user = {"name": username, "password": password, "domain": {"id": user_domain_id}}
        self._request = orjson.dumps(
            {
                "auth": {
                    "identity": {"methods": ["password"], "password": {"user": user}},
                    "scope": {"project": {"name": project, "domain": {"id": project_domain_id}}},
                }
            }
        )

    def endpoint(self, service_type: str, interface: str = "public", region: str | None = None) -> str:
        """The URL in the catalogue. Raises `NotFound` with the service types that the catalogue has."""
        endpoints = self.current_token().endpoints
        for (kind, offered, at), url in endpoints.items():
            if kind == service_type and offered == interface and region in (None, at):
                return url
        known = ", ".join(sorted({kind for kind, _, _ in endpoints})) or "nothing"
        raise NotFound(
            f"the catalogue has no {interface} endpoint of {service_type}{f' in {region}' if region else ''}; "
            f"it has {known}",
            code="identity.no_endpoint",
        )

    def _fetch_token(self) -> Token:
        headers = {"content-type": "application/json", "accept": "application/json"}
        with naming_peer("identity"):
            answer = self._transport.send("POST", "/v3/auth/tokens", headers, self._request)
        if answer.status == 201:
            return _parse_token(
                answer.headers.get("x-subject-token", ""), decode_body(answer)["token"], self._clock.now()
            )
        message, _ = error_of_response(answer)
        where = f"identity answered {answer.status} to the login of {self._who}: {message}"
        if answer.status == 401:
            raise Unauthorized(where, code="identity.password", peer="identity")
        if answer.status >= 500:
            raise Unavailable(where, peer="identity")
        raise RemoteError(where, status=answer.status, peer="identity")


def renew_at(expires_at: datetime, now: datetime) -> datetime:
    """The time to renew a token that was issued at `now`."""
    return max(expires_at - RENEWAL_MARGIN, now + (expires_at - now) / 2)


class _Named(TypedDict):
    id: str
    name: str


class _Endpoint(TypedDict):
    interface: str
    region_id: NotRequired[str | None]
    url: str


class _CatalogEntry(TypedDict):
    type: str
    endpoints: list[_Endpoint]


class _TokenDocument(TypedDict):
    expires_at: str
    user: _Named
    project: NotRequired[_Named]
    roles: NotRequired[list[_Named]]
    catalog: NotRequired[list[_CatalogEntry]]


def _parse_token(text: str, document: _TokenDocument, now: datetime) -> Token:
    project = document.get("project")
    expires_at = datetime.fromisoformat(document["expires_at"])
    return Token(
        text=text,
        expires_at=expires_at,
        renew_at=renew_at(expires_at, now),
        user_id=document["user"]["id"],
        project_id=project["id"] if project else None,
        roles=frozenset(role["name"] for role in document.get("roles", ())),
        endpoints={
            (service["type"], endpoint["interface"], endpoint.get("region_id") or ""): endpoint["url"]
            for service in document.get("catalog", ())
            for endpoint in service["endpoints"]
        },
    )
