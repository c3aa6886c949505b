"""Passwords: bcrypt hashes, and which passwords are accepted. Not here: who may set one."""

import bcrypt

from moorage.core.errors import Invalid
from moorage.identity.model import User

#: bcrypt ignores further bytes of a password, so longer passwords are rejected.
MAX_PASSWORD_BYTES = 72


def check_new_password(password: str) -> None:
    """Raises `Invalid` for a password that bcrypt would truncate."""
    raw = password.encode("utf-8", "surrogatepass")
    if not 1 <= len(raw) <= MAX_PASSWORD_BYTES or b"\0" in raw:
        raise Invalid(
            f"A password must have 1 to {MAX_PASSWORD_BYTES} bytes, none of them zero.", code="identity.new_password"
        )


def hash_password(password: str, rounds: int) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds)).decode()


def password_matches(user: User | None, password: str, rounds: int) -> bool:
    """Whether it is the user's password. An unknown user takes as long; `rounds` is the cost of most passwords."""
    given = password.encode()
    if len(given) > MAX_PASSWORD_BYTES or b"\0" in given:
        return False
    if user is None or not user.enabled or not user.password_hash:
        bcrypt.checkpw(given, b"$2b$%02d$" % rounds + b"." * 53)
        return False
    return bcrypt.checkpw(given, user.password_hash.encode())
