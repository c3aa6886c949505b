"""Builds the dashboard, which reaches all services as clients do: in this process, or through [endpoints]."""

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from moorage import dashboard
from moorage.config import DASHBOARD_PATH, ENDPOINT_PATHS
from moorage.core.caller import ANONYMOUS, Caller
from moorage.dashboard import routes
from moorage.dashboard.rendering import StaticFiles, Templates
from moorage.dashboard.service import Dashboard, ServiceAccess
from moorage.dashboard.signing_in import SigningIn
from moorage.wire.transports import SocketTransport, Transport
from moorage.wiring.audit import find_all
from moorage.wiring.components import Components


def build_dashboard(parts: Components) -> None:
    here = Path(dashboard.__file__).parent
    files = StaticFiles(here / "static")
    service = Dashboard(
        services=ServiceAccess(_transports(parts), parts.clock),
        signing_in=_signing_in(parts),
        templates=Templates(here / "templates", files.digests),
        files=files,
        clock=parts.clock,
        new_seed=lambda: secrets.token_urlsafe(24),
        find_all=partial(find_all, parts),
        identity_url=parts.config.elsewhere("identity"),
    )
    root = urlsplit(parts.config.server.public_url).path.rstrip("/") + DASHBOARD_PATH
    # The pages themselves check the browser's cookie. The kernel authenticates callers only if sign-in is off.
    asked = (
        parts
        if service.signing_in is None
        else dataclasses.replace(parts, authenticator=_AllowAnonymous(), identify=None)
    )
    asked.serve(DASHBOARD_PATH.strip("/"), routes.dashboard_api(service, root), service, routes.RULES)


class _AllowAnonymous:
    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        return ANONYMOUS


def _transports(parts: Components) -> Callable[[str], Transport | None]:
    @cache
    def transport(service: str) -> Transport | None:
        # The pages of people are for Moorage's own identity service: a Keystone has its own, and mode none no users.
        if service == "identity" and parts.config.identity.mode not in ("embedded", "http_basic"):
            return None
        return parts.transport(service) if service in ENDPOINT_PATHS and parts.has(service) else None

    return transport


def _signing_in(parts: Components) -> SigningIn | None:
    identity = parts.config.identity
    if identity.mode == "none":
        return None
    if identity.mode == "keystone":
        keystone = identity.keystone_url.removesuffix("/").removesuffix("/v3")
        return SigningIn(SocketTransport(keystone, ca_file=parts.config.ca_file), parts.clock)
    return SigningIn(parts.transport("identity"), parts.clock)
