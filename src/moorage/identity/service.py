"""The use cases behind the Keystone v3 routes: logins, validation of tokens, the catalogue, projects and users."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from moorage.core.caller import Caller
from moorage.core.errors import Forbidden, NotFound, Unauthorized
from moorage.identity.embedded import AuthenticatedCaller, EmbeddedIdentity
from moorage.identity.hosts import HostRegistry
from moorage.identity.model import DOMAIN_ID, DOMAIN_NAME, SERVICE_TOKEN_GRACE, Project, User

#: Names in the catalogue, as upstream's services register themselves; `openstack catalog list` shows them.
SERVICE_NAMES = {
    "accelerator": "cyborg",
    "compute": "nova",
    "identity": "keystone",
    "image": "glance",
    "placement": "placement",
    "reservation": "blazar",
}

INTERFACES = ("public", "internal", "admin")


@dataclass(frozen=True, slots=True)
class DomainRef:
    """A domain as named in a request, by id or name; both are None if the request names none."""

    id: str | None = None
    name: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.id == DOMAIN_ID or (self.name or "").casefold() == DOMAIN_NAME.casefold()


@dataclass(frozen=True, slots=True)
class NamedEntity:
    """A user or project as named in a request: by id, or by name and domain."""

    id: str | None
    name: str | None
    domain: DomainRef


@dataclass(frozen=True, slots=True)
class Login:
    """A login attempt. Only the credentials of `methods` are set; `unscoped` asks for a token without a project."""

    methods: tuple[str, ...]
    user: NamedEntity | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    project: NamedEntity | None = None
    unscoped: bool = False
    other_scope: bool = False  #: asks for a domain or the whole system, in which no user of this service has a role


@dataclass(frozen=True, slots=True)
class Endpoint:
    service_type: str
    service_name: str
    region: str
    url: str


@dataclass(frozen=True)
class IdentityService:
    """`endpoints`: {service type: path on this server (``/compute/v2.1``), or a full URL (of a real Glance)}.

    `mount` is the path prefix of this service. The paths in the catalogue are appended to a request's base URL without
    it.
    """

    identity: EmbeddedIdentity
    endpoints: Mapping[str, str]
    region: str = "RegionOne"
    mount: str = "/identity"

    @property
    def hosts(self) -> HostRegistry:
        return self.identity.hosts

    def log_in(self, login: Login, address: str) -> tuple[str, AuthenticatedCaller]:
        """(token, its holder) for a caller at `address`. Raises `Unauthorized` or `TooManyRequests`."""
        if login.other_scope:
            raise Unauthorized("this service has roles in projects only, not in a domain or the whole system")
        if login.token is not None:
            holder = self.identity.identify(login.token)
            if login.user is not None and self._find_user(login.user) != holder.user:
                raise Unauthorized("the token belongs to another user")
            return self.identity.rescope_token(holder, self._wanted_project(login, holder.user))
        user = self._find_user(login.user) if login.user else None
        named = (login.user.id or login.user.name or "") if login.user else ""
        user = self.identity.check_password(user, login.password, named=named, address=address)
        return self.identity.issue_token(user, self._wanted_project(login, user), ("password",))

    def log_in_host(self, name: str, secret: str) -> tuple[str, AuthenticatedCaller]:
        """(token, its holder) for the agent of a host. Raises `Unauthorized`."""
        return self.identity.issue_for_host(name, self.hosts.check_secret(name, secret))

    def now(self) -> datetime:
        return self.identity.now()

    def account_of(self, login: Login) -> User | None:
        """The user that the login names; None if it names an unknown user, or only has a token."""
        return self._find_user(login.user) if login.user else None

    def validate_token(
        self, caller: Caller, subject: str, own_token: str | None, *, privileged: bool, allow_expired: bool
    ) -> AuthenticatedCaller:
        """The holder of a token, for the holder itself and for services. Raises `NotFound` for an invalid token."""
        is_own = own_token is not None and hmac.compare_digest(subject.encode(), own_token.encode())
        grace = SERVICE_TOKEN_GRACE if allow_expired and privileged else timedelta(0)
        holder = self._identify(subject, grace)
        if not (is_own or privileged or holder.user.id == caller.user_id):
            raise Forbidden("You are not authorized to perform the requested action: identity:validate_token.")
        return holder

    def revoke_token(self, caller: Caller, subject: str, *, is_admin: bool, with_descendants: bool) -> None:
        """Revokes a token of the caller, or any token for an admin. Raises `NotFound` for an invalid token."""
        holder = self._identify(subject)
        if not (is_admin or holder.user.id == caller.user_id):
            raise Forbidden("You are not authorized to perform the requested action: identity:revoke_token.")
        self.identity.revoke_token(holder, with_descendants=with_descendants)

    def catalog(self, base_url: str) -> list[Endpoint]:
        """The endpoints. `base_url` is the request's, including our own mount."""
        root = base_url.rstrip("/").removesuffix(self.mount)
        return [
            Endpoint(kind, SERVICE_NAMES.get(kind, kind), self.region, root + at if at.startswith("/") else at)
            for kind, at in self.endpoints.items()
        ]

    def own_projects(self, caller: Caller) -> list[Project]:
        accounts = self.identity.accounts()
        user = accounts.users.get(caller.user_id)
        return accounts.projects_of(user) if user else []

    def list_projects(self, name: str | None) -> list[Project]:
        return [row for row in self.identity.accounts().projects.values() if name in (None, row.name)]

    def get_project(self, caller: Caller, project_id: str, *, privileged: bool) -> Project:
        """The project. Raises `NotFound` for other users' projects unless the caller is `privileged`."""
        project = self.identity.accounts().projects.get(project_id)
        if project is None or not (privileged or project in self.own_projects(caller)):
            raise NotFound(f"Could not find project: {project_id}.")
        return project

    def projects_of(self, caller: Caller, user_id: str, *, privileged: bool) -> list[Project]:
        return self.identity.accounts().projects_of(self.get_user(caller, user_id, privileged=privileged))

    def list_users(self, name: str | None) -> list[User]:
        return [row for row in self.identity.accounts().users.values() if name in (None, row.name)]

    def get_user(self, caller: Caller, user_id: str, *, privileged: bool) -> User:
        user = self.identity.accounts().users.get(user_id)
        if user is None or not (privileged or user.id == caller.user_id):
            raise NotFound(f"Could not find user: {user_id}.")
        return user

    def change_password(self, user_id: str, original: str, new: str, address: str) -> None:
        """Changes a password. As in Keystone, the caller needs the old password and no token. Raises `Unauthorized`,
        `TooManyRequests`, `Invalid`, `Forbidden` or `Conflict`.
        """
        user = self.identity.accounts().users.get(user_id)
        self.identity.change_password(user, original, new, named=user_id, address=address)

    def list_roles(self, name: str | None) -> Sequence[str]:
        """Upstream's roles and the roles in the users file."""
        used = {
            role for user in self.identity.accounts().users.values() for roles in user.roles.values() for role in roles
        }
        return [
            role for role in sorted(used | {"admin", "manager", "member", "reader", "service"}) if name in (None, role)
        ]

    def _identify(self, subject: str, grace: timedelta = timedelta(0)) -> AuthenticatedCaller:
        try:
            return self.identity.identify(subject, grace=grace)
        except Unauthorized as error:
            raise NotFound(f"This is not a recognized token: {error.message}.", code=error.error_code) from error

    def _find_user(self, wanted: NamedEntity) -> User | None:
        accounts = self.identity.accounts()
        if wanted.id is not None:
            return accounts.users.get(wanted.id)
        return accounts.user_named(wanted.name or "") if wanted.domain.is_ours else None

    def _wanted_project(self, login: Login, user: User) -> Project | None:
        """The project to scope the token to. As in Keystone, a login without a scope gets the user's default project,
        and no scope if there is none.
        """
        accounts = self.identity.accounts()
        if login.project is None:
            return None if login.unscoped else accounts.default_project(user)
        wanted = login.project
        if wanted.id is not None:
            project = accounts.projects.get(wanted.id)
        else:
            project = accounts.project_named(wanted.name or "") if wanted.domain.is_ours else None
        if project is None:
            raise Unauthorized(f"{user.name} has no role in this project", code="identity.no_role")
        return project
