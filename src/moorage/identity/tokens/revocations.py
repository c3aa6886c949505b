"""Tokens that were revoked before their expiry, in a file that all processes with the same state directory read.

Each revocation appends a line, which is on the disk before the response; times are whole seconds since 1970::

    token <until> <audit id> <user id> <issued>     this token
    chain <until> <audit id> <user id> <issued>     this token, and those it was exchanged for
    user <until> <user id> <before>                 every token of the user that was issued before `before`

A line counts until its token would not be accepted any more, alone or with a service token. Expired lines are dropped
when they make up half of the file. A user has at most `MAX_LINES_PER_USER` lines: the next revocation merges them into
one line of the kind ``user``, which also ends the user's other old tokens.

Not here: the content of tokens (`tokens`), and tokens that end with their user, password or key (`embedded`).
"""

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.durable import write_durably
from moorage.identity.model import SERVICE_TOKEN_GRACE
from moorage.identity.tokens.signed_tokens import LEEWAY, Claims
from moorage.identity.watched_files import WatchedFiles

log = logging.getLogger(__name__)

#: Keeps a user who creates and revokes tokens in a loop from filling the disk: 10,000 lines are 1.2 MB.
MAX_LINES_PER_USER = 10_000

#: A file with fewer lines is not compacted.
_MIN_LINES = 100


@dataclass(frozen=True, slots=True)
class _Revocation:
    kind: str  #: ``token``, ``chain`` or ``user``
    until: int
    name: str  #: audit id; for the kind ``user``, the user id
    user_id: str
    moment: int  #: when the token was issued; for the kind ``user``, the time before which tokens were issued

    def __str__(self) -> str:
        names = self.name if self.kind == "user" else f"{self.name} {self.user_id}"
        return f"{self.kind} {self.until} {names} {self.moment}\n"


@dataclass(frozen=True, slots=True)
class _RevokedTokens:
    """The content of a file, indexed for the check of each request."""

    lines: tuple[_Revocation, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict)  #: audit id -> until
    chains: Mapping[str, int] = field(default_factory=dict)  #: audit id of the first -> until
    users: Mapping[str, int] = field(default_factory=dict)  #: user id -> tokens issued before this moment


class Revocations:
    """`alone` is a lock that excludes other writing processes."""

    def __init__(self, path: Path, clock: Clock, alone: Callable[[], AbstractContextManager[None]]) -> None:
        self._path = path
        self._clock = clock
        self._alone = alone
        self._watched = WatchedFiles("revoked tokens", [path], lambda: _read_revocations(path), clock)

    def covers(self, claims: Claims) -> bool:
        """Whether the token is revoked. The process that revoked it knows at once, others within `RELOAD_PERIOD`."""
        revoked = self._watched.value()
        return (
            claims.audit_id in revoked.tokens
            or claims.chain_id in revoked.chains
            or int(claims.issued_at.timestamp()) < revoked.users.get(claims.user_id, 0)
        )

    def add_revocation(self, claims: Claims, *, with_descendants: bool) -> None:
        """Revoke a token. Durable and visible in this process when this returns. A repetition is harmless."""
        until = claims.expires_at + SERVICE_TOKEN_GRACE + LEEWAY
        kind = "chain" if with_descendants else "token"
        line = _Revocation(kind, _seconds(until), claims.audit_id, claims.user_id, _seconds(claims.issued_at))
        with self._alone():
            self._write(line, self._clock.now())
        self._watched.reload_now()

    def _write(self, line: _Revocation, now: datetime) -> None:
        lines = _read_revocations(self._path).lines
        kept = [one for one in lines if one.until > _seconds(now)]
        if Counter(one.user_id for one in kept)[line.user_id] >= MAX_LINES_PER_USER:
            kept = _compacted(kept, line.user_id, _seconds(now))
        elif len(lines) < _MIN_LINES or len(kept) * 2 > len(lines):
            _append(self._path, str(line))
            return
        write_durably(self._path, "".join(map(str, (*kept, line))).encode())


def _compacted(lines: Iterable[_Revocation], user_id: str, now: int) -> list[_Revocation]:
    """`lines`, with a single one for all tokens of the user that were issued before this second."""
    old = {line for line in lines if line.user_id == user_id and (line.kind == "user" or line.moment < now)}
    log.warning(
        "a user revoked very many tokens; all older tokens of the user are revoked",
        extra={"user": user_id, "revoked": len(old)},
    )
    longest = max((line.until - line.moment for line in old), default=0)
    return [line for line in lines if line not in old] + [_Revocation("user", now + longest, user_id, user_id, now)]


def _append(path: Path, text: str) -> None:
    """Append `text` to the file, on a new line if a crash left a partial line at its end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        content = (("\n" if is_torn else "") + text).encode()
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, "the file could not be written to its end", str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_revocations(path: Path) -> _RevokedTokens:
    """The content; empty if there is no file. Raises `StartError` if it cannot be read."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return _RevokedTokens()
    except OSError as error:
        raise StartError(f"the revoked tokens in {path} cannot be read: {error.strerror}") from error
    lines = []
    for row in text.splitlines():
        if line := _parse_line(row):
            lines.append(line)
        elif row:
            log.error("a line of the revoked tokens cannot be read", extra={"file": str(path), "bytes": len(row)})
    return _RevokedTokens(
        tuple(lines),
        {line.name: line.until for line in lines if line.kind != "user"},
        {line.name: line.until for line in lines if line.kind == "chain"},
        {line.name: line.moment for line in lines if line.kind == "user"},
    )


def _parse_line(row: str) -> _Revocation | None:
    match row.split(" "):
        case ["token" | "chain" as kind, until, audit_id, user_id, issued] if until.isdecimal() and issued.isdecimal():
            return _Revocation(kind, int(until), audit_id, user_id, int(issued))
        case ["user", until, user_id, before] if until.isdecimal() and before.isdecimal():
            return _Revocation("user", int(until), user_id, user_id, int(before))
        case _:
            return None


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
