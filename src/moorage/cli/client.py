"""The command line's own way into a running plane: over HTTP, as the admin of its first start."""

import json
from dataclasses import dataclass

from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.identity.client import PasswordTokens
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport


@dataclass(frozen=True)
class Credentials:
    username: str
    password: str
    project: str


def base_url(config: Config) -> str:
    return (config.server.public_url or f"http://{config.server.address}:{config.server.port}").rstrip("/")


def identity_url(config: Config) -> str:
    return config.endpoints.identity or f"{base_url(config)}/identity"


def credentials_of(config: Config, user: str) -> Credentials:
    """What the first start noted for `user`. Raises `StartError` where there is no such note."""
    path = config.state / "credentials.json"
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartError(f"{path} cannot be read ({error.strerror}); it is made by the first `moorage up`") from error
    if user not in notes:
        raise StartError(f"{path} knows no user {user!r}; it knows {', '.join(sorted(notes))}")
    return Credentials(user, notes[user]["password"], notes[user]["project"])


def plane_client(config: Config) -> ServiceClient:
    """A client for the plane's own routes (`/moorage`), with the admin's token."""
    admin = credentials_of(config, "admin")
    tokens = PasswordTokens(
        SocketTransport(identity_url(config)),
        username=admin.username,
        password=admin.password,
        project=admin.project,
        clock=SystemClock(),
    )
    return ServiceClient(SocketTransport(base_url(config)), service_type="moorage", credentials=tokens)
