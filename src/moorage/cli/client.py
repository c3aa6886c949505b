"""The command line's own way into a running plane: over HTTP, as the admin of its first start."""

from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.identity.client import PasswordTokens
from moorage.identity.embedded import credentials
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport


def base_url(config: Config) -> str:
    return (config.server.public_url or f"http://{config.server.address}:{config.server.port}").rstrip("/")


def identity_url(config: Config) -> str:
    return config.endpoints.identity or f"{base_url(config)}/identity"


def plane_client(config: Config) -> ServiceClient:
    """A client for the plane's own routes (`/moorage`), with the admin's token."""
    password, project = credentials(config.state, "admin")
    tokens = PasswordTokens(
        SocketTransport(identity_url(config)),
        username="admin",
        password=password,
        project=project,
        clock=SystemClock(),
    )
    return ServiceClient(SocketTransport(base_url(config)), service_type="moorage", credentials=tokens)
