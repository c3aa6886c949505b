"""Authenticates tokens of a real Keystone through keystonemiddleware (the extra ``keystone``).

The middleware wraps the whole WSGI application (`KeystoneTokens.wrap`). It removes every identity header that a client
sent, validates the tokens at Keystone (with a cache), and writes the result into the WSGI environment. The
authenticator accepts only requests that went through it.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from wsgiref.types import WSGIEnvironment

from moorage.core.caller import Caller
from moorage.core.errors import Invalid, StartError, Unauthorized
from moorage.core.names import check_host_name
from moorage.identity.authentication.authenticators import REQUIRED
from moorage.wire.app import WsgiApp

#: Marks requests that went through the middleware. No client can set it, as it lacks the prefix ``HTTP_``.
_PASSED_KEY = "moorage.keystone"
#: The list in which `KeystoneTokens.identify` receives the middleware's result.
_RESULT_KEY = "moorage.keystone.found"


@dataclass(frozen=True)
class HostUsers:
    """The users of one Keystone domain that are agents of hosts. Anyone who can create users there can create hosts."""

    domain_id: str = "default"
    pattern: tuple[str, str] | None = None  #: prefix and suffix of the host name in a user name
    named: Mapping[str, str] = field(default_factory=dict)  #: user -> host

    def host_of(self, user_name: str, domain_id: str) -> str | None:
        """The host whose agent the user is; None for other users."""
        if domain_id != self.domain_id:
            return None
        if user_name in self.named:
            return self.named[user_name]
        if self.pattern is None:
            return None
        before, behind = self.pattern
        is_one = user_name.startswith(before) and user_name.endswith(behind)
        host = user_name[len(before) : len(user_name) - len(behind)]
        return host if is_one and host else None


def parse_host_users(text: str, domain_id: str, where: str) -> HostUsers:
    """From ``agent-{host}`` and ``USER=HOST``, comma separated. Raises `StartError` naming `where`."""
    pattern, named = None, {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        user, equals, host = (word.strip() for word in entry.partition("="))
        try:
            if equals and user:
                check_host_name(host)
                named[user] = host
                continue
        except Invalid as error:
            raise StartError(f"{where} has {entry!r}: {error.message}") from error
        before, placeholder, behind = entry.partition("{host}")
        if equals or not placeholder or not before + behind or "{" in before + behind or pattern is not None:
            raise StartError(
                f"{where} has {entry!r}; write USER=HOST, or one pattern with {{host}} and a prefix or suffix that no "
                "other user name has: agent-{host}"
            )
        pattern = before, behind
    return HostUsers(domain_id, pattern, named)


class KeystoneTokens:
    """An `Authenticator`. It rejects every request unless `wrap` wraps the application."""

    def __init__(
        self,
        *,
        auth_url: str,
        username: str,
        password: str,
        project: str = "service",
        hosts: HostUsers | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """`auth_url` includes ``/v3``. `hosts`: the users that are agents of hosts. `more`: options of
        ``[keystone_authtoken]``, such as ``memcached_servers``.
        """
        self._hosts = hosts or HostUsers()
        self._options: dict[str, object] = {
            "auth_type": "password",
            "auth_url": auth_url,
            "www_authenticate_uri": auth_url,
            "username": username,
            "password": password,
            "project_name": project,
            "user_domain_id": "default",
            "project_domain_id": "default",
            # We send our own error messages, and version documents are public.
            "delay_auth_decision": True,
            "service_token_roles": "service",
            "service_token_roles_required": True,
            **(more or {}),
        }
        self._identifying: WsgiApp | None = None

    def wrap(self, app: WsgiApp) -> WsgiApp:
        """`app` behind keystonemiddleware. Raises `StartError` if that is not installed."""
        try:
            from keystonemiddleware import auth_token
        except ImportError as error:
            raise StartError(
                "identity mode 'keystone' needs keystonemiddleware; install it: pip install 'moorage[keystone]'"
            ) from error

        def marked(environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
            environ[_PASSED_KEY] = True
            return app(environ, start_response)

        protocol: WsgiApp = auth_token.AuthProtocol(marked, dict(self._options))
        self._identifying = auth_token.AuthProtocol(self._found, dict(self._options))
        return protocol

    def identify(self, environ: Mapping[str, object]) -> Caller:
        """The caller of a request that has not gone through `wrap` yet. Raises `Unauthorized`."""
        found: list[Caller | Unauthorized] = []
        if self._identifying is not None:
            # The middleware needs a body stream; nothing reads the body here.
            self._identifying({**environ, "wsgi.input": io.BytesIO(), _RESULT_KEY: found}, lambda *_: None)
        caller = found[0] if found else Unauthorized(REQUIRED, code="identity.no_token")
        if isinstance(caller, Unauthorized):
            raise caller
        return caller

    def _found(self, environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
        try:
            environ[_RESULT_KEY].append(self.authenticate({}, {**environ, _PASSED_KEY: True}))
        except Unauthorized as error:
            environ[_RESULT_KEY].append(error)
        start_response("204 No Content", [])
        return []

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        if environ.get(_PASSED_KEY) is not True:
            raise Unauthorized("this service was started without keystonemiddleware; it cannot authenticate anyone")

        def said(name: str) -> str:
            return str(environ.get(f"HTTP_{name}") or "")

        if "HTTP_X_SERVICE_TOKEN" in environ and said("X_SERVICE_IDENTITY_STATUS") != "Confirmed":
            raise Unauthorized("the service token is not valid", code="identity.service_token")
        if said("X_IDENTITY_STATUS") != "Confirmed":
            given = "HTTP_X_AUTH_TOKEN" in environ
            raise Unauthorized("the token is not valid" if given else REQUIRED, code="identity.token")
        host = self._hosts.host_of(said("X_USER_NAME"), said("X_USER_DOMAIN_ID"))
        if host is not None:
            return _agent_caller(host, said("X_USER_ID"), said("X_USER_NAME"))
        return Caller(
            user_id=said("X_USER_ID"),
            user_name=said("X_USER_NAME"),
            project_id=said("X_PROJECT_ID"),
            project_name=said("X_PROJECT_NAME"),
            roles=_names(said("X_ROLES")),
            system_scope=said("OPENSTACK_SYSTEM_SCOPE") == "all",
            by_service="service" in _names(said("X_SERVICE_ROLES")),
            credentials={"x-auth-token": said("X_AUTH_TOKEN")},
        )


def _agent_caller(host: str, user_id: str, user_name: str) -> Caller:
    """The agent of a host. The roles of its Keystone user are ignored."""
    try:
        check_host_name(host)
    except Invalid as error:
        raise Unauthorized(error.message, code="identity.host") from error
    return Caller(user_id=user_id, user_name=user_name, project_id="", roles=frozenset(), host=host)


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in listed.split(",") if name.strip())
