"""Authentication by [identity] mode: how callers are authenticated, and how services and agents call each other.

The built-in identity service is imported only where it is needed, since it needs YAML and bcrypt.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from moorage.config import Config
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, StartError
from moorage.core.ids import Ids
from moorage.identity.authentication.authenticators import (
    EmbeddedTokens,
    HttpBasic,
    NoAuth,
    RejectEveryone,
    TokensOrBasic,
    refuse_beyond_loopback,
)
from moorage.identity.authentication.keystone import KeystoneTokens, parse_host_users
from moorage.identity.authentication.membership import EmbeddedMembership, EveryoneIsAdmin, KeystoneMembership
from moorage.identity.client import PasswordTokens
from moorage.identity.host_credential import HostTokens, InProcessHostTokens, read_credential
from moorage.wire.client import NoCredentials, ServiceClient, TokenSource
from moorage.wire.forwarded import TrustedProxies
from moorage.wire.http import Authenticator
from moorage.wire.transports import SocketTransport
from moorage.wiring.components import Components

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from moorage.identity.embedded import EmbeddedIdentity
    from moorage.reservation.leases.calendar_service import Membership

#: Services that are agents of hosts; they call with their hosts' credentials.
AGENTS = frozenset({"agent", "accelerator-agent"})

#: Services without an API, which need no authentication of callers.
WITHOUT_API = AGENTS | {"dashboard"}


def open_identity(
    config: Config, clock: Clock, ids: Ids, open_database: "Callable[[str], Engine]"
) -> "EmbeddedIdentity | None":
    """The built-in users and tokens; None in modes without them. `open_database` returns the migrated database of a
    service. Raises `StartError`.
    """
    identity, runs = config.identity, config.runs
    if identity.mode not in ("embedded", "http_basic") or runs <= WITHOUT_API:
        return None
    if "identity" not in runs:
        raise StartError(
            f"{config.source}: with [identity] mode = {identity.mode} the process that serves "
            f"{', '.join(sorted(runs - WITHOUT_API))} must also run identity, because the key that signs tokens is in "
            "its state directory; add it to [plane] services, or use mode = keystone"
        )
    from moorage.identity.embedded import IdentitySettings, open_or_create_identity

    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open_or_create_identity(
        config.state,
        engine=open_database("identity"),
        clock=clock,
        ids=ids,
        users_file=Path(identity.users_file) if identity.users_file else None,
        settings=IdentitySettings(
            timedelta(seconds=identity.token_lifetime_s),
            service_user=identity.username,
            service_project=identity.project,
        ),
    )


def authenticator_of(
    config: Config, clock: Clock, own: "EmbeddedIdentity | None", proxies: TrustedProxies
) -> Authenticator:
    """The authenticator. Keystone's must also wrap the application (`KeystoneTokens.wrap`)."""
    identity = config.identity
    if own is not None:
        tokens = EmbeddedTokens(own)
        if identity.mode == "embedded":
            return tokens
        return TokensOrBasic(tokens, HttpBasic(own, clock, proxies=proxies))
    if identity.mode in ("embedded", "http_basic"):
        return RejectEveryone()
    if identity.mode == "none":
        if not identity.allow_none_beyond_loopback:
            refuse_beyond_loopback(config.server.address)
        named = urlsplit(config.base_url).hostname
        return NoAuth(
            beyond_loopback=identity.allow_none_beyond_loopback,
            names={named} if named else set(),
            origins=config.cors_origins,
        )
    hosts = parse_host_users(identity.host_users, identity.host_users_domain, f"{config.source}: [identity] host_users")
    if not config.runs <= WITHOUT_API and (host := hosts.host_of(identity.username, hosts.domain_id)):
        raise StartError(
            f"{config.source}: [identity] host_users makes {identity.username}, the user with which services call each "
            f"other, the agent of host {host}; take another pattern"
        )
    return KeystoneTokens(
        auth_url=identity.keystone_url,
        username=identity.username,
        password=identity.password,
        project=identity.project,
        hosts=hosts,
        more={} if config.ca_file is None else {"cafile": str(config.ca_file)},
    )


