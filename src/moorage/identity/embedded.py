"""Our own identity service: checks passwords and application credentials, and issues and verifies signed tokens.

Users are in a database (`account_database`). Files in the state directory, made at the first start: ``token.key``, and
``credentials.json`` with the plain-text passwords of the first users, for `moorage env` and for the services among
themselves. Both have mode 0600; everyone who can read them is admin. Beside them are ``token.key.others`` (see `keys`)
and ``revoked_tokens`` (see `revocations`).
"""

import base64
import fcntl
import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Forbidden, Unauthorized
from moorage.core.ids import Ids
from moorage.identity.first_start.first_accounts import RetiredFile, fill_empty_database
from moorage.identity.first_start.first_credentials import replace_first_password
from moorage.identity.host_registry import ID_PREFIX, HostIdentity, HostRegistry
from moorage.identity.model import DOMAIN_ID, Accounts, ApplicationCredential, Change, Project, User, caller_for
from moorage.identity.policy import with_implied
from moorage.identity.store.account_database import AccountDatabase
from moorage.identity.tokens.keys import RandomBytes, make_first_key, watch_keys
from moorage.identity.tokens.passwords import check_new_password, hash_password, password_matches
from moorage.identity.tokens.revocations import Revocations
from moorage.identity.tokens.signed_tokens import Claims, TokenSigner
from moorage.identity.tokens.throttle import FailedLogins, LoginThrottle
from moorage.identity.watched_files import WatchedFiles

log = logging.getLogger(__name__)

BCRYPT_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class AuthenticatedCaller:
    """The holder of a valid token, with the token's claims."""

    claims: Claims
    user: User
    project: Project | None
    host: str | None = None  #: set for the agent of a host; `user` then represents the host and has no roles
    #: the application credential that the token was obtained with, and the names of the roles that it passes on
    credential: ApplicationCredential | None = None
    credential_roles: frozenset[str] = frozenset()

    @property
    def roles(self) -> frozenset[str]:
        held = self.user.roles_in(self.project) if self.project else frozenset()
        return held if self.credential is None else with_implied(held) & self.credential_roles

    @property
    def caller(self) -> Caller:
        return replace(caller_for(self.user, self.project), host=self.host, roles=self.roles)


@dataclass(frozen=True)
class IdentitySettings:
    token_lifetime: timedelta = timedelta(hours=1)
    bcrypt_rounds: int = BCRYPT_ROUNDS
    service_user: str | None = (
        None  #: the user that the services log in as; its password cannot be changed over the API
    )
    service_project: str | None = None  #: the project that it logs in to


