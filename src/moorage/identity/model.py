"""What the database of identity contains: domains, projects, people, groups, roles, application credentials, catalogue.

`Accounts` is all of it at one moment, by id. Records are immutable; the class `Change` lists records to write.
Not here: which changes are allowed (`account_rules`), and SQL (`store`).
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeAlias

from moorage.core.caller import Caller

DOMAIN_ID = "default"
DOMAIN_NAME = "Default"

#: How long after its expiry a token is still accepted together with a service token, as in Keystone.
SERVICE_TOKEN_GRACE = timedelta(hours=48)

#: Roles that the policies of the services know; they are never deleted or renamed. The id of such a role is its name.
STANDARD_ROLES = ("admin", "manager", "member", "reader", "service")

#: The usual and the longest lifetime of an invitation of a user.
INVITATION_S = 72 * 3600
MAX_INVITATION_S = 30 * 24 * 3600

#: The only target of the kind ``system``.
WHOLE_SYSTEM = "all"

#: Attributes of a record that this service only stores, such as a user's ``email``.
Extra: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AccountDomain:
    """A namespace for the names of projects, users and groups."""

    id: str
    name: str
    description: str = ""
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Project:
    """`epoch` counts how often it was disabled; tokens for an earlier epoch stay invalid."""

    id: str
    name: str
    description: str = ""
    enabled: bool = True
    domain_id: str = DOMAIN_ID
    tags: tuple[str, ...] = ()
    extra: Extra = field(default_factory=dict)
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class User:
    """`password_hash` is bcrypt's ``$2b$...``, empty for a user who cannot log in with a password.

    `roles` are the names of the effective roles by project id: `Accounts` computes them, and the database has no column
    for them. `epoch` counts how often the user was disabled; tokens of an earlier epoch stay invalid.
    `password_changed_at` is None for a password from before it was recorded, and for a user without one. `unlocks`
    counts how often the failed logins of the user were forgotten.
    """

    id: str
    name: str
    password_hash: str = field(repr=False)
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    default_project_id: str | None = None
    enabled: bool = True
    domain_id: str = DOMAIN_ID
    extra: Extra = field(default_factory=dict)
    epoch: int = 0
    password_changed_at: datetime | None = None
    unlocks: int = 0

    @property
    def fingerprint(self) -> str:
        """Changes with the password and when the user is disabled, which ends earlier tokens; reveals nothing."""
        return self.fingerprint_in(None)

    def fingerprint_in(self, project: Project | None) -> str:
        """The fingerprint in tokens for `project`: also changes when that project is disabled."""
        epochs = (self.epoch, project.epoch if project else 0)
        suffix = "" if epochs == (0, 0) else f":{epochs[0]}:{epochs[1]}"
        return hashlib.sha256(f"{self.password_hash}{suffix}".encode()).hexdigest()[:12]

    def roles_in(self, project: Project) -> frozenset[str]:
        return self.roles.get(project.id, frozenset())


@dataclass(frozen=True, slots=True)
class Group:
    id: str
    name: str
    description: str = ""
    domain_id: str = DOMAIN_ID
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupMember:
    user_id: str
    group_id: str


@dataclass(frozen=True, slots=True)
class Role:
    id: str
    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class ImpliedRole:
    """Who has the role `prior_id` also has `implied_id`. Not here: what the policies imply (admin, manager, member)."""

    prior_id: str
    implied_id: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """A role of a user or a group (`actor_kind`) on a project, a domain or the whole system (`target_kind`).

    `inherited`, on a domain only: the role is effective in all projects of the domain. Other roles on a domain or on
    the system are recorded and listed, but this service issues no tokens for them.
    """

    role_id: str
    actor_kind: str
    actor_id: str
    target_kind: str
    target_id: str
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class ApplicationCredential:
    """Logs in as its user in one project with some of the user's roles. `secret_hash` is bcrypt's.

    Only an `unrestricted` one may create and delete application credentials.
    """

    id: str
    user_id: str
    project_id: str
    name: str
    secret_hash: str = field(repr=False)
    role_ids: tuple[str, ...]
    description: str = ""
    unrestricted: bool = False
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Invitation:
    """A one-time link with which the user chooses a password. `digest` is the SHA-256 of its token.

    It is valid while the user has this `fingerprint`, so it ends with every new password and when the user is disabled.
    """

    user_id: str
    digest: str
    fingerprint: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Region:
    id: str
    description: str = ""
    parent_region_id: str | None = None


@dataclass(frozen=True, slots=True)
class CatalogService:
    id: str
    type: str
    name: str = ""
    enabled: bool = True
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogEndpoint:
    id: str
    service_id: str
    interface: str
    url: str
    region_id: str | None = None
    enabled: bool = True
    extra: Extra = field(default_factory=dict)


Record: TypeAlias = (
    AccountDomain
    | Project
    | User
    | Group
    | GroupMember
    | Role
    | ImpliedRole
    | Assignment
    | ApplicationCredential
    | Invitation
    | Region
    | CatalogService
    | CatalogEndpoint
)


@dataclass(frozen=True, slots=True)
class Change:
    """Records to write. `changed` replaces the records with their keys. Removed records come with all that refers to
    them.
    """

    added: tuple[Record, ...] = ()
    changed: tuple[Record, ...] = ()
    removed: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Accounts:
    """Everything in the database, by id. Create it with `accounts_of`, which computes the users' roles."""

    users: Mapping[str, User]
    projects: Mapping[str, Project]
    bcrypt_rounds: int = 10  #: of most passwords
    domains: Mapping[str, AccountDomain] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    memberships: frozenset[GroupMember] = frozenset()
    implied_roles: frozenset[ImpliedRole] = frozenset()
    assignments: frozenset[Assignment] = frozenset()
    credentials: Mapping[str, ApplicationCredential] = field(default_factory=dict)
    invitations: Mapping[str, Invitation] = field(default_factory=dict)  #: by the id of the user
    regions: Mapping[str, Region] = field(default_factory=dict)
    services: Mapping[str, CatalogService] = field(default_factory=dict)
    endpoints: Mapping[str, CatalogEndpoint] = field(default_factory=dict)

    @cached_property
    def _users_by_name(self) -> Mapping[tuple[str, str], User]:
        return {(user.domain_id, user.name): user for user in self.users.values()}

    @cached_property
    def _projects_by_name(self) -> Mapping[tuple[str, str], Project]:
        return {(project.domain_id, project.name): project for project in self.projects.values()}

    def user_named(self, name: str, domain_id: str = DOMAIN_ID) -> User | None:
        return self._users_by_name.get((domain_id, name))

    def project_named(self, name: str, domain_id: str = DOMAIN_ID) -> Project | None:
        return self._projects_by_name.get((domain_id, name))

    def is_enabled(self, record: User | Project) -> bool:
        """Whether the record and its domain are enabled."""
        domain = self.domains.get(record.domain_id)
        return record.enabled and (domain is None or domain.enabled)

    def projects_of(self, user: User) -> list[Project]:
        """The enabled projects in which the user has a role, by name."""
        found = [self.projects[each] for each in user.roles if each in self.projects]
        return sorted((project for project in found if self.is_enabled(project)), key=lambda project: project.name)

    def default_project(self, user: User) -> Project | None:
        """The configured default, else the user's only project; None for several projects without a default."""
        projects = self.projects_of(user)
        if user.default_project_id is None:
            return projects[0] if len(projects) == 1 else None
        return next((project for project in projects if project.id == user.default_project_id), None)

    def role_names(self, role_ids: Iterable[str]) -> frozenset[str]:
        """The names of the roles and of all that they imply in the database."""
        return frozenset(self.roles[each].name for each in self.with_implied(role_ids) if each in self.roles)

    def with_implied(self, role_ids: Iterable[str]) -> frozenset[str]:
        found, added = set(role_ids), set(role_ids)
        while added:
            added = {row.implied_id for row in self.implied_roles if row.prior_id in added} - found
            found |= added
        return frozenset(found)


