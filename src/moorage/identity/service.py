"""The use cases behind the Keystone v3 routes: logins, validation of tokens, and what callers may read.

Not here: changes of accounts, roles, credentials and the catalogue, which have services of their own.
"""

import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from moorage.core.caller import Caller
from moorage.core.errors import Forbidden, NotFound, Unauthorized
from moorage.identity.accounts.account_rules import find
from moorage.identity.accounts.account_service import AccountService
from moorage.identity.accounts.catalog_service import CatalogEditor
from moorage.identity.accounts.credential_service import CredentialService
from moorage.identity.accounts.invitation_service import InvitationService
from moorage.identity.accounts.role_service import RoleService
from moorage.identity.embedded import AuthenticatedCaller, EmbeddedIdentity
from moorage.identity.host_registry import HostRegistry
from moorage.identity.model import (
    DOMAIN_ID,
    SERVICE_TOKEN_GRACE,
    AccountDomain,
    Accounts,
    ApplicationCredential,
    Project,
    User,
)
from moorage.identity.oidc.settings import OidcSettings


@dataclass(frozen=True, slots=True)
class DomainRef:
    """A domain as named in a request, by id or name; both are None if the request names none."""

    id: str | None = None
    name: str | None = None

    def find_in(self, accounts: Accounts) -> AccountDomain | None:
        """Names differ in more than their case, except that of the default domain, which clients write in both ways."""
        if self.id is not None:
            return accounts.domains.get(self.id)
        name = self.name or ""
        if name.casefold() == accounts.domains[DOMAIN_ID].name.casefold():
            return accounts.domains[DOMAIN_ID]
        return next((domain for domain in accounts.domains.values() if domain.name == name), None)


@dataclass(frozen=True, slots=True)
class NamedEntity:
    """A user or project as named in a request: by id, or by name and domain."""

    id: str | None
    name: str | None
    domain: DomainRef


@dataclass(frozen=True, slots=True)
class Login:
    """A login attempt. Only the credentials of `methods` are set; `unscoped` asks for a token without a project.

    `credential` is an application credential as named in a request: by id, or by name and its `user`.
    """

    methods: tuple[str, ...]
    user: NamedEntity | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    credential: NamedEntity | None = None
    secret: str = field(default="", repr=False)
    project: NamedEntity | None = None
    unscoped: bool = False
    other_scope: bool = False  #: asks for a domain or the whole system, for which this service issues no tokens


class ProviderSignIn(Protocol):
    """`moorage.identity.oidc.sign_in`, which is imported only if there is a provider."""

    @property
    def settings(self) -> OidcSettings: ...
    def authorization_url(self, secret: str) -> str: ...
    def sign_in_with_code(
        self, secret: str, state: str, code: str, issuer: str | None, address: str
    ) -> tuple[str, AuthenticatedCaller]: ...
    def sign_in_with_id_token(self, id_token: str, address: str) -> tuple[str, AuthenticatedCaller]: ...


