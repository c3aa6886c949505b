"""What every page of the dashboard is given: the ways to the services, who signs people in, and the templates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Unauthorized, Unavailable
from moorage.dashboard.rendering import StaticFiles, Templates
from moorage.dashboard.signing_in import Person, ProjectChoice, SigningIn
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


@dataclass(frozen=True)
class Dashboard:
    """`signing_in` is None where nobody signs in and everybody on this machine is admin."""

    ways: ServiceAccess
    signing_in: SigningIn | None
    templates: Templates
    files: StaticFiles
    clock: Clock
    new_seed: Callable[[], str]

    def person(self, token: str | None, caller: Caller) -> Person | None:
        """Who looks at a page; None where they must sign in first.

        `caller` is what the kernel found out itself, which counts only where there are no tokens. Raises
        `Unauthorized` for a token that is over.
        """
        if self.signing_in is not None:
            return self.signing_in.whose(token) if token else None
        if not caller.user_id:
            raise Unauthorized("without authentication only the machine of the plane itself is served")
        here = ProjectChoice(caller.project_id, caller.project_name)
        return Person(caller.user_name, here, caller.roles, (here,))
