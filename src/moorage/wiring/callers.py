"""Who is calling, by [identity] mode; and as whom the services of this process call each other.

Our own identity is imported where a process has it: without users nobody needs YAML or bcrypt.
"""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from moorage.config import Config
from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.core.ids import Ids
from moorage.identity.authenticators import (
    EmbeddedTokens,
    HttpBasic,
    NoAuth,
    Nobody,
    TokensOrBasic,
    refuse_beyond_loopback,
)
from moorage.identity.client import PasswordTokens
from moorage.identity.keystone import KeystoneTokens
from moorage.wire.auth import Authenticator
from moorage.wire.client import NoCredentials, TokenSource
from moorage.wire.forwarded import Proxies
from moorage.wire.transports import SocketTransport
from moorage.wiring.parts import Parts

if TYPE_CHECKING:
    from moorage.identity.embedded import EmbeddedIdentity

#: What a process may run that serves no API: nobody's token is judged there.
WITHOUT_API = frozenset({"agent", "accelerator-agent", "dashboard"})


def open_identity(config: Config, clock: Clock, ids: Ids) -> "EmbeddedIdentity | None":
    """Our own users and tokens; None in the modes that have none. Raises `StartError`."""
    identity, runs = config.identity, config.runs
    if identity.mode not in ("embedded", "http_basic") or runs <= WITHOUT_API:
        return None
    if "identity" not in runs:
        raise StartError(
            f"{config.source}: with [identity] mode = {identity.mode} the process that serves "
            f"{', '.join(sorted(runs - WITHOUT_API))} must run identity too, for tokens are signed with a key in its "
            "state directory; add it to [plane] services, or use mode = keystone"
        )
    from moorage.identity.embedded import open_or_create

    return open_or_create(
        config.state,
        clock=clock,
        ids=ids,
        users_file=Path(identity.users_file) if identity.users_file else None,
        token_lifetime=timedelta(seconds=identity.token_lifetime_s),
        service_user=identity.username,
    )


def authenticator_of(config: Config, clock: Clock, own: "EmbeddedIdentity | None", proxies: Proxies) -> Authenticator:
    """Keystone's must also stand around the application (`KeystoneTokens.around`)."""
    identity = config.identity
    if own is not None:
        tokens = EmbeddedTokens(own)
        if identity.mode == "embedded":
            return tokens
        return TokensOrBasic(tokens, HttpBasic(own, clock, proxies=proxies))
    if identity.mode in ("embedded", "http_basic"):
        return Nobody()
    if identity.mode == "none":
        if not identity.allow_none_beyond_loopback:
            refuse_beyond_loopback(config.server.address)
        named = urlsplit(config.base_url).hostname
        return NoAuth(beyond_loopback=identity.allow_none_beyond_loopback, names={named} if named else set())
    return KeystoneTokens(
        auth_url=identity.keystone_url,
        username=identity.username,
        password=identity.password,
        project=identity.project,
    )


def credentials_of(parts: Parts) -> TokenSource:
    """As whom the services of this process call each other."""
    identity = parts.config.identity
    if identity.mode == "none" or parts.config.runs == {"dashboard"}:  # whose requests are its users'
        return NoCredentials()
    password = identity.password
    if not password:
        from moorage.identity.embedded import credentials

        password, _ = credentials(parts.config.state, identity.username)
    keystone = identity.keystone_url.removesuffix("/").removesuffix("/v3")
    return PasswordTokens(
        SocketTransport(keystone) if identity.mode == "keystone" else parts.transport("identity"),
        username=identity.username,
        password=password,
        project=identity.project,
        clock=parts.clock,
    )
