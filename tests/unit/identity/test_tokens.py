import base64
import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import Unauthorized
from moorage.identity.tokens import Claims, TokenSigner

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
CLAIMS = Claims(
    user_id="a" * 32,
    project_id="b" * 32,
    fingerprint="0123456789ab",
    issued_at=NOW,
    expires_at=NOW + timedelta(hours=1),
    methods=("password", "token"),
    audit_id="c" * 22,
)


@pytest.fixture
def signer() -> TokenSigner:
    return TokenSigner(b"k" * 32)


def test_what_was_signed_is_read(signer):
    token = signer.sign_claims(CLAIMS)
    assert signer.read_claims(token, NOW) == CLAIMS
    assert len(token) < 400


def test_without_scope(signer):
    claims = dataclasses.replace(CLAIMS, project_id=None)
    assert signer.read_claims(signer.sign_claims(claims), NOW) == claims


def test_a_token_is_over_at_its_end_not_before(signer):
    token = signer.sign_claims(CLAIMS)
    signer.read_claims(token, CLAIMS.expires_at - timedelta(microseconds=1))
    with pytest.raises(Unauthorized, match="expired at 2026-03-01T10:30:00Z"):
        signer.read_claims(token, CLAIMS.expires_at)
    assert signer.read_claims(token, CLAIMS.expires_at, grace=timedelta(hours=1)) == CLAIMS


def test_a_token_of_another_key_is_refused(signer):
    with pytest.raises(Unauthorized, match="signature"):
        signer.read_claims(TokenSigner(b"x" * 32).sign_claims(CLAIMS), NOW)


def test_any_changed_character_of_the_claims_is_noticed(signer):
    token = signer.sign_claims(CLAIMS)
    end = token.rindex(".")
    for place in range(end):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(Unauthorized):
            signer.read_claims(changed, NOW)


def test_claims_cannot_be_swapped_under_a_signature(signer):
    prefix, _, mac = signer.sign_claims(CLAIMS).split(".")
    body = {"a": "", "e": 2**31, "i": 0, "k": "", "m": [], "p": "admin", "u": "admin"}
    forged = base64.urlsafe_b64encode(json.dumps(body).encode()).rstrip(b"=").decode()
    for signature in (mac, "", "AAAA"):
        with pytest.raises(Unauthorized):
            signer.read_claims(f"{prefix}.{forged}.{signature}", NOW)


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "moor1..", "moor1.e30.", "gAAAAABl", "moor1." + "A" * 600 + ".AAAA", "moor1.é.é", "moor1.\0.x"],
)
def test_nonsense_is_refused_shortly(signer, text):
    with pytest.raises(Unauthorized) as refused:
        signer.read_claims(text, NOW)
    assert len(refused.value.message) < 80


def test_a_token_from_the_future_is_refused_beyond_the_leeway(signer):
    token = signer.sign_claims(CLAIMS)
    signer.read_claims(token, NOW - timedelta(seconds=59))
    with pytest.raises(Unauthorized, match="clocks"):
        signer.read_claims(token, NOW - timedelta(seconds=61))


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        TokenSigner(b"short")
