"""A host's credential: the file with its secret, enrolment with a one-time token, rotation, and access tokens.

The host generates its secrets itself; only their digests and, at each login, the current secret are sent. The file is
written before the service is told, so every step can be repeated with the same result if a response is lost.

    {"host": "compute-1", "secret": "...", "next_secret": "", "since": "2026-03-01T09:30:00Z"}
"""

import logging
import secrets
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, RemoteError, StartError, Unauthorized, Unavailable
from moorage.durable import write_durably
from moorage.identity.client import RenewedTokens, Token, renew_at
from moorage.identity.host_registry import digest_of
from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import Transport

if TYPE_CHECKING:
    from moorage.identity.embedded import EmbeddedIdentity

log = logging.getLogger(__name__)

#: An older secret is replaced at the next login.
ROTATION_PERIOD = timedelta(days=7)


class Credential(msgspec.Struct, frozen=True):
    host: str
    secret: str
    since: datetime
    next_secret: str = ""  #: of a rotation in progress; the service may know it already


def read_credential(path: Path, host: str) -> Credential | None:
    """The credential; None without a file. Raises `StartError` for a file that others can read, or of another host."""
    try:
        if path.stat().st_mode & 0o077:
            raise StartError(f"{path} can be read by others, who could then be this host; chmod 0600 {path}")
        found = msgspec.json.decode(path.read_bytes(), type=Credential)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StartError(f"{path} cannot be read: {error}; enrol the host again (moorage host enrol {host})") from error
    if found.host != host:
        raise StartError(
            f"{path} is the credential of host {found.host}, but this agent's host is {host}: after renaming a host, "
            f"enrol it again (moorage host enrol {host}) and revoke its old name"
        )
    return found


def enrol_host(path: Path, host: str, token: str, transport: Transport, clock: Clock) -> None:
    """Exchange a one-time token for a credential, which is written to `path`. Raises `Unauthorized` for an invalid
    token. After `Unavailable`, call it again with the same token.
    """
    secret = secrets.token_urlsafe(32)
    draft = path.with_name(f"{path.name}.joining")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The response to an exchange may be lost. The retry must then send the same secret with the same token.
    before = read_credential(draft, host)
    if before is not None and before.next_secret == digest_of(token):
        secret = before.secret
    write_durably(draft, msgspec.json.encode(Credential(host, secret, clock.now(), digest_of(token))))
    body = {"token": token, "secret_sha256": digest_of(secret)}
    _send_request(transport, clock, "POST", host, "credential", body)
    write_durably(path, msgspec.json.encode(Credential(host, secret, clock.now())))
    draft.unlink(missing_ok=True)


def enrol_or_keep(path: Path, host: str, token: str, transport: Transport, clock: Clock) -> bool:
    """Like `enrol_host`, but a host whose token is used up and whose credential still works keeps it: whether the token
    was used. So a join can be repeated with the same token, also after it was killed at any point.
    """
    try:
        enrol_host(path, host, token, transport, clock)
    except Unauthorized:
        present = read_credential(path, host)
        if present is None or not _is_valid(present, transport, clock):
            raise
        path.with_name(f"{path.name}.joining").unlink(missing_ok=True)
        return False
    return True


def _is_valid(credential: Credential, transport: Transport, clock: Clock) -> bool:
    for secret in filter(None, (credential.secret, credential.next_secret)):
        try:
            _send_request(transport, clock, "POST", credential.host, "tokens", {"secret": secret})
        except Unauthorized:
            continue
        return True
    return False


class HostTokens(RenewedTokens):
    """Access tokens of the host whose credential is in `path`. `transport` leads to identity, without ``/v3``."""

    def __init__(self, path: Path, host: str, transport: Transport, clock: Clock) -> None:
        super().__init__(clock)
        self._path = path
        self._host = host
        self._transport = transport

    def _fetch_token(self) -> Token:
        credential = read_credential(self._path, self._host)
        if credential is None:
            raise Unauthorized(f"host {self._host} has no credential: {self._path} is missing", code="identity.host")
        if credential.next_secret:
            credential, token = self._finish_rotation(credential)
        else:
            token = self._login(credential.secret)
        if self._clock.now() - credential.since >= ROTATION_PERIOD:
            self._rotate(credential)
        return token

    def _finish_rotation(self, credential: Credential) -> tuple[Credential, Token]:
        """Find out whether the service received the next secret of an interrupted rotation."""
        try:
            token = self._login(credential.next_secret)
        except Unauthorized:
            token = self._login(credential.secret)
            return credential, token
        moved_on = Credential(self._host, credential.next_secret, self._clock.now())
        self._write(moved_on)
        return moved_on, token

    def _rotate(self, credential: Credential) -> None:
        """Replace the secret. A failure is only logged: the present secret stays valid; the next login tries again."""
        next_secret = secrets.token_urlsafe(32)
        try:
            self._write(msgspec.structs.replace(credential, next_secret=next_secret))
            # An access token does not suffice: a thief of one must not be able to create a lasting secret.
            body = {"secret": credential.secret, "secret_sha256": digest_of(next_secret)}
            _send_request(self._transport, self._clock, "PUT", self._host, "credential", body)
        except (MoorageError, OSError) as error:
            log.warning("the credential of this host was not rotated", extra={"host": self._host, "why": str(error)})

    def _login(self, secret: str) -> Token:
        answer = _send_request(self._transport, self._clock, "POST", self._host, "tokens", {"secret": secret})
        now = self._clock.now()
        expires_at = datetime.fromisoformat(answer["expires_at"])
        return Token(answer["token"], expires_at, renew_at(expires_at, now), "", None, frozenset(), {})

    def _write(self, credential: Credential) -> None:
        write_durably(self._path, msgspec.json.encode(credential))


class InProcessHostTokens(RenewedTokens):
    """Access tokens for an agent in the same process as the identity service; they need no secret."""

    def __init__(self, identity: "EmbeddedIdentity", host: str, clock: Clock) -> None:
        super().__init__(clock)
        self._identity = identity
        self._host = host

    def _fetch_token(self) -> Token:
        host = self._identity.hosts.hosts().get(self._host)
        if host is None or not host.may_call:
            raise Unauthorized(f"host {self._host} was revoked; restart this process", code="identity.host")
        text, holder = self._identity.issue_for_host(self._host, host)
        expires_at = holder.claims.expires_at
        return Token(text, expires_at, renew_at(expires_at, self._clock.now()), "", None, frozenset(), {})


def _send_request(
    transport: Transport, clock: Clock, method: str, host: str, what: str, body: object
) -> dict[str, str]:
    """Raises `Unauthorized` with the remedy, `Unavailable` or `RemoteError`."""
    http = ServiceClient(transport, service_type="identity", credentials=NoCredentials(), clock=clock)
    path = f"/moorage/v1/hosts/{quote(host, safe='')}/{what}"
    try:
        answer: dict[str, str] | None = http.request(method, path, json=body, repeatable=True)
    except RemoteError as error:
        if error.status == 401:
            detail = error.fields.get("detail")
            raise Unauthorized(str(detail or error.message), code="identity.host") from error
        if error.status >= 500:
            raise Unavailable(error.message) from error
        raise
    return answer or {}
