"""Who is calling, as the identity edge found out and everybody else believes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Caller:
    """One authenticated user in one project. `roles` are names, lower case."""

    user_id: str
    project_id: str
    roles: frozenset[str]
    user_name: str = ""
    project_name: str = ""
    #: A token scoped to the whole system instead of a project.
    system_scope: bool = False
    #: A service sent the request for this user: it came with a service's token beside the user's.
    by_service: bool = False
    #: The agent of this host: it has no roles and no project, and reaches only what is this host's.
    host: str | None = None
    #: The headers that the user proved it by, for requests to other services in the user's name; empty where nobody
    #: asks for any. They are secret, and go no further than the request that they came with.
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
