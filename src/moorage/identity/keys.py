"""The keys that sign tokens, in files: made at the first start, changed by `rotate_key`, read again while processes run.

``token.key`` is 32 random bytes, the key that signs. ``token.key.others`` has a line for each other key whose tokens are
taken, too: ``<until, in seconds since 1970> <base64>``. Those are the ones that signed before, until their last token is over.

Not here: what is signed (`tokens`).
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
from moorage.identity.tokens import LEEWAY, TokenSigner
from moorage.identity.watched_files import RELOAD_PERIOD, WatchedFiles

RandomBytes = Callable[[int], bytes]

_BYTES = 32


@dataclass(frozen=True, slots=True)
class Rotation:
    """`until`: when the last token of the key before is over, also beside a service token; None where it is over now."""

    until: datetime | None


def make_first_key(state: Path, random_bytes: RandomBytes) -> None:
    """Whoever removed the key wants no token of it to count: the others go, too."""
    if not (state / "token.key").exists():
        (state / "token.key.others").unlink(missing_ok=True)
        write_durably(state / "token.key", random_bytes(_BYTES))


def watch_keys(state: Path, clock: Clock) -> WatchedFiles[TokenSigner]:
    """The keys in `state`, as of one second ago at most. Raises `StartError` for files that cannot be used."""
    paths = [state / "token.key", state / "token.key.others"]
    return WatchedFiles(
        "token keys", paths, lambda: TokenSigner(_read_key(paths[0]), _read_other_keys(paths[1])), clock
    )


def rotate_key(
    state: Path, clock: Clock, random_bytes: RandomBytes, *, lifetime: timedelta, at_once: bool = False
) -> Rotation:
    """A new key signs from now on. Tokens of the ones before stay good until they are over; with `at_once` none does.

    First every process gets to know the new key, then one after the other signs with it: otherwise a token of the first
    would be refused by the last. This takes two seconds. A kill in between leaves a key that signs nothing.
    """
    key_path, others_path = state / "token.key", state / "token.key.others"
    if not key_path.exists():
        raise StartError(f"there is no {key_path}; the first start of a plane makes one")
    with (state / ".rotation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = random_bytes(_BYTES)
        if at_once:
            write_durably(key_path, new)
            others_path.unlink(missing_ok=True)
            return Rotation(None)
        before, now = _read_key(key_path), clock.now()
        # Some process signs with the one before for another second after it was replaced.
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
        raise StartError(f"the key of the tokens {path} is not there")
    if len(key) < _BYTES:
        raise StartError(f"{path} holds {len(key)} bytes instead of {_BYTES}; remove it, and users log in again")
    return key


def _read_other_keys(path: Path) -> Sequence[tuple[bytes, datetime]]:
    found = []
    for number, line in enumerate((_read_private_file(path) or b"").splitlines(), 1):
        try:
            until, _, key = line.decode().partition(" ")
            found.append((base64.b64decode(key, validate=True), datetime.fromtimestamp(int(until), UTC)))
        except (ValueError, OverflowError, OSError, binascii.Error) as error:
            raise StartError(f"{path}:{number} cannot be read; remove the line, and its tokens are over") from error
        if len(found[-1][0]) < _BYTES:
            raise StartError(f"{path}:{number} has a key of less than {_BYTES} bytes; remove the line")
    return found


def _format_other_keys(others: Sequence[tuple[bytes, datetime]]) -> bytes:
    return b"".join(b"%d %s\n" % (int(until.timestamp()), base64.b64encode(key)) for key, until in others)


def _read_private_file(path: Path) -> bytes | None:
    """The content; None where there is no file. Raises `StartError` where others can read it."""
    try:
        if path.stat().st_mode & 0o077:
            raise StartError(f"{path} can be read by others, who could then be anybody here; chmod 0600 {path}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StartError(f"the key of the tokens {path} cannot be read: {error}") from error
