"""Callers who come with a token of a real Keystone, through keystonemiddleware (the extra ``keystone``).

The middleware stands around the whole WSGI application (`KeystoneTokens.around`): it removes every identity header that a
client sent, asks Keystone about the tokens (and remembers the answers), and writes what Keystone said into the
request's environment. The authenticator believes only a request that went through it.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage.core.caller import Caller
from moorage.core.errors import StartError, Unauthorized
from moorage.identity.authenticators import REQUIRED
from moorage.wire.app import WsgiApp

#: Without the prefix ``HTTP_`` no client can set it.
_PASSED = "moorage.keystone"
#: What `KeystoneTokens.identify` has the middleware call it back with.
_FOUND = "moorage.keystone.found"


class KeystoneTokens:
    """An `Authenticator`; `around` must wrap the application, or nobody is let in."""

    def __init__(
        self,
        *,
        auth_url: str,
        username: str,
        password: str,
        project: str = "service",
        user_domain_id: str = "default",
        project_domain_id: str = "default",
        www_authenticate_uri: str | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """`auth_url` with ``/v3``. `more`: options of ``[keystone_authtoken]``, such as ``memcached_servers``."""
        self._options: dict[str, object] = {
            "auth_type": "password",
            "auth_url": auth_url,
            "www_authenticate_uri": www_authenticate_uri or auth_url,
            "username": username,
            "password": password,
            "project_name": project,
            "user_domain_id": user_domain_id,
            "project_domain_id": project_domain_id,
            # We word refusals ourselves, and version documents are for everybody.
            "delay_auth_decision": True,
            "service_token_roles": "service",
            "service_token_roles_required": True,
            **(more or {}),
        }
        self._identifying: WsgiApp | None = None

    def around(self, app: WsgiApp) -> WsgiApp:
        """`app` behind keystonemiddleware. Raises `StartError` where that is not installed."""
        try:
            from keystonemiddleware import auth_token
        except ImportError as error:
            raise StartError(
                "identity mode 'keystone' needs keystonemiddleware; install it: pip install 'moorage[keystone]'"
            ) from error

        def marked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            environ[_PASSED] = True
            return app(environ, start_response)

        protocol: WsgiApp = auth_token.AuthProtocol(marked, dict(self._options))
        self._identifying = auth_token.AuthProtocol(self._found, dict(self._options))
        return protocol

    def identify(self, environ: Mapping[str, Any]) -> Caller:
        """Who sent a request, before it goes through `around`. Raises `Unauthorized`."""
        found: list[Caller | Unauthorized] = []
        if self._identifying is not None:
            # The middleware wants to know what it could read; nobody reads the body here.
            self._identifying({**environ, "wsgi.input": io.BytesIO(), _FOUND: found}, lambda *_: None)
        caller = found[0] if found else Unauthorized(REQUIRED, code="identity.no_token")
        if isinstance(caller, Unauthorized):
            raise caller
        return caller

    def _found(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            environ[_FOUND].append(self.authenticate({}, {**environ, _PASSED: True}))
        except Unauthorized as error:
            environ[_FOUND].append(error)
        start_response("204 No Content", [])
        return []

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        if environ.get(_PASSED) is not True:
            raise Unauthorized("this service was set up without keystonemiddleware; nobody can be recognised")

        def said(name: str) -> str:
            return str(environ.get(f"HTTP_{name}") or "")

        if "HTTP_X_SERVICE_TOKEN" in environ and said("X_SERVICE_IDENTITY_STATUS") != "Confirmed":
            raise Unauthorized("the service token is not in force", code="identity.service_token")
        if said("X_IDENTITY_STATUS") != "Confirmed":
            given = "HTTP_X_AUTH_TOKEN" in environ
            raise Unauthorized("the token is not in force" if given else REQUIRED, code="identity.token")
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


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in listed.split(",") if name.strip())
