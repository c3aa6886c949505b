"""`moorage login` waits as RFC 8628 demands, and whatever a provider answers, it ends with an ID token or a reason."""

import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import Unauthorized, Unavailable
from moorage.identity.oidc.device_login import MAX_WAIT_S, begin_device_login, wait_for_id_token
from moorage.identity.oidc.provider import metadata_of
from moorage.identity.oidc.provider_http import ProviderHttp
from tests.wire.identity.lying_provider import running_provider

BEGUN = {
    "device_code": "secret", "user_code": "ABCD-EFGH", "verification_uri": "https://id.example/device",
    "expires_in": 600, "interval": 5,
}  # fmt: skip
PENDING = (400, {"error": "authorization_pending"})
SLOW_DOWN = (400, {"error": "slow_down"})
CONFIRMED = (200, {"token_type": "Bearer", "access_token": "a", "id_token": "an ID token"})
AWAY = (503, {})


class Login:
    """A program that signs in at a provider whose answers the test lists; the last one is repeated."""

    def __init__(self, provider):
        self.provider = provider
        self.http = ProviderHttp(2.0, None)
        self.metadata = metadata_of(provider.metadata_document(), provider.issuer)
        self.now = 0.0
        self.pauses = []

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    def begin(self, **answer):
        document = {name: value for name, value in {**BEGUN, **answer}.items() if value is not None}
        self.provider.answers["/device"] = lambda handler: handler.send(200, document)
        return begin_device_login(self.http, self.metadata, "cli", "openid")

    def wait(self, *answers, **begun):
        left = list(answers)

        def answer(handler):
            handler.send(*(left.pop(0) if len(left) > 1 else left[0]))

        self.provider.answers["/token"] = answer
        return wait_for_id_token(
            self.http, self.metadata, "cli", self.begin(**begun), sleep=self.sleep, monotonic=lambda: self.now
        )


@pytest.fixture(scope="module")
def provider():
    with running_provider(SystemClock()) as provider:
        yield provider


@pytest.fixture
def login(provider):
    return Login(provider)


def test_it_asks_at_the_provider_s_pace(login):
    assert login.wait(PENDING, PENDING, CONFIRMED) == "an ID token"
    assert login.pauses == [5, 5, 5]


def test_slow_down_adds_five_seconds_for_the_rest_of_the_sign_in(login):
    assert login.wait(PENDING, SLOW_DOWN, PENDING, SLOW_DOWN, CONFIRMED) == "an ID token"
    assert login.pauses == [5, 5, 10, 10, 15]


def test_a_provider_that_is_away_for_a_moment_is_asked_again_later(login):
    """RFC 8628, section 3.5: after a timeout, ask less often."""
    assert login.wait(AWAY, AWAY, CONFIRMED) == "an ID token"
    assert login.pauses == [5, 10, 20]


def test_a_provider_that_stays_away_is_named_when_the_code_has_expired(login):
    with pytest.raises(Unavailable, match=r"/token answered 503"):
        login.wait(AWAY)
    assert max(login.pauses) == 60
    assert 600 <= login.now < 700


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("access_denied", "the sign-in was refused at the provider"),
        ("expired_token", "the code has expired; run the command again"),
        ("invalid_grant", "the code is not valid any more; run the command again"),
        ("unauthorized_client", "the provider refused: unauthorized_client"),
        ({"not": "a text"}, "the provider refused: {'not': 'a text'}"),
        (None, "the provider refused: None"),
    ],
)
def test_a_refusal_ends_the_sign_in_with_its_reason(login, error, reason):
    with pytest.raises(Unauthorized, match="^" + reason.replace("{", r"\{")):
        login.wait(PENDING, (400, {"error": error}))
    assert len(login.pauses) == 2


def test_a_code_that_nobody_confirms_expires(login):
    with pytest.raises(Unauthorized, match="the code has expired"):
        login.wait(PENDING, expires_in=60)
    assert login.pauses == [5] * 12


@pytest.mark.parametrize(
    "document", [[], "text", 7, None, {}, {"id_token": None}, {"id_token": 7}, {"access_token": "a"}]
)
def test_an_answer_without_an_id_token_ends_the_sign_in(login, document):
    with pytest.raises(Unavailable, match=r"something unexpected|sent no ID token"):
        login.wait((200, document))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"device_code": None}, "refused to begin"),
        ({"expires_in": "soon"}, "refused to begin"),
        ({"interval": [5]}, "refused to begin"),
        ({"verification_uri": "http://id.example/device"}, "without https"),
        ({"verification_uri_complete": "javascript:alert(1)"}, "without https"),
    ],
)
def test_a_beginning_that_cannot_be_used_is_refused(login, answer, reason):
    with pytest.raises(Unavailable, match=reason):
        login.begin(**answer)


def test_the_provider_s_times_have_bounds(login):
    hasty, slow = login.begin(interval=0, expires_in=10**9), login.begin(interval=10**9)
    assert (hasty.interval_s, hasty.expires_in_s, slow.interval_s) == (1.0, MAX_WAIT_S, 60.0)


def test_a_provider_without_device_codes_is_named(login):
    login.metadata = metadata_of(
        login.provider.metadata_document() | {"device_authorization_endpoint": ""}, login.provider.issuer
    )
    with pytest.raises(Unavailable, match="does not offer sign-in with a device code"):
        login.begin()
