"""The authenticated caller of a request. `moorage.identity` creates it; every service relies on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated user in one project. `roles` are lower-case names."""

    user_id: str
    project_id: str
    roles: frozenset[str]
    user_name: str = ""
    project_name: str = ""
    #: Whether the token is scoped to the whole system instead of a project.
    system_scope: bool = False
    #: Whether a service sent the request for this user, with a service token beside the user's token.
    by_service: bool = False
    #: The host whose agent this is. An agent has no roles and no project, and has access only to its host's resources.
    host: str | None = None
    #: The headers that authenticated the user, for requests to other services in the user's name; empty in identity
    #: mode none. They are secret and are kept no longer than the request.
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_admin(self) -> bool:
        return "admin" in self.roles

    @property
    def is_service(self) -> bool:
        return "service" in self.roles

    def may_see(self, project_id: str) -> bool:
        return self.is_admin or self.is_service or project_id == self.project_id


ANONYMOUS = Caller(user_id="", project_id="", roles=frozenset())
