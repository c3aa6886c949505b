"""The checks of an ID token: signature, issuer, audience, times and nonce (Core 1.0, section 3.1.3.7)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from authlib.oidc.core.claims import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from moorage.core.errors import Unauthorized

MAX_ID_TOKEN_LENGTH = 65_536

#: How much the clocks of the provider and of this machine may differ.
LEEWAY = timedelta(seconds=60)


class UnknownKey(Unauthorized):
    """The token names a key that is not in the key set: it may be new."""


def key_set_of(document: Mapping[str, Any]) -> KeySet:
    """The public keys for signatures. Keys of other kinds are left out: a symmetric one must verify nothing. Raises
    `ValueError` if there is none.
    """
    keys = []
    for row in document.get("keys") or ():
        if not isinstance(row, dict) or row.get("kty") not in ("RSA", "EC", "OKP") or row.get("use", "sig") != "sig":
            continue
        try:
            keys.extend(KeySet.import_key_set({"keys": [row]}).keys)
        except (JoseError, ValueError, TypeError, KeyError):
            continue  # one unusable key does not spoil the others
    if not keys:
        raise ValueError("no public key for signatures")
    return KeySet(keys)


def verified_claims(
    id_token: str,
    keys: KeySet,
    *,
    algorithms: Sequence[str],
    issuer: str,
    client_id: str,
    now: datetime,
    nonce: str | None = None,
    access_token: str | None = None,
) -> Mapping[str, object]:
    """The claims of a token that this issuer made for this client. Raises `Unauthorized` with the reason, `UnknownKey`.

    `nonce` is None for a device, whose request has none.
    """
    if len(id_token) > MAX_ID_TOKEN_LENGTH:
        raise _refused("it is too long")
    try:
        token = jwt.decode(id_token, keys, algorithms=list(algorithms))
        claims = CodeIDToken(
            token.claims,
            token.header,
            options={"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": client_id}},
            params={"client_id": client_id, "nonce": nonce, "access_token": access_token},
        )
        claims.validate(now=int(now.timestamp()), leeway=int(LEEWAY.total_seconds()))
    except InvalidKeyIdError as error:
        raise UnknownKey("the ID token is signed with a key that the provider does not publish") from error
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _refused(str(error) or type(error).__name__) from error
    return dict(claims)


def _refused(reason: str) -> Unauthorized:
    return Unauthorized(f"the provider's ID token is not valid: {reason}", code="identity.oidc.id_token")
