"""What is derived from the random secret in a browser's cookie: the state, the nonce and the PKCE verifier. Pure.

So no process keeps a sign-in in memory, and an answer counts only in the browser that began the sign-in. None of the
three reveals the secret or another of them; only the PKCE verifier stays unknown to the provider until the end.
"""

import base64
import hashlib
import hmac


def state_of(secret: str) -> str:
    return _derived(secret, "state")


def nonce_of(secret: str) -> str:
    return _derived(secret, "nonce")


def verifier_of(secret: str) -> str:
    return _derived(secret, "PKCE verifier")


def is_state_of(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), state_of(secret).encode())


def _derived(secret: str, purpose: str) -> str:
    """43 characters that are unreserved in a URL."""
    mark = hmac.digest(secret.encode("utf-8", "surrogatepass"), f"moorage oidc {purpose}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(mark).rstrip(b"=").decode()
