"""Our own identity service: checks passwords against the users file, and issues and verifies signed tokens.

Files in the state directory, made at the first start: ``users.yaml`` (unless configured elsewhere), ``token.key``, and
``credentials.json`` with the plain-text passwords of the first users, for `moorage env` and for the services among
themselves. All three have mode 0600; everyone who can read them is admin. Beside them are ``token.key.others`` (see
`keys`) and ``revoked_tokens`` (see `revocations`).
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

import orjson
import yaml

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Forbidden, StartError, Unauthorized
from moorage.core.ids import Ids
from moorage.durable import write_durably
from moorage.identity.hosts import ID_PREFIX, HostIdentity, HostRegistry
from moorage.identity.keys import RandomBytes, make_first_key, watch_keys
from moorage.identity.model import Accounts, Project, User, caller_for
from moorage.identity.revocations import Revocations
from moorage.identity.throttle import LoginThrottle
from moorage.identity.tokens import Claims, TokenSigner
from moorage.identity.users import UsersFile, check_new_password, hash_password, password_matches
from moorage.identity.watched_files import WatchedFiles

log = logging.getLogger(__name__)

BCRYPT_ROUNDS = 10

#: Projects and users of the first start; the first project of a user is its default.
FIRST_PROJECTS = ("admin", "demo", "service")
FIRST_USERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "admin": {"admin": ("admin",), "demo": ("admin",)},
    "demo": {"demo": ("member",)},
    "moorage": {"service": ("service", "admin")},
}

_HEADER = """\
# The users of this plane. The file is read again within a second after a change; a faulty change is logged and ignored.
# A password is a bcrypt hash: `htpasswd -nBC 10 NAME` prints one. The services of the plane log in as the user moorage.
"""


@dataclass(frozen=True, slots=True)
class AuthenticatedCaller:
    """The holder of a valid token, with the token's claims."""

    claims: Claims
    user: User
    project: Project | None
    host: str | None = None  #: set for the agent of a host; `user` then represents the host and has no roles

    @property
    def roles(self) -> frozenset[str]:
        return self.user.roles_in(self.project) if self.project else frozenset()

    @property
    def caller(self) -> Caller:
        return replace(caller_for(self.user, self.project), host=self.host)


@dataclass(frozen=True)
class IdentitySettings:
    token_lifetime: timedelta = timedelta(hours=1)
    bcrypt_rounds: int = BCRYPT_ROUNDS
    service_user: str | None = (
        None  #: the user that the services log in as; its password cannot be changed over the API
    )


@dataclass(frozen=True)
class EmbeddedIdentity:
    """Issues tokens for passwords, and identifies callers by their tokens."""

    state: Path
    users: UsersFile
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
        return self.users.accounts()

    def check_password(self, user: User | None, password: str, *, named: str, address: str) -> User:
        """Returns the user if the password is right. Raises `Unauthorized` (one message) or `TooManyRequests`.

        `named` is the name given by the caller, for an unknown user (None); `address` is the caller's.
        """
        account = user.id if user else f"?{named}"
        self.throttle.check(account, address)
        if not password_matches(user, password, self.accounts().bcrypt_rounds) or user is None:
            self.throttle.record_failure(account, address)
            raise Unauthorized("user name or password is wrong", code="identity.password")
        self.throttle.record_success(account, address)
        return user

    def change_password(self, user: User | None, original: str, new: str, *, named: str, address: str) -> None:
        """Changes a password and thereby ends all tokens of the user. Durable when this returns; other processes see it
        within `RELOAD_PERIOD`.

        Raises as `check_password` and `UsersFile.set_password`, `Invalid` for an unacceptable password, and `Forbidden`
        for `service_user`.
        """
        user = self.check_password(user, original, named=named, address=address)
        check_new_password(new)
        if user.name == self.settings.service_user:
            raise Forbidden(
                f"The services of this cloud log in as {user.name} with a password that each of them has; an "
                "administrator can change it for all of them.",
                code="identity.service_user",
            )
        changed = hash_password(new, self.settings.bcrypt_rounds)
        with _exclusive_lock(self.state):
            self.users.set_password(user, changed)
            _delete_first_password(self.state / "credentials.json", user.name)
        log.info("a user has a new password", extra={"user": user.id})

    def issue_token(
        self, user: User, project: Project | None, methods: tuple[str, ...]
    ) -> tuple[str, AuthenticatedCaller]:
        """A token for the user in that project. Raises `Unauthorized` if the user has no role in it."""
        now = self.clock.now().replace(microsecond=0)
        return self._sign(user, project, methods, expires_at=now + self.settings.token_lifetime)

    def issue_for_host(self, name: str, host: HostIdentity) -> tuple[str, AuthenticatedCaller]:
        """A token for the agent of a host whose secret was checked."""
        expires_at = self.clock.now().replace(microsecond=0) + self.settings.token_lifetime
        return self._sign(_user_for_host(name, host), None, ("host",), expires_at=expires_at, host=name)

    def rescope_token(self, holder: AuthenticatedCaller, project: Project | None) -> tuple[str, AuthenticatedCaller]:
        """A token for another project, with the expiry of the token it is exchanged for."""
        methods = tuple(sorted({*holder.claims.methods, "token"}))
        first = holder.claims.chain_id or holder.claims.audit_id
        return self._sign(
            holder.user, project, methods, expires_at=holder.claims.expires_at, chain_id=first, host=holder.host
        )

    def revoke_token(self, holder: AuthenticatedCaller, *, with_descendants: bool) -> None:
        """Revokes a token: here at once, in other processes within `RELOAD_PERIOD`. Durable when this returns.

        `with_descendants` also revokes the tokens it was exchanged for, unless it came from an exchange itself.
        """
        self.revocations.add_revocation(holder.claims, with_descendants=with_descendants)

    def identify(self, token: str, *, grace: timedelta = timedelta(0)) -> AuthenticatedCaller:
        """The holder of the token, with the roles of the present users file. Raises `Unauthorized` with the reason."""
        claims = self.keys.value().read_claims(token, self.clock.now(), grace=grace)
        if self.revocations.covers(claims):
            raise Unauthorized("the token was revoked", code="identity.token_revoked")
        if claims.user_id.startswith(ID_PREFIX):
            return self._identify_host(claims)
        accounts = self.users.accounts()
        user = accounts.users.get(claims.user_id)
        if user is None or not user.enabled or user.fingerprint != claims.fingerprint:
            raise Unauthorized(
                "the token's user was deleted, is disabled or has a new password", code="identity.user_changed"
            )
        if claims.project_id is None:
            return AuthenticatedCaller(claims, user, None)
        project = accounts.projects.get(claims.project_id)
        if project is None or not project.enabled or not user.roles_in(project):
            raise Unauthorized(f"{user.name} has no role in the token's project any more", code="identity.no_role")
        return AuthenticatedCaller(claims, user, project)

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
    ) -> tuple[str, AuthenticatedCaller]:
        if project is not None and not (project.enabled and user.roles_in(project)):
            raise Unauthorized(f"{user.name} has no role in this project", code="identity.no_role")
        claims = Claims(
            user_id=user.id,
            project_id=project.id if project else None,
            fingerprint=user.fingerprint,
            issued_at=self.clock.now().replace(microsecond=0),
            expires_at=expires_at,
            methods=methods,
            audit_id=_url_safe(self.random_bytes(16)),
            chain_id=chain_id,
        )
        return self.keys.value().sign_claims(claims), AuthenticatedCaller(claims, user, project, host)


