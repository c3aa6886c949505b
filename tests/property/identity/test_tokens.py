"""A signed token reads back the same; every other text is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.errors import Unauthorized
from moorage.identity.tokens.signed_tokens import MAX_TOKEN_LENGTH, Claims, TokenSigner

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SIGNER = TokenSigner(b"k" * 32)

ids = st.text("0123456789abcdefABCDEF_.-", min_size=1, max_size=64)
claims = st.builds(
    Claims,
    user_id=ids,
    project_id=st.none() | ids,
    fingerprint=st.text("0123456789abcdef", min_size=12, max_size=12),
    issued_at=st.integers(0, 86400).map(lambda ago: NOW - timedelta(seconds=ago)),
    expires_at=st.integers(1, 86400 * 365).map(lambda later: NOW + timedelta(seconds=later)),
    methods=st.sampled_from([("password",), ("password", "token")]),
    audit_id=st.text("abcXYZ-_", min_size=22, max_size=22),
    chain_id=st.none() | st.text("abcXYZ-_", min_size=22, max_size=22),
)


@given(claims)
def test_a_signed_token_reads_back_the_same_and_is_shorter_than_the_limit(held):
    token = SIGNER.sign_claims(held)
    assert len(token) < MAX_TOKEN_LENGTH
    assert SIGNER.read_claims(token, NOW) == held


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: "moor1." + raw.decode("latin-1")))
def test_a_text_that_was_not_signed_is_unauthorized(text):
    with pytest.raises(Unauthorized):
        SIGNER.read_claims(text, NOW)


@given(claims, st.integers(0), st.characters())
def test_a_token_with_one_changed_character_is_unauthorized(held, place, character):
    token = SIGNER.sign_claims(held)
    place %= token.rindex(".")
    changed = token[:place] + character + token[place + 1 :]
    if changed != token:
        with pytest.raises(Unauthorized):
            SIGNER.read_claims(changed, NOW)
