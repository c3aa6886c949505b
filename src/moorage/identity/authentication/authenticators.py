"""The ways to authenticate a request, one class each (Keystone's is in `keystone`).

| mode | class | reads |
|---|---|---|
| embedded | `EmbeddedTokens` | ``X-Auth-Token``, and ``X-Service-Token`` beside it |
| http_basic | `TokensOrBasic` (`EmbeddedTokens`, `HttpBasic`) | as above, or ``Authorization: Basic`` |
| none | `NoAuth` | nothing: every caller on this machine is admin |
| tests | `TestTokens` | the convention of upstream's own test suites |

If a request carries both a token and Basic credentials, only the token counts, even if it is invalid: a request is one
attempt, and the audit trail names the credential that was checked.
"""

import base64
import binascii
import hmac
import ipaddress
import secrets
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Forbidden, StartError, Unauthorized
from moorage.identity.model import SERVICE_TOKEN_GRACE, caller_for
from moorage.wire import forwarded
from moorage.wire.forwarded import TrustedProxies
from moorage.wire.http import Authenticator

if TYPE_CHECKING:
    from moorage.identity.embedded import EmbeddedIdentity
    from moorage.identity.tokens.keys import RandomBytes

#: Upstream's message, which clients print.
REQUIRED = "The request you have made requires authentication."

_MAX_CACHED = 1024


class EmbeddedTokens:
    """Authenticates the tokens of our own identity service."""

    def __init__(self, identity: "EmbeddedIdentity") -> None:
        self._identity = identity

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        token = headers.get("x-auth-token")
        if not token:
            raise Unauthorized(REQUIRED, code="identity.no_token")
        proof = {"x-auth-token": token}
        service_token = headers.get("x-service-token")
        if not service_token:
            return replace(self._identity.identify(token).caller, credentials=proof)
        if "service" not in self._identity.identify(service_token).roles:
            raise Unauthorized("the service token's user has no role 'service'", code="identity.service_token")
        # A service may continue to work for a user (a long upload) after the user's token has expired.
        caller = self._identity.identify(token, grace=SERVICE_TOKEN_GRACE).caller
        return replace(caller, by_service=True, credentials=proof)