def open_or_create_identity(
    state: Path,
    *,
    clock: Clock,
    ids: Ids,
    users_file: Path | None = None,
    random_bytes: RandomBytes = secrets.token_bytes,
    settings: IdentitySettings = IdentitySettings(),
) -> EmbeddedIdentity:
    """Opens the identity service in `state`, and creates its files at the first start. Raises `StartError` for unusable
    files.
    """
    users_file = users_file or state / "users.yaml"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _exclusive_lock(state):
        if not users_file.exists():
            _make_first_accounts(state / "credentials.json", users_file, ids, random_bytes, settings.bcrypt_rounds)
        make_first_key(state, random_bytes)
    return EmbeddedIdentity(
        state=state,
        users=UsersFile(users_file, clock),
        keys=watch_keys(state, clock),
        revocations=Revocations(state / "revoked_tokens", clock, partial(_exclusive_lock, state)),
        hosts=HostRegistry(state / "hosts.json", clock, ids),
        clock=clock,
        random_bytes=random_bytes,
        throttle=LoginThrottle(clock),
        settings=settings,
    )


def _user_for_host(name: str, host: HostIdentity) -> User:
    return User(id=host.id, name=f"{ID_PREFIX}{name}", password_hash="", roles={})


def first_credentials(state: Path, user: str) -> tuple[str, str]:
    """(password, project) of `user` as written by the first start. Raises `StartError` if there is no entry."""
    path = state / "credentials.json"
    try:
        note = orjson.loads(path.read_bytes())[user]
        return note["password"], note["project"]
    except (OSError, ValueError, KeyError) as error:
        raise StartError(
            f"{path} has no password of {user} ({type(error).__name__}); it is made together with the users file: "
            f'write {{"{user}": {{"password": ..., "project": ...}}}} into it, or give the password as an option'
        ) from error


def _delete_first_password(path: Path, user: str) -> None:
    """Delete the entry of a first password that was replaced; only the user knows the new one."""
    try:
        notes = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return
    if notes.pop(user, None) is not None:
        write_durably(path, orjson.dumps(notes, option=orjson.OPT_INDENT_2))


def _make_first_accounts(
    credentials_file: Path, users_file: Path, ids: Ids, random_bytes: RandomBytes, rounds: int
) -> None:
    """Write the passwords before the users file: after a crash in between, the next start writes both again."""
    passwords = {name: _random_password(random_bytes(24)) for name in FIRST_USERS}
    notes = {name: {"password": passwords[name], "project": next(iter(roles))} for name, roles in FIRST_USERS.items()}
    document = {
        "projects": {name: {"id": _id_without_dashes(ids)} for name in FIRST_PROJECTS},
        "users": {
            name: {
                "id": _id_without_dashes(ids),
                "password": hash_password(passwords[name], rounds),
                "default_project": next(iter(roles)),
                "roles": {project: list(names) for project, names in roles.items()},
            }
            for name, roles in FIRST_USERS.items()
        },
    }
    write_durably(credentials_file, orjson.dumps(notes, option=orjson.OPT_INDENT_2))
    write_durably(users_file, (_HEADER + yaml.safe_dump(document, sort_keys=False)).encode())


def _id_without_dashes(ids: Ids) -> str:
    """Keystone's ids are UUIDs without dashes."""
    return ids.uuid().replace("-", "")


def _random_password(raw: bytes) -> str:
    """Contains no dashes, because a command line takes a value that begins with a dash for an option."""
    return base64.b64encode(raw, altchars=b"_.").rstrip(b"=").decode()


def _url_safe(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@contextmanager
def _exclusive_lock(state: Path) -> Iterator[None]:
    """Lets one process write at a time. If several start at once, one creates the files and the others find them."""
    with (state / ".identity.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
