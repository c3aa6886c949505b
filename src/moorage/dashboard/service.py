"""The dashboard's dependencies: clients for the services, sign-in, templates and static files."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Unauthorized, Unavailable
from moorage.dashboard.rendering import StaticFiles, Templates
from moorage.dashboard.signing_in import Names, Person, ProjectChoice, SigningIn, own_names
from moorage.wire.client import ServiceClient
from moorage.wire.transports import Transport

#: API versions to request. The reservation service's own extensions begin at 1.1.
VERSIONS: Mapping[str, str] = {"placement": "1.39", "compute": "2.96", "accelerator": "2.3", "reservation": "1.1"}


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Clients for the services. `transport` maps a service type to its transport, or to None if there is no service."""

    transport: Callable[[str], Transport | None]
    clock: Clock

    def client(self, service_type: str, token: str | None) -> ServiceClient:
        """Raises `Unavailable` if this cloud has no such service."""
        transport = self.transport(service_type)
        if transport is None:
            raise Unavailable(
                f"this dashboard has no {service_type} service; add it to [plane] services or to [endpoints]",
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
    """A `TokenSource` for one token. It cannot renew the token, since no password is stored."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        """Raises `Unauthorized` when asked to renew: the user must sign in again."""
        if renew:
            raise Unauthorized("your session has ended; sign in again", code="dashboard.session_over")
        return {} if self._token is None else {"x-auth-token": self._token}


class AuditFinding(Protocol):
    """A finding of `moorage.audit`, which the dashboard does not import."""

    @property
    def kind(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def where(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def advice(self) -> str: ...


@dataclass(frozen=True)
class Dashboard:
    """`signing_in` is None if sign-in is off, in which case everyone on this machine is an administrator.

    `find_all` audits the services with the given clients ({service type: client}, None for a missing service).
    """

    services: ServiceAccess
    signing_in: SigningIn | None
    templates: Templates
    files: StaticFiles
    clock: Clock
    new_seed: Callable[[], str]
    find_all: Callable[[Callable[[str], ServiceClient | None]], Sequence[AuditFinding]]
    #: Where clients find the identity service, if it is not where they find the dashboard.
    identity_url: str = ""
    #: An audit reads all data, so a process runs one at a time.
    audit_lock: threading.Lock = field(default_factory=threading.Lock)

    def person(self, token: str | None, caller: Caller) -> Person | None:
        """The signed-in user; None if the user must sign in first.

        `caller` is the WSGI kernel's own authentication and is used only if there are no tokens. Raises `Unauthorized`
        for an expired token.
        """
        if self.signing_in is not None:
            return self.signing_in.person_of_token(token) if token else None
        if not caller.user_id:
            raise Unauthorized("without authentication, only requests from this machine are served")
        here = ProjectChoice(caller.project_id, caller.project_name)
        return Person(caller.user_name, here, caller.roles, (here,), user_id=caller.user_id)

    def names(self, person: Person) -> Names:
        """The names of projects and users that this person may know."""
        return own_names(person) if self.signing_in is None else self.signing_in.names(person)
