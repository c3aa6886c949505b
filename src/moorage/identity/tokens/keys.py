"""The files with the keys that sign tokens: created at the first start, replaced by `rotate_key`, reread by processes.

``token.key`` has 32 random bytes, the key that signs. ``token.key.others`` has a line for each other key whose tokens
are accepted: ``<until, in seconds since 1970> <base64>``. These are previous keys, until their last token has expired.

Not here: the tokens themselves (`tokens`).
"""

import base64
import binascii
import fcntl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.durable import write_durably
from moorage.identity.model import SERVICE_TOKEN_GRACE
from moorage.identity.tokens.signed_tokens import LEEWAY, TokenSigner
from moorage.identity.watched_files import RELOAD_PERIOD, WatchedFiles

RandomBytes = Callable[[int], bytes]

_BYTES = 32


@dataclass(frozen=True, slots=True)
class Rotation:
    """`until`: when the previous key's tokens become invalid, also with a service token; None: they are."""

    until: datetime | None


def make_first_key(state: Path, random_bytes: RandomBytes) -> None:
    """Create the key if there is none. A missing key means that an operator removed it to end all tokens, so the other
    keys are deleted, too.
    """
    if not (state / "token.key").exists():
        (state / "token.key.others").unlink(missing_ok=True)
        write_durably(state / "token.key", random_bytes(_BYTES))


def watch_keys(state: Path, clock: Clock) -> WatchedFiles[TokenSigner]:
    """The keys in `state`, at most one second old. Raises `StartError` for unusable files."""
    paths = [state / "token.key", state / "token.key.others"]
    return WatchedFiles(
        "token keys", paths, lambda: TokenSigner(_read_key(paths[0]), _read_other_keys(paths[1])), clock
    )


def rotate_key(
    state: Path, clock: Clock, random_bytes: RandomBytes, *, lifetime: timedelta, at_once: bool = False
) -> Rotation:
    """Replace the signing key. Tokens of previous keys stay valid until they expire; with `at_once` they end now.

    All processes first learn the new key and then start to sign with it: otherwise some would reject the new tokens of
    others. This takes two seconds. A kill in between leaves an accepted key that signs nothing.
    """
    key_path, others_path = state / "token.key", state / "token.key.others"
    if not key_path.exists():
        raise StartError(f"there is no {key_path}; the first start of a plane creates it")
    with (state / ".rotation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = random_bytes(_BYTES)
        if at_once:
            write_durably(key_path, new)
            others_path.unlink(missing_ok=True)
            return Rotation(None)
        before, now = _read_key(key_path), clock.now()
        # Another process may sign with the previous key for a second after it was replaced.
        until = now + 4 * RELOAD_PERIOD + lifetime + SERVICE_TOKEN_GRACE + LEEWAY
        others = [(key, end) for key, end in _read_other_keys(others_path) if end > now and key != before]
        write_durably(others_path, _format_other_keys([*others, (before, until), (new, until)]))
        clock.sleep(2 * RELOAD_PERIOD.total_seconds())
        write_durably(key_path, new)
        write_durably(others_path, _format_other_keys([*others, (before, until)]))
        return Rotation(until)


def _read_key(path: Path) -> bytes:
    key = _read_private_file(path)
    if key is None:
        raise StartError(f"the token key {path} does not exist")
    if len(key) < _BYTES:
        raise StartError(f"{path} has {len(key)} bytes instead of {_BYTES}; remove it, and all users must log in again")
    return key


def _read_other_keys(path: Path) -> Sequence[tuple[bytes, datetime]]:
    found = []
    for number, line in enumerate((_read_private_file(path) or b"").splitlines(), 1):
        try:
            until, _, key = line.decode().partition(" ")
            found.append((base64.b64decode(key, validate=True), datetime.fromtimestamp(int(until), UTC)))
        except (ValueError, OverflowError, OSError, binascii.Error) as error:
            raise StartError(
                f"{path}:{number} is malformed; remove the line, which ends the tokens of its key"
            ) from error
        if len(found[-1][0]) < _BYTES:
            raise StartError(f"{path}:{number} has a key of fewer than {_BYTES} bytes; remove the line")
    return found


def _format_other_keys(others: Sequence[tuple[bytes, datetime]]) -> bytes:
    return b"".join(b"%d %s\n" % (int(until.timestamp()), base64.b64encode(key)) for key, until in others)


def _read_private_file(path: Path) -> bytes | None:
    """The content; None if there is no file. Raises `StartError` if others can read it."""
    try:
        if path.stat().st_mode & 0o077:
            raise StartError(f"{path} can be read by others, who could then forge tokens; chmod 0600 {path}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartError(f"the token key {path} cannot be read: {error}") from error
