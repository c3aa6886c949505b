"""The registry of hosts whose agents may call: their invitations, credentials and revocations.

Stored as ``hosts.json`` in the state directory, mode 0600, with digests instead of secrets::

    {"compute-1": {"id": "host:0f6e...", "enrolled_at": "2026-03-01T09:30:00+00:00", "secret": "<SHA-256>", ...}}

The life of a host's credential:

    invite    by an operator; returns a one-time token and stores its digest until it expires
    enrol     by the host; uses the token up and stores the digest of the secret that the host generated
    rotate    by the host; its next secret is valid beside the present one until its first use
    revoke    by an operator; ends the token, the secret and every access token

Secrets have 256 random bits, so a fast digest protects them, and the time to compare two digests reveals nothing.
Processes that share the directory change the file under a lock; each sees the changes of the others within
`watched_files.RELOAD_PERIOD`.
Not here: access tokens (`moorage.identity.embedded`) and the host's own file (`moorage.identity.host_credential`).
"""

import fcntl
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, NotFound, StartError, Unauthorized
from moorage.core.ids import Ids
from moorage.core.names import check_host_name
from moorage.durable import write_durably
from moorage.identity.watched_files import WatchedFiles

#: Prefix of host ids; the users file allows no user id with it.
ID_PREFIX = "host:"

#: Default lifetime of a one-time token.
DEFAULT_INVITATION_S = 3600
MAX_INVITATION_S = 30 * 24 * 3600


class Invitation(msgspec.Struct, frozen=True):
    digest: str  #: of the one-time token
    expires_at: datetime


class HostIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of one host. `id` changes with each enrolment, which ends the access tokens issued before."""

    id: str
    invitation: Invitation | None = None
    enrolled_at: datetime | None = None
    secret: str = ""  #: digest of the present secret
    next_secret: str = ""  #: digest of the secret that replaces it at its first use
    used_token: str = ""  #: digest of the one-time token that it was enrolled with
    rotated_at: datetime | None = None
    revoked_at: datetime | None = None
    #: Whether its agent runs in the process that has the key of the tokens, and therefore needs no secret.
    is_own: bool = False

    @property
    def may_call(self) -> bool:
        return self.revoked_at is None and (self.is_own or bool(self.secret))


Hosts = Mapping[str, HostIdentity]


class HostRegistry:
    """`path` is ``hosts.json``; it is created with the first host."""

    def __init__(self, path: Path, clock: Clock, ids: Ids) -> None:
        self._path = path
        self._clock = clock
        self._ids = ids
        self._watched = WatchedFiles("hosts' file", [path], lambda: _read_hosts(path), clock)

    def hosts(self) -> Hosts:
        """All hosts by name, at most one second old."""
        return self._watched.value().hosts

    def by_id(self, host_id: str) -> tuple[str, HostIdentity] | None:
        """(name, host) of the host with this id; None if there is none or it may not call.

        For an unknown id the file is checked at once: another process may just have enrolled the host.
        """
        known = self._watched.value()
        if host_id not in known.by_id:
            self._watched.reload_now()
            known = self._watched.value()
        name = known.by_id.get(host_id)
        if name is None or not known.hosts[name].may_call:
            return None
        return name, known.hosts[name]

    # ------------------------------------------------------------------------------------- operators

    def invite_host(self, name: str, lifetime_s: float = DEFAULT_INVITATION_S) -> tuple[str, datetime]:
        """Returns (one-time token, its expiry). Replaces an unused token; an existing credential stays valid until the
        token is used. Raises `Invalid` for an invalid host name, `Conflict` for one too similar to another host's.
        """
        check_host_name(name)
        token = secrets.token_urlsafe(32)
        expires_at = self._clock.now() + timedelta(seconds=lifetime_s)

        def change(hosts: dict[str, HostIdentity]) -> None:
            _check_provider_names(name, hosts)
            host = hosts.get(name) or HostIdentity(self._new_id())
            invitation = Invitation(digest_of(token), expires_at)
            hosts[name] = msgspec.structs.replace(host, invitation=invitation)

        self._change(change)
        return token, expires_at

    def revoke_host(self, name: str) -> None:
        """Raises `NotFound`, and `Conflict` for a host whose process could issue itself a new token."""

        def change(hosts: dict[str, HostIdentity]) -> None:
            host = hosts.get(name)
            if host is None:
                raise NotFound(f"no host {name} was enrolled")
            if host.is_own:
                raise Conflict(
                    f"the agent of {name} runs in the process of the services, which has the key of all tokens: remove "
                    "'agent' from its [plane] services instead"
                )
            # A new id ensures that old access tokens stay invalid when the host is enrolled again.
            hosts[name] = HostIdentity(self._new_id(), enrolled_at=host.enrolled_at, revoked_at=self._clock.now())

        self._change(change)

    # ------------------------------------------------------------------------------------- hosts

    def enrol_host(self, name: str, token: str, secret_digest: str) -> None:
        """Exchange a one-time token for a credential. May be repeated, since the response may have been lost.

        Raises `Unauthorized`, identical for every cause.
        """
        now, given = self._clock.now(), digest_of(token)

        def is_repeated(host: HostIdentity | None) -> bool:
            return host is not None and (host.used_token, host.secret) == (given, secret_digest)

        def is_invited(host: HostIdentity | None) -> bool:
            invitation = None if host is None else host.invitation
            return invitation is not None and invitation.digest == given and now < invitation.expires_at

        def change(hosts: dict[str, HostIdentity]) -> None:
            if is_repeated(hosts.get(name)):
                return
            if not is_invited(hosts.get(name)):
                raise _host_refused(name)
            hosts[name] = HostIdentity(
                self._new_id(), enrolled_at=now, secret=secret_digest, used_token=given, rotated_at=now
            )

        # Check before taking the lock, so that callers without a valid token cannot hold it.
        host = self._host_now(name)
        if not (is_repeated(host) or is_invited(host)):
            raise _host_refused(name)
        self._change(change)

    def check_secret(self, name: str, secret: str) -> HostIdentity:
        """Returns the host if `secret` is valid. The first use of its next secret ends the previous one.

        Raises `Unauthorized`, identical for every cause.
        """
        given = digest_of(secret)
        host = self._host_now(name)
        if host is None or not host.may_call or given not in (host.secret, host.next_secret):
            raise _host_refused(name)
        if host.secret == given:
            return host

        def change(hosts: dict[str, HostIdentity]) -> None:
            host = hosts.get(name)
            if host is None or not host.may_call or given not in (host.secret, host.next_secret):
                raise _host_refused(name)
            if host.secret != given:
                hosts[name] = msgspec.structs.replace(
                    host, secret=given, next_secret="", used_token="", rotated_at=self._clock.now()
                )

        self._change(change)
        return self.hosts()[name]

    def rotate_secret(self, name: str, secret: str, next_digest: str) -> None:
        """Make the secret with `next_digest` valid beside the present one. A repetition replaces the next secret.

        Raises `Unauthorized`, as `check_secret`.
        """
        host = self.check_secret(name, secret)

        def change(hosts: dict[str, HostIdentity]) -> None:
            present = hosts.get(name)
            if present is None or (present.id, present.secret) != (host.id, host.secret):
                raise _host_refused(name)
            hosts[name] = msgspec.structs.replace(present, next_secret=next_digest)

        self._change(change)

    def enrol_own_hosts(self, names: Sequence[str]) -> None:
        """Enrol the hosts whose agents run in this process; they need no secret, as it has the key of the tokens.

        Raises `StartError` for an invalid host name.
        """
        try:
            for name in names:
                check_host_name(name)
        except Invalid as error:
            raise StartError(f"[agent] host: {error.message}") from error

        def change(hosts: dict[str, HostIdentity]) -> None:
            for name in names:
                host = hosts.get(name)
                if host is None or not host.is_own:
                    hosts[name] = HostIdentity(self._new_id(), enrolled_at=self._clock.now(), is_own=True)

        known = self.hosts()
        if any(name not in known or not known[name].is_own for name in names):
            self._change(change)

    # ------------------------------------------------------------------------------------- the file

    def _new_id(self) -> str:
        return f"{ID_PREFIX}{self._ids.uuid().replace('-', '')}"

    def _host_now(self, name: str) -> HostIdentity | None:
        """The host in the file as it is now, since another process may just have enrolled it."""
        self._watched.reload_now()
        return self.hosts().get(name)

    def _change(self, change: Callable[[dict[str, HostIdentity]], None]) -> None:
        """Apply `change`: durable and visible here on return. Raises `StartError` for an unreadable file."""
        with _exclusive_lock(self._path):
            before = _read_hosts(self._path).hosts
            hosts = dict(before)
            change(hosts)
            if hosts != before:
                write_durably(self._path, msgspec.json.format(msgspec.json.encode(hosts), indent=1))
        self._watched.reload_now()


@dataclass(frozen=True)
class _LoadedHosts:
    hosts: Hosts
    by_id: Mapping[str, str]  #: id -> name


def _read_hosts(path: Path) -> _LoadedHosts:
    try:
        if path.stat().st_mode & 0o077:
            raise StartError(f"{path} can be read by others; chmod 0600 {path}")
        hosts = msgspec.json.decode(path.read_bytes(), type=dict[str, HostIdentity])
    except FileNotFoundError:
        return _LoadedHosts({}, {})
    except (OSError, msgspec.DecodeError) as error:
        raise StartError(f"the hosts' file {path} cannot be read: {error}; restore it from a backup") from error
    return _LoadedHosts(hosts, {host.id: name for name, host in hosts.items()})


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _host_refused(name: str) -> Unauthorized:
    return Unauthorized(
        f"host {name} does not exist, or its token or secret is wrong, used, expired or revoked: enrol it again "
        f"(moorage host enrol {name})",
        code="identity.host",
    )


def _check_provider_names(name: str, hosts: Hosts) -> None:
    """A host's child providers are named after it (``compute-1_NUMA_0``); no other host may have such a name."""
    for other in hosts:
        if name != other and (name.startswith(f"{other}_") or other.startswith(f"{name}_")):
            raise Conflict(f"{name} and {other} could have resource providers of the same name; choose another name")


@contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    """Excludes other processes with the same state directory."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
