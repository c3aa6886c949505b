"""Cookies of the dashboard: the token, the seed of the form tokens, the theme, and a sign-in that is under way.

All are HttpOnly and SameSite=Strict, and Secure where the address is https. The sign-in at a provider alone is
SameSite=Lax: the provider, another site, sends the browser back.
"""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

SESSION = "moorage_session"
SEED = "moorage_seed"
THEME = "moorage_theme"
PROVIDER = "moorage_provider"

THEMES = ("auto", "light", "dark")


def read_cookies(headers: Mapping[str, str]) -> dict[str, str]:
    """{name: value}. The first of several cookies with one name wins: browsers send the longest path first, ours."""
    found: dict[str, str] = {}
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        found.setdefault(name, value)
    return found


def set_cookie(name: str, value: str, base_url: str, *, max_age_s: int | None = None) -> str:
    """A ``Set-Cookie`` for all paths below `base_url`. Without `max_age_s` it is a session cookie; 0 deletes it."""
    url = urlsplit(base_url)
    same_site = "Lax" if name == PROVIDER else "Strict"
    parts = [f"{name}={value}", f"Path={url.path or '/'}", "HttpOnly", f"SameSite={same_site}"]
    if url.scheme == "https":
        parts.append("Secure")
    if max_age_s is not None:
        parts.append(f"Max-Age={max_age_s}")
    return "; ".join(parts)


def form_token(seed: str, session: str) -> str:
    """The token in each form. Only a page that can read both cookies can compute it; other sites can read neither."""
    return hmac.digest(seed.encode(), f"moorage form\0{session}".encode(), "sha256").hex()


def is_form_token(given: str, seed: str, session: str) -> bool:
    return bool(seed) and hmac.compare_digest(given.encode(), form_token(seed, session).encode())
