"""Signed tokens, which need no storage: claims as compact JSON, and an HMAC-SHA256 over them.

::

    moor1.<base64url of {"a":audit id,"e":expires,"i":issued,"k":fingerprint,"m":[methods],"p":project,"u":user}>.<mac>

A token that was exchanged for another one also has ``"c"``, the audit id of the first token, and one that was obtained
with an application credential has ``"x"``, its id. Roles are not in the
token: they are looked up at each use, so that removing one takes effect at once. A token ends at its expiry, with its
user, the user's password or the key, or when it is revoked (`revocations`).
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import orjson

from moorage.core.errors import Unauthorized

PREFIX = "moor1"

#: No token is longer; a longer text is rejected unread.
MAX_TOKEN_LENGTH = 512

#: How much the clocks of several machines may differ.
LEEWAY = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Claims:
    """The content of a token. Times are whole seconds; `project_id` is None for a token without scope."""

    user_id: str
    project_id: str | None
    fingerprint: str  #: of the user's password at the time of issue
    issued_at: datetime
    expires_at: datetime
    methods: tuple[str, ...]
    audit_id: str
    chain_id: str | None = None  #: audit id of the first token, if this one was exchanged for a token
    credential_id: str | None = None  #: the application credential that it was obtained with


class TokenSigner:
    """`key`: at least 32 random bytes, the same in every process that accepts the tokens.

    `others` are previous keys, each with the time until which its tokens are accepted.
    """

    def __init__(self, key: bytes, others: Sequence[tuple[bytes, datetime]] = ()) -> None:
        if any(len(one) < 32 for one in (key, *(other for other, _ in others))):
            raise ValueError("a key needs at least 32 bytes")
        self._key = key
        self._others = tuple(others)

    def sign_claims(self, claims: Claims) -> str:
        body: dict[str, object] = {
            "a": claims.audit_id,
            "e": int(claims.expires_at.timestamp()),
            "i": int(claims.issued_at.timestamp()),
            "k": claims.fingerprint,
            "m": claims.methods,
            "p": claims.project_id,
            "u": claims.user_id,
        }
        if claims.chain_id is not None:
            body["c"] = claims.chain_id
        if claims.credential_id is not None:
            body["x"] = claims.credential_id
        signed = f"{PREFIX}.{_encode(orjson.dumps(body))}"
        return f"{signed}.{_encode(_mac(self._key, signed))}"

    def read_claims(self, token: str, now: datetime, *, grace: timedelta = timedelta(0)) -> Claims:
        """The claims of a token of ours that has not expired (for longer than `grace`). Raises `Unauthorized`."""
        if len(token) > MAX_TOKEN_LENGTH or token.count(".") != 2 or not token.startswith(f"{PREFIX}."):
            raise Unauthorized("token not issued by this service", code="identity.token_unknown")
        signed, _, mac = token.rpartition(".")
        if not self._is_signature(_decode(mac), signed, now):
            raise Unauthorized("the token's signature is wrong", code="identity.token_forged")
        body = orjson.loads(_decode(signed.partition(".")[2]))
        claims = Claims(
            user_id=body["u"],
            project_id=body["p"],
            fingerprint=body["k"],
            issued_at=datetime.fromtimestamp(body["i"], UTC),
            expires_at=datetime.fromtimestamp(body["e"], UTC),
            methods=tuple(body["m"]),
            audit_id=body["a"],
            chain_id=body.get("c"),
            credential_id=body.get("x"),
        )
        if now >= claims.expires_at + grace:
            raise Unauthorized(
                f"the token expired at {claims.expires_at:%Y-%m-%dT%H:%M:%SZ}", code="identity.token_over"
            )
        if claims.issued_at > now + LEEWAY:
            raise Unauthorized(
                "the token was issued in the future; compare the clocks of the machines", code="identity.token_early"
            )
        return claims

    def _is_signature(self, mac: bytes, signed: str, now: datetime) -> bool:
        if hmac.compare_digest(mac, _mac(self._key, signed)):
            return True
        return any(hmac.compare_digest(mac, _mac(key, signed)) for key, until in self._others if now < until)


def _mac(key: bytes, signed: str) -> bytes:
    return hmac.digest(key, signed.encode("ascii", "replace"), "sha256")


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """The decoded bytes; empty for text that is not base64, since nothing signed is empty."""
    try:
        return base64.b64decode(
            text.encode("ascii", "replace") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except binascii.Error:
        return b""
