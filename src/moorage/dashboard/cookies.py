"""What the browser keeps for us: the token, the seed of the forms' tokens, and how the pages look.

All are HttpOnly and SameSite=Strict, and Secure where the address is https.
"""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

SESSION = "moorage_session"
SEED = "moorage_seed"
THEME = "moorage_theme"

THEMES = ("auto", "light", "dark")


def read(headers: Mapping[str, str]) -> dict[str, str]:
    """{name: value}. Of one name the first counts: browsers send those of the longest path, which are ours, first."""
    found: dict[str, str] = {}
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        found.setdefault(name, value)
    return found


def cookie(name: str, value: str, base_url: str, *, max_age_s: int | None = None) -> str:
    """A ``Set-Cookie`` for everything below `base_url`; without an age it ends with the browser, with 0 at once."""
    url = urlsplit(base_url)
    parts = [f"{name}={value}", f"Path={url.path or '/'}", "HttpOnly", "SameSite=Strict"]
    if url.scheme == "https":
        parts.append("Secure")
    if max_age_s is not None:
        parts.append(f"Max-Age={max_age_s}")
    return "; ".join(parts)


def form_token(seed: str, session: str) -> str:
    """What each form carries: only who can read both cookies can make it, and scripts of other sites can read none."""
    return hmac.digest(seed.encode(), f"moorage form\0{session}".encode(), "sha256").hex()


def is_form_token(given: str, seed: str, session: str) -> bool:
    return bool(seed) and hmac.compare_digest(given.encode(), form_token(seed, session).encode())