@dataclass(frozen=True)
class EmbeddedIdentity:
    """Issues tokens for passwords, and identifies callers by their tokens."""

    state: Path
    database: AccountDatabase
    keys: WatchedFiles[TokenSigner]
    revocations: Revocations
    hosts: HostRegistry
    clock: Clock
    random_bytes: RandomBytes
    throttle: LoginThrottle
    settings: IdentitySettings

    def now(self) -> datetime:
        return self.clock.now()

    def accounts(self) -> Accounts:
        return self.database.accounts()

    def check_password(self, user: User | None, password: str, *, named: str, address: str) -> User:
        """Returns the user if the password is right. Raises `Unauthorized` (one message) or `TooManyRequests`.

        `named` is the name given by the caller, for an unknown user (None); `address` is the caller's.
        """
        account = user.id if user else f"?{named}"
        if user is not None:
            self.throttle.apply_unlocks([(user.id, user.unlocks)])
        self.throttle.check(account, address)
        accounts = self.accounts()
        known = user if user is not None and accounts.is_enabled(user) else None
        if not password_matches(known, password, accounts.bcrypt_rounds) or user is None:
            self.throttle.record_failure(account, address)
            raise Unauthorized("user name or password is wrong", code="identity.password")
        self.throttle.record_success(account, address)
        return user

    def failed_logins(self) -> Mapping[str, FailedLogins]:
        """{user: the failures in this process}, of those users that have any."""
        users = self.accounts().users
        self.throttle.apply_unlocks((user.id, user.unlocks) for user in users.values())
        return self.throttle.failures_of_accounts(users)

    def change_password(self, user: User | None, original: str, new: str, *, named: str, address: str) -> None:
        """Changes a password and thereby ends all tokens of the user. Durable when this returns; other processes see it
        within `RELOAD_PERIOD`.

        Raises as `check_password`, `Invalid` for an unacceptable password, and `Forbidden` for `service_user`.
        """
        user = self.check_password(user, original, named=named, address=address)
        if self.is_service_user(user):
            raise Forbidden(
                f"The services of this cloud log in as {user.name} with a password that each of them has; an "
                "administrator can change it for all of them.",
                code="identity.service_user",
            )
        self.set_password(user, self.hash_of(new))

    def is_service_user(self, user: User) -> bool:
        return user.name == self.settings.service_user and user.domain_id == DOMAIN_ID

    def is_service_project(self, project: Project) -> bool:
        return project.name == self.settings.service_project and project.domain_id == DOMAIN_ID

    def hash_of(self, password: str) -> str:
        """Raises `Invalid` for an unacceptable password."""
        check_new_password(password)
        return hash_password(password, self.settings.bcrypt_rounds)

    def set_password(self, user: User, password_hash: str) -> None:
        """Raises `ConcurrentUpdate` if the user has another password by now."""

        def decide(accounts: Accounts) -> tuple[None, Change]:
            now = accounts.users.get(user.id)
            if now is None or now.password_hash != user.password_hash:
                raise ConcurrentUpdate("the user was changed in the meantime; try again")
            after = replace(now, password_hash=password_hash, password_changed_at=self.clock.now())
            return None, Change(changed=(after,))

        self.database.change(decide)
        self.update_first_password(user, None)

    def update_first_password(self, user: User, password: str | None) -> None:
        """Keeps ``credentials.json`` true after `user` got a new password: replaces that of the user of the services,
        which log in with it after their next start, and deletes that of anybody else.
        """
        if user.domain_id == DOMAIN_ID:
            with _exclusive_lock(self.state):
                replace_first_password(self.state, user.name, password if self.is_service_user(user) else None)
        log.info("a user has a new password", extra={"user": user.id})

    def issue_token(
        self, user: User, project: Project | None, methods: tuple[str, ...]
    ) -> tuple[str, AuthenticatedCaller]:
        """A token for the user in that project. Raises `Unauthorized` if the user has no role in it."""
        now = self.clock.now().replace(microsecond=0)
        return self._sign(user, project, methods, expires_at=now + self.settings.token_lifetime)

    def issue_for_credential(self, credential: ApplicationCredential, user: User) -> tuple[str, AuthenticatedCaller]:
        """A token for the holder of an application credential whose secret was checked. It ends with the credential.
        Raises `Unauthorized`.
        """
        accounts = self.accounts()
        expires_at = self.clock.now().replace(microsecond=0) + self.settings.token_lifetime
        if credential.expires_at is not None:
            expires_at = min(expires_at, credential.expires_at)
        return self._sign(
            user,
            accounts.projects.get(credential.project_id),
            ("application_credential",),
            expires_at=expires_at,
            credential=credential,
        )

    def issue_for_host(self, name: str, host: HostIdentity) -> tuple[str, AuthenticatedCaller]:
        """A token for the agent of a host whose secret was checked."""
        expires_at = self.clock.now().replace(microsecond=0) + self.settings.token_lifetime
        return self._sign(_user_for_host(name, host), None, ("host",), expires_at=expires_at, host=name)

    def rescope_token(self, holder: AuthenticatedCaller, project: Project | None) -> tuple[str, AuthenticatedCaller]:
        """A token for another project, with the expiry of the token it is exchanged for."""
        if holder.credential is not None and (project is None or project.id != holder.credential.project_id):
            raise Unauthorized("a token of an application credential is only valid in the project of the credential")
        methods = tuple(sorted({*holder.claims.methods, "token"}))
        first = holder.claims.chain_id or holder.claims.audit_id
        return self._sign(
            holder.user,
            project,
            methods,
            expires_at=holder.claims.expires_at,
            chain_id=first,
            host=holder.host,
            credential=holder.credential,
        )

    def revoke_token(self, holder: AuthenticatedCaller, *, with_descendants: bool) -> None:
        """Revokes a token: here at once, in other processes within `RELOAD_PERIOD`. Durable when this returns.

        `with_descendants` also revokes the tokens it was exchanged for, unless it came from an exchange itself.
        """
        self.revocations.add_revocation(holder.claims, with_descendants=with_descendants)

    def identify(self, token: str, *, grace: timedelta = timedelta(0)) -> AuthenticatedCaller:
        """The holder of the token, with the present roles. Raises `Unauthorized` with the reason."""
        claims = self.keys.value().read_claims(token, self.clock.now(), grace=grace)
        if self.revocations.covers(claims):
            raise Unauthorized("the token was revoked", code="identity.token_revoked")
        if claims.user_id.startswith(ID_PREFIX):
            return self._identify_host(claims)
        try:
            return _identify_person(claims, self.accounts())
        except Unauthorized:
            # Another process may have issued the token for a user or a role that this one has not read yet. Tokens name
            # whole seconds.
            if self.database.read_at >= claims.issued_at + timedelta(seconds=1):
                raise
            self.database.read_now()
            return _identify_person(claims, self.accounts())

    def _identify_host(self, claims: Claims) -> AuthenticatedCaller:
        found = self.hosts.by_id(claims.user_id)
        if found is None:
            raise Unauthorized("the token's host was revoked or enrolled again", code="identity.host_changed")
        name, host = found
        return AuthenticatedCaller(claims, _user_for_host(name, host), None, name)

    def _sign(
        self,
        user: User,
        project: Project | None,
        methods: tuple[str, ...],
        *,
        expires_at: datetime,
        chain_id: str | None = None,
        host: str | None = None,
        credential: ApplicationCredential | None = None,
    ) -> tuple[str, AuthenticatedCaller]:
        accounts = self.accounts()
        if project is not None and not (accounts.is_enabled(project) and user.roles_in(project)):
            raise Unauthorized(f"{user.name} has no role in this project", code="identity.no_role")
        claims = Claims(
            user_id=user.id,
            project_id=project.id if project else None,
            fingerprint=user.fingerprint_in(project),
            issued_at=self.clock.now().replace(microsecond=0),
            expires_at=expires_at,
            methods=methods,
            audit_id=_url_safe(self.random_bytes(16)),
            chain_id=chain_id,
            credential_id=credential.id if credential else None,
        )
        names = accounts.role_names(credential.role_ids) if credential else frozenset()
        holder = AuthenticatedCaller(claims, user, project, host, credential, names)
        return self.keys.value().sign_claims(claims), holder


