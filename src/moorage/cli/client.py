"""The command line's own way into a running plane: over HTTP, as the admin of its first start."""

from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.identity.client import PasswordTokens
from moorage.identity.embedded import first_credentials
from moorage.wire.client import NoCredentials, ServiceClient, TokenSource
from moorage.wire.transports import SocketTransport


def identity_url(config: Config) -> str:
    """Where clients log in. Raises `StartError` where nobody does, or not with passwords that we know."""
    if config.identity.mode == "none":
        raise StartError("identity mode 'none' knows no users: every caller on this machine is admin, without a token")
    if config.identity.mode == "keystone":
        raise StartError(f"the users of this plane are in Keystone at {config.identity.keystone_url}; log in there")
    return config.endpoints.identity or f"{config.base_url}/identity"


def plane_client(config: Config) -> ServiceClient:
    """A client for the plane's own routes (`/moorage`), with the admin's token."""
    return ServiceClient(SocketTransport(config.base_url), service_type="moorage", credentials=plane_tokens(config))


def plane_tokens(config: Config) -> TokenSource:
    """The admin's, as whom commands call; with Keystone, those of the user that the services call each other as."""
    if config.identity.mode == "none":
        return NoCredentials()
    if config.identity.mode == "keystone" and config.identity.password:
        return _services_user(config)
    auth_url = identity_url(config)
    password, project = first_credentials(config.state, "admin")
    return PasswordTokens(
        SocketTransport(auth_url),
        username="admin",
        password=password,
        project=project,
        clock=SystemClock(),
    )


def _services_user(config: Config) -> TokenSource:
    """Whoever can read the configuration has its password anyway."""
    identity = config.identity
    return PasswordTokens(
        SocketTransport(identity.keystone_url.rstrip("/").removesuffix("/v3")),
        username=identity.username,
        password=identity.password,
        project=identity.project,
        clock=SystemClock(),
    )