class HttpBasic:
    """Authenticates each request with a user name and password of our own users, in the user's default project.

    bcrypt takes tens of milliseconds by design, so correct credentials are cached for `cache_s`. The cache holds a
    keyed hash, never a password; it includes the user's fingerprint, so a new password takes effect within a second.
    """

    def __init__(
        self,
        identity: "EmbeddedIdentity",
        clock: Clock,
        *,
        cache_s: float = 5.0,
        proxies: TrustedProxies | None = None,
        random_bytes: "RandomBytes" = secrets.token_bytes,
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._proxies = proxies or TrustedProxies()
        self._cache_period = timedelta(seconds=cache_s)
        self._cache_key = random_bytes(32)
        self._lock = threading.Lock()
        #: {keyed hash of user name, password and the password's fingerprint: end of its validity}
        self._verified: dict[bytes, datetime] = {}

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        name, password = _basic_credentials(headers.get("authorization", ""))
        accounts = self._identity.accounts()
        user = accounts.user_named(name)
        mark = self._mark(name, password, user.fingerprint if user else "")
        now = self._clock.now()
        if user is None or not accounts.is_enabled(user) or self._verified.get(mark, now) <= now:
            address = self._proxies.client_address(environ)
            user = self._identity.check_password(user, password, named=name, address=address)
            self._remember(mark, now)
        project = accounts.default_project(user)
        if project is None:
            raise Unauthorized(
                f"{name} has no default project; an administrator can set it: openstack user set --project",
                code="identity.no_project",
            )
        return replace(caller_for(user, project), credentials={"authorization": headers["authorization"]})

    def _mark(self, *parts: str) -> bytes:
        return hmac.digest(self._cache_key, "\0".join(parts).encode(), "sha256")

    def _remember(self, mark: bytes, now: datetime) -> None:
        with self._lock:
            if len(self._verified) >= _MAX_CACHED:
                self._verified = {key: until for key, until in self._verified.items() if until > now}
            if len(self._verified) < _MAX_CACHED:
                self._verified[mark] = now + self._cache_period


class TokensOrBasic:
    """Authenticates by the token if there is one, else by Basic credentials."""

    def __init__(self, tokens: Authenticator, basic: Authenticator) -> None:
        self._tokens = tokens
        self._basic = basic

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        if "x-auth-token" in headers or not headers.get("authorization", "").lower().startswith("basic "):
            return self._tokens.authenticate(headers, environ)
        return self._basic.authenticate(headers, environ)


class NoAuth:
    """Every caller on this machine may do everything, in one project. Credentials are ignored.

    A browser on this machine sends requests for any page open in it, and a page from elsewhere can make its own name
    resolve to this machine (DNS rebinding). Therefore requests by name are answered only for ``localhost`` and `names`;
    None allows all names. Requests that change something are rejected if they come from a page of another site, which
    browsers name in each such request (Fetch: ``Origin``; Fetch Metadata: ``Sec-Fetch-Site``); other programs send
    neither.
    """

    def __init__(
        self,
        *,
        user_id: str = "admin",
        project_id: str = "demo",
        beyond_loopback: bool = False,
        names: Collection[str] | None = None,
        origins: Collection[str] = (),
    ) -> None:
        """`origins` whose pages may change something too, as browsers send them: ``https://console.example.org``."""
        roles = frozenset({"admin", "member", "reader", "service"})
        self._caller = Caller(user_id, project_id, roles, user_name=user_id, project_name=project_id)
        self._beyond_loopback = beyond_loopback
        self._names = None if names is None else frozenset(names)
        self._origins = frozenset(origins)

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        address = str(environ.get("REMOTE_ADDR") or "")
        if not self._beyond_loopback and address and not _is_loopback(address):
            raise Unauthorized(
                f"without authentication, only requests from this machine are served, not from {address}"
            )
        if not (self._beyond_loopback or forwarded.FORWARDING_HEADERS.isdisjoint(environ)):
            raise Unauthorized(
                "without authentication, only requests from this machine are served, and this one came through a "
                "proxy; [identity] allow_none_beyond_loopback = true serves everyone who can reach this address"
            )
        host = headers.get("host", "")
        if not (self._beyond_loopback or self._names is None or _is_local_name(host, self._names)):
            raise Unauthorized(
                f"without authentication, requests to the name {host} are not served: a web page from elsewhere could "
                "have made that name point here. Use an IP address or localhost, or set the name in [server] public_url"
            )
        if environ.get("REQUEST_METHOD") not in _SAFE_METHODS and (page := self._foreign_page(headers)):
            raise Forbidden(
                f"without authentication, a page of {page} may not change anything; to allow it, add its origin to "
                "[server] cors_origins",
                code="identity.origin",
            )
        return self._caller

    def _foreign_page(self, headers: Mapping[str, str]) -> str | None:
        """The origin of the page that sent the request; None if no page sent it, or the page is ours or allowed."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is None:
            return None if site in ("none", "same-origin") else "another site"
        if origin in self._origins or (site != "cross-site" and _netloc(origin) == headers.get("host", "") != ""):
            return None
        return origin or "an unknown place"


def _netloc(origin: str) -> str:
    """Host and port of `origin`. The scheme may differ from ours, since a proxy in front may speak https."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


#: Methods that change nothing. Browsers do not let a page of another site read their responses.
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class RejectEveryone:
    """Rejects every request: for a process without users that serves no API, such as a separate host agent."""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        raise Unauthorized("this process has no users")


def refuse_beyond_loopback(address: str) -> None:
    """Raises `StartError` if `address`, where a server without authentication would listen, is no loopback address."""
    if not _is_loopback(address):
        raise StartError(
            f"identity mode 'none' makes every caller admin, and {address} can be reached from other machines; listen "
            f"on 127.0.0.1, choose another [identity] mode, or set allow_none_beyond_loopback = true"
        )


class TestTokens:
    """The convention of upstream's test suites: ``X-Auth-Token: USER[:PROJECT]``, roles in ``X-Roles``. Checks nothing.

    Our addition: a token with ``X-Moorage-Host: HOST`` is the agent of that host.

    Source: Placement's ``noauth2`` (reference/placement.md, section 4).
    """

    __test__ = False  # its name looks like a test case to pytest
    _READ = ("x-auth-token", "x-roles", "x-project-id", "openstack-system-scope")

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        token = headers.get("x-auth-token")
        if token is None:
            raise Unauthorized(REQUIRED, code="identity.no_token")
        if host := headers.get("x-moorage-host"):
            return Caller(user_id=token, project_id="", roles=frozenset(), host=host)
        user_id, _, project_id = token.partition(":")
        roles = {"admin"} if user_id == "admin" else set()
        if "x-roles" in headers:
            roles = {role.strip() for role in headers["x-roles"].split(",") if role.strip()}
        return Caller(
            user_id=user_id,
            project_id=headers.get("x-project-id") or project_id or user_id,
            roles=frozenset(roles),
            system_scope=headers.get("openstack-system-scope") == "all",
            credentials={name: headers[name] for name in self._READ if name in headers},
        )


def _basic_credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise Unauthorized(REQUIRED, code="identity.no_credentials")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Unauthorized("the Authorization header is malformed", code="identity.bad_header") from error
    if not colon:
        raise Unauthorized("the Authorization header contains no password", code="identity.bad_header")
    return name, password


@lru_cache(maxsize=_MAX_CACHED)
def _is_local_name(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header is an IP address, which no DNS record can redirect, or one of `names`."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name not in ("", "localhost") and name not in names:
            ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=_MAX_CACHED)
def _is_loopback(address: str) -> bool:
    if address == "localhost" or address.startswith(("unix:", "/")):
        return True
    try:
        parsed = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