def accounts_of(accounts: Accounts) -> Accounts:
    """`accounts` with the effective roles of each user: direct, through groups, and inherited from the domain."""
    groups_of: dict[str, set[str]] = {}
    for row in accounts.memberships:
        groups_of.setdefault(row.user_id, set()).add(row.group_id)
    granted: dict[tuple[str, str], list[Assignment]] = {}
    for assignment in accounts.assignments:
        granted.setdefault((assignment.actor_kind, assignment.actor_id), []).append(assignment)
    projects_in: dict[str, list[str]] = {}
    for project in accounts.projects.values():
        projects_in.setdefault(project.domain_id, []).append(project.id)

    def roles_of(user_id: str) -> dict[str, frozenset[str]]:
        held: dict[str, set[str]] = {}
        actors = [("user", user_id), *(("group", group_id) for group_id in groups_of.get(user_id, ()))]
        for row in (row for actor in actors for row in granted.get(actor, ())):
            if row.target_kind == "project" and not row.inherited:
                held.setdefault(row.target_id, set()).add(row.role_id)
            elif row.target_kind == "domain" and row.inherited:
                for project_id in projects_in.get(row.target_id, ()):
                    held.setdefault(project_id, set()).add(row.role_id)
        return {project_id: accounts.role_names(role_ids) for project_id, role_ids in held.items()}

    users = {user.id: replace(user, roles=roles_of(user.id)) for user in accounts.users.values()}
    return replace(accounts, users=users)


def caller_for(user: User, project: Project | None) -> Caller:
    """The user as a caller in `project`. Without a project, the caller has no roles."""
    return Caller(
        user_id=user.id,
        user_name=user.name,
        project_id=project.id if project else "",
        project_name=project.name if project else "",
        roles=user.roles_in(project) if project else frozenset(),
    )