def credentials_of(parts: Components) -> TokenSource:
    """The credentials with which the services of this process call each other."""
    identity = parts.config.identity
    # The dashboard calls with its users' tokens, and agents with their hosts'.
    if identity.mode == "none" or parts.config.runs <= WITHOUT_API:
        return NoCredentials()
    password = identity.password
    if not password:
        from moorage.identity.first_start.first_credentials import first_credentials

        password, _ = first_credentials(parts.config.state, identity.username)
    return _with_password(parts, identity.username, password)


def host_credentials_of(parts: Components) -> Callable[[str], TokenSource]:
    """{host: credentials of its agent}, as a function. Raises `StartError` if a host has no credential."""
    config, own = parts.config, parts.identity
    if config.identity.mode == "none":
        return lambda _host: NoCredentials()
    if own is not None:
        own.hosts.enrol_own_hosts(config.hosts)
        return lambda host: InProcessHostTokens(own, host, parts.clock)
    if config.identity.mode == "keystone":
        if not config.runs <= WITHOUT_API:
            return lambda _host: parts.credentials  # this process has all rights anyway
        return lambda host: _user_of(parts, host)
    return lambda host: _enrolled(parts, host)


def _enrolled(parts: Components, host: str) -> TokenSource:
    config = parts.config
    path = config.credential_of(host)
    if read_credential(path, host) is not None:
        return HostTokens(path, host, parts.transport("identity"), parts.clock)
    remedy = (
        f"run `moorage host enrol {host}` on the controller, and pass its output to `moorage host join` on this host"
    )
    # A password in [identity] does not stand in: it is a user's, who may act for more than one host.
    raise StartError(f"host {host} has no credential ({path}): {remedy}")


def _user_of(parts: Components, host: str) -> TokenSource:
    """Credentials of the Keystone user of this host. Raises `StartError`."""
    identity = parts.config.identity
    if not identity.password:
        raise StartError(
            f"{parts.config.source}: [identity] password is empty; set the password of the Keystone user for host "
            f"{host}"
        )
    tokens = _with_password(parts, identity.username.replace("{host}", host), identity.password)

    def refuse_rights() -> None:
        try:
            held = tokens.current_token().roles & {"admin", "service"}
        except MoorageError:
            return  # the agent waits for Keystone and logs it
        if held:
            raise StartError(
                f"{parts.config.source}: the agent of host {host} would call as {identity.username}, who has the role "
                f"{' and '.join(sorted(held))} and may act for every host: give the host a user of its own without "
                "these roles, and name that user in [identity] host_users of the services"
            )

    parts.plane.starts.append(refuse_rights)
    return tokens


def membership_of(parts: Components) -> "Membership":
    """Tells which roles a user has now."""
    identity = parts.config.identity
    if parts.identity is not None:
        return EmbeddedMembership(parts.identity)
    if identity.mode != "keystone":
        return EveryoneIsAdmin()
    keystone = SocketTransport(_keystone(parts), ca_file=parts.config.ca_file)
    client = ServiceClient(keystone, service_type="identity", credentials=parts.credentials, clock=parts.clock)
    return KeystoneMembership(client)


def _keystone(parts: Components) -> str:
    """Its URL without ``/v3``."""
    return parts.config.identity.keystone_url.removesuffix("/").removesuffix("/v3")


def _with_password(parts: Components, username: str, password: str) -> PasswordTokens:
    identity = parts.config.identity
    return PasswordTokens(
        SocketTransport(_keystone(parts), ca_file=parts.config.ca_file)
        if identity.mode == "keystone"
        else parts.transport("identity"),
        username=username,
        password=password,
        project=identity.project,
        clock=parts.clock,
    )