def open_or_create_identity(
    state: Path,
    *,
    engine: Engine,
    clock: Clock,
    ids: Ids,
    users_file: Path | None = None,
    random_bytes: RandomBytes = secrets.token_bytes,
    settings: IdentitySettings = IdentitySettings(),
) -> EmbeddedIdentity:
    """Opens the identity service in `state`, whose users are in the database of `engine`, which has its tables. The
    first start creates files and users, or imports the users file. Raises `StartError` for unusable files.
    """
    users_file = users_file or state / "users.yaml"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _exclusive_lock(state):
        fill_empty_database(engine, state, users_file, clock, ids, random_bytes, rounds=settings.bcrypt_rounds)
        make_first_key(state, random_bytes)
    return EmbeddedIdentity(
        state=state,
        database=AccountDatabase(engine, clock, RetiredFile(engine, users_file).report_change),
        keys=watch_keys(state, clock),
        revocations=Revocations(state / "revoked_tokens", clock, partial(_exclusive_lock, state)),
        hosts=HostRegistry(state / "hosts.json", clock, ids),
        clock=clock,
        random_bytes=random_bytes,
        throttle=LoginThrottle(clock),
        settings=settings,
    )


def _identify_person(claims: Claims, accounts: Accounts) -> AuthenticatedCaller:
    """Raises `Unauthorized` with the reason."""
    user = accounts.users.get(claims.user_id)
    project = accounts.projects.get(claims.project_id) if claims.project_id is not None else None
    if user is None or not accounts.is_enabled(user) or user.fingerprint_in(project) != claims.fingerprint:
        raise Unauthorized(
            "the token's user was deleted, is or was disabled, or has a new password, or the token's project is or "
            "was disabled",
            code="identity.user_changed",
        )
    if claims.project_id is None:
        return AuthenticatedCaller(claims, user, None)
    if project is None or not accounts.is_enabled(project) or not user.roles_in(project):
        raise Unauthorized(f"{user.name} has no role in the token's project any more", code="identity.no_role")
    if claims.credential_id is None:
        return AuthenticatedCaller(claims, user, project)
    credential = accounts.credentials.get(claims.credential_id)
    if credential is None or credential.user_id != user.id or credential.project_id != project.id:
        raise Unauthorized("the token's application credential was deleted", code="identity.application_credential")
    return AuthenticatedCaller(
        claims, user, project, credential=credential, credential_roles=accounts.role_names(credential.role_ids)
    )


def _user_for_host(name: str, host: HostIdentity) -> User:
    return User(id=host.id, name=f"{ID_PREFIX}{name}", password_hash="", roles={})


def _url_safe(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@contextmanager
def _exclusive_lock(state: Path) -> Iterator[None]:
    """Lets one process write at a time. If several start at once, one creates the files and the others find them."""
    with (state / ".identity.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
