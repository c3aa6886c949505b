import base64
import dataclasses
import json
from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import Unauthorized
from moorage.identity.tokens.signed_tokens import Claims, TokenSigner

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


def test_a_signed_token_reads_back_the_same(signer):
    token = signer.sign_claims(CLAIMS)
    assert signer.read_claims(token, NOW) == CLAIMS
    assert len(token) < 400


def test_an_unscoped_token_reads_back_the_same(signer):
    claims = dataclasses.replace(CLAIMS, project_id=None)
    assert signer.read_claims(signer.sign_claims(claims), NOW) == claims


def test_a_token_expires_exactly_at_its_end(signer):
    token = signer.sign_claims(CLAIMS)
    signer.read_claims(token, CLAIMS.expires_at - timedelta(microseconds=1))
    with pytest.raises(Unauthorized, match="expired at 2026-03-01T10:30:00Z"):
        signer.read_claims(token, CLAIMS.expires_at)
    assert signer.read_claims(token, CLAIMS.expires_at, grace=timedelta(hours=1)) == CLAIMS


def test_a_token_of_another_key_is_refused(signer):
    with pytest.raises(Unauthorized, match="signature"):
        signer.read_claims(TokenSigner(b"x" * 32).sign_claims(CLAIMS), NOW)


def test_a_token_with_any_changed_character_is_refused(signer):
    token = signer.sign_claims(CLAIMS)
    end = token.rindex(".")
    for place in range(end):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(Unauthorized):
            signer.read_claims(changed, NOW)


def test_forged_claims_with_the_signature_of_another_token_are_refused(signer):
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
def test_a_text_that_is_no_token_is_refused_with_a_short_message(signer, text):
    with pytest.raises(Unauthorized) as refused:
        signer.read_claims(text, NOW)
    assert len(refused.value.message) < 80


def test_a_token_issued_more_than_a_minute_in_the_future_is_refused(signer):
    token = signer.sign_claims(CLAIMS)
    signer.read_claims(token, NOW - timedelta(seconds=59))
    with pytest.raises(Unauthorized, match="clocks"):
        signer.read_claims(token, NOW - timedelta(seconds=61))


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        TokenSigner(b"short")
