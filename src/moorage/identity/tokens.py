"""Signed tokens that nobody has to store: claims as compact JSON, and an HMAC-SHA256 over them.

::

    moor1.<base64url of {"a":audit id,"e":expires,"i":issued,"k":fingerprint,"m":[methods],"p":project,"u":user}>.<mac>

A token that was got for another one has ``"c"``, too: the audit id of the first of them. The roles are not in it: they are
looked up at each use, so that taking one away takes effect at once. A token ends with its time, its user, its user's
password, or the key; before that, where it is among those that were revoked (`revocations`).
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

#: A token is never longer; more is not even looked at.
MAX_TOKEN_LENGTH = 512

#: Clocks of several machines may differ by this much.
LEEWAY = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says. Times are whole seconds; `project_id` is None for a token without scope."""

    user_id: str
    project_id: str | None
    fingerprint: str  #: of the password that was in force when it was issued
    issued_at: datetime
    expires_at: datetime
    methods: tuple[str, ...]
    audit_id: str
    chain_id: str | None = None  #: the audit id of the first token, where this one was got for a token


class TokenSigner:
    """`key`: at least 32 random bytes, the same in every process that shall accept the tokens.

    `others` are keys that signed before: their tokens are read, each until the moment beside it.
    """

    def __init__(self, key: bytes, others: Sequence[tuple[bytes, datetime]] = ()) -> None:
        if any(len(one) < 32 for one in (key, *(other for other, _ in others))):
            raise ValueError("a key of less than 32 bytes does not protect anything")
        self._key = key
        self._others = tuple(others)

    def sign(self, claims: Claims) -> str:
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
        signed = f"{PREFIX}.{_encode(orjson.dumps(body))}"
        return f"{signed}.{_encode(_mac(self._key, signed))}"

    def read(self, token: str, now: datetime, *, grace: timedelta = timedelta(0)) -> Claims:
        """The claims of a token we signed that is not over (for longer than `grace`). Raises `Unauthorized`."""
        if len(token) > MAX_TOKEN_LENGTH or token.count(".") != 2 or not token.startswith(f"{PREFIX}."):
            raise Unauthorized("this is no token of ours", code="identity.token_unknown")
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
        )
        if now >= claims.expires_at + grace:
            raise Unauthorized(f"the token ended at {claims.expires_at:%Y-%m-%dT%H:%M:%SZ}", code="identity.token_over")
        if claims.issued_at > now + LEEWAY:
            raise Unauthorized("the token is from the future; compare the clocks", code="identity.token_early")
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
    """Empty for text that is not base64: nothing signed is empty."""
    try:
        return base64.b64decode(
            text.encode("ascii", "replace") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except binascii.Error:
        return b""
