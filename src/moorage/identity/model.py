"""Users, projects and roles of the users file. There is one domain, ``default``, and there are no groups."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from moorage.core.caller import Caller

DOMAIN_ID = "default"
DOMAIN_NAME = "Default"

#: How long after its expiry a token is still accepted together with a service token, as in Keystone.
SERVICE_TOKEN_GRACE = timedelta(hours=48)


@dataclass(frozen=True, slots=True)
class Project:
    id: str
    name: str
    description: str = ""
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class User:
    """`roles` are by project id; `password_hash` is bcrypt's ``$2b$...``."""

    id: str
    name: str
    password_hash: str = field(repr=False)
    roles: Mapping[str, frozenset[str]]
    default_project_id: str | None = None
    enabled: bool = True

    @property
    def fingerprint(self) -> str:
        """Changes with the password, which ends tokens issued for the old one; reveals nothing about it."""
        return hashlib.sha256(self.password_hash.encode()).hexdigest()[:12]

    def roles_in(self, project: Project) -> frozenset[str]:
        return self.roles.get(project.id, frozenset())


@dataclass(frozen=True)
class Accounts:
    """The content of a users file, by id."""

    users: Mapping[str, User]
    projects: Mapping[str, Project]
    bcrypt_rounds: int = 10  #: of most passwords

    def user_named(self, name: str) -> User | None:
        return next((user for user in self.users.values() if user.name == name), None)

    def project_named(self, name: str) -> Project | None:
        return next((project for project in self.projects.values() if project.name == name), None)

    def projects_of(self, user: User) -> list[Project]:
        """The enabled projects in which the user has a role, in the order of the file."""
        return [project for project in self.projects.values() if project.enabled and user.roles_in(project)]

    def default_project(self, user: User) -> Project | None:
        """The configured default, else the user's only project; None for several projects without a default."""
        projects = self.projects_of(user)
        if user.default_project_id is None:
            return projects[0] if len(projects) == 1 else None
        return next((project for project in projects if project.id == user.default_project_id), None)


def caller_for(user: User, project: Project | None) -> Caller:
    """The user as a caller in `project`. Without a project, the caller has no roles."""
    return Caller(
        user_id=user.id,
        user_name=user.name,
        project_id=project.id if project else "",
        project_name=project.name if project else "",
        roles=user.roles_in(project) if project else frozenset(),
    )