@dataclass(frozen=True)
class IdentityService:
    """`catalog` and the fields after it change what is in the database. `oidc` is None without an OpenID provider."""

    identity: EmbeddedIdentity
    catalog: CatalogEditor
    people: AccountService
    roles: RoleService
    credentials: CredentialService
    invitations: InvitationService
    oidc: ProviderSignIn | None = None

    @property
    def hosts(self) -> HostRegistry:
        return self.identity.hosts

    def log_in(self, login: Login, address: str) -> tuple[str, AuthenticatedCaller]:
        """(token, its holder) for a caller at `address`. Raises `Unauthorized` or `TooManyRequests`."""
        if login.other_scope:
            raise Unauthorized("this service issues tokens for projects only, not for a domain or the whole system")
        if "application_credential" in login.methods:
            return self._log_in_credential(login, address)
        if login.token is not None:
            holder = self.identity.identify(login.token)
            if login.user is not None and self._find_user(login.user) != holder.user:
                raise Unauthorized("the token belongs to another user")
            if holder.credential is not None and login.project is None:
                return self.identity.rescope_token(holder, holder.project)
            return self.identity.rescope_token(holder, self._wanted_project(login, holder.user))
        user = self._find_user(login.user) if login.user else None
        named = (login.user.id or login.user.name or "") if login.user else ""
        user = self.identity.check_password(user, login.password, named=named, address=address)
        return self.identity.issue_token(user, self._wanted_project(login, user), ("password",))

    def _log_in_credential(self, login: Login, address: str) -> tuple[str, AuthenticatedCaller]:
        """Raises `Unauthorized` also for a scope, since a credential has its own."""
        if len(login.methods) > 1 or login.project is not None or login.unscoped:
            raise Unauthorized("an application credential is used alone and without a scope, because it has its own")
        named = ""
        if login.credential is not None:
            named = login.credential.id or login.credential.name or ""
        found, user = self.credentials.check_secret(
            self._find_credential(login), login.secret, named=named, address=address
        )
        return self.identity.issue_for_credential(found, user)

    def log_in_host(self, name: str, secret: str) -> tuple[str, AuthenticatedCaller]:
        """(token, its holder) for the agent of a host. Raises `Unauthorized`."""
        return self.identity.issue_for_host(name, self.hosts.check_secret(name, secret))

    def now(self) -> datetime:
        return self.identity.now()

    def account_of(self, login: Login) -> User | None:
        """The user that the login names; None if it names an unknown user, or only has a token."""
        if login.user is not None:
            return self._find_user(login.user)
        credential = self._find_credential(login)
        return self.identity.accounts().users.get(credential.user_id) if credential else None

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

    def own_projects(self, caller: Caller) -> list[Project]:
        accounts = self.identity.accounts()
        user = accounts.users.get(caller.user_id)
        return accounts.projects_of(user) if user else []

    def get_project(self, caller: Caller, project_id: str, *, privileged: bool) -> Project:
        """The project. Raises `NotFound` for other users' projects unless the caller is `privileged`."""
        project = self.identity.accounts().projects.get(project_id)
        if project is None or not (privileged or project in self.own_projects(caller)):
            raise NotFound(f"Could not find project: {project_id}.")
        return project

    def projects_of(self, caller: Caller, user_id: str, *, privileged: bool) -> list[Project]:
        return self.identity.accounts().projects_of(self.get_user(caller, user_id, privileged=privileged))

    def get_user(self, caller: Caller, user_id: str, *, privileged: bool) -> User:
        if not (privileged or user_id == caller.user_id):
            raise NotFound(f"Could not find user: {user_id}.")
        return find(self.identity.accounts().users, user_id, "user")

    def change_password(self, user_id: str, original: str, new: str, address: str) -> None:
        """Changes a password. As in Keystone, the caller needs the old password and no token. Raises `Unauthorized`,
        `TooManyRequests`, `Invalid` or `Forbidden`.
        """
        user = self.identity.accounts().users.get(user_id)
        self.identity.change_password(user, original, new, named=user_id, address=address)

    def _identify(self, subject: str, grace: timedelta = timedelta(0)) -> AuthenticatedCaller:
        try:
            return self.identity.identify(subject, grace=grace)
        except Unauthorized as error:
            raise NotFound(f"This is not a recognized token: {error.message}.", code=error.error_code) from error

    def holder_of(self, own_token: str | None) -> AuthenticatedCaller:
        """The holder of the token of an authenticated request. Raises `Forbidden` for a request without a token."""
        if own_token is None:
            raise Forbidden("This request needs a token: an application credential is created with the rights of one.")
        return self.identity.identify(own_token)

    def _find_user(self, wanted: NamedEntity) -> User | None:
        accounts = self.identity.accounts()
        if wanted.id is not None:
            return accounts.users.get(wanted.id)
        domain = wanted.domain.find_in(accounts)
        return accounts.user_named(wanted.name or "", domain.id) if domain else None

    def _find_credential(self, login: Login) -> ApplicationCredential | None:
        accounts, wanted = self.identity.accounts(), login.credential
        if wanted is None:
            return None
        if wanted.id is not None:
            return accounts.credentials.get(wanted.id)
        user = self._find_user(login.user) if login.user else None
        rows = accounts.credentials.values() if user else ()
        return next((row for row in rows if user and (row.user_id, row.name) == (user.id, wanted.name)), None)

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
            domain = wanted.domain.find_in(accounts)
            project = accounts.project_named(wanted.name or "", domain.id) if domain else None
        if project is None:
            raise Unauthorized(f"{user.name} has no role in this project", code="identity.no_role")
        return project
