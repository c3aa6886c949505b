"""The services as a signed-in user reaches them: over their public APIs, with the user's own token."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from moorage.core.clock import Clock
from moorage.core.errors import Unauthorized, Unavailable
from moorage.wire.client import ServiceClient
from moorage.wire.transports import Transport

#: Spoken unless a page asks for another: the reservation service's own additions begin at 1.1.
VERSIONS: Mapping[str, str] = {"placement": "1.39", "compute": "2.96", "accelerator": "2.3", "reservation": "1.1"}


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How services are reached. `transport` leads to one by its type; None where nobody serves it."""

    transport: Callable[[str], Transport | None]
    clock: Clock

    def client(self, service_type: str, token: str | None) -> ServiceClient:
        """Raises `Unavailable` for a service that this cloud does not have."""
        transport = self.transport(service_type)
        if transport is None:
            raise Unavailable(
                f"this dashboard reaches no {service_type} service; name it in [plane] services or in [endpoints]",
                code="dashboard.not_served",
            )
        return ServiceClient(
            transport,
            service_type=service_type,
            version=VERSIONS.get(service_type),
            credentials=UserToken(token),
            clock=self.clock,
        )

    def has(self, service_type: str) -> bool:
        return self.transport(service_type) is not None


class UserToken:
    """A `TokenSource` of one token that cannot be renewed: the password is kept nowhere."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """Raises `Unauthorized` after a refusal: the user signs in again."""
        if renew:
            raise Unauthorized("your session is over; sign in again", code="dashboard.session_over")
        return {} if self._token is None else {"x-auth-token": self._token}
