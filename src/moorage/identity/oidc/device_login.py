"""Sign-in of a program without a browser: the device authorization grant (RFC 8628).

begin_device_login -> a code and an address for the person -> wait_for_id_token asks until the person has confirmed
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from authlib.oauth2.base import OAuth2Error
from authlib.oauth2.client import OAuth2Client

from moorage.core.errors import MoorageError, Unauthorized, Unavailable
from moorage.identity.oidc.provider import Metadata
from moorage.identity.oidc.provider_http import ProviderHttp
from moorage.identity.oidc.settings import is_safe_url

GRANT = "urn:ietf:params:oauth:grant-type:device_code"

#: Seconds between two questions if the provider names none, and what ``slow_down`` adds (RFC 8628, section 3.5).
INTERVAL_S = 5.0
_SLOWER_S = 5.0
#: Bound of these seconds as the provider names them, and after several questions without an answer.
_MAX_INTERVAL_S = 60.0
#: A code is never waited for longer than this, whatever the provider says.
MAX_WAIT_S = 1800.0


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    """`complete_uri` has the code in it; empty if the provider makes none."""

    device_code: str = field(repr=False)
    user_code: str
    verification_uri: str
    complete_uri: str
    expires_in_s: float
    interval_s: float


def begin_device_login(http: ProviderHttp, metadata: Metadata, client_id: str, scopes: str) -> DeviceLogin:
    """Raises `Unavailable`, also for a provider without this grant."""
    if not metadata.device_authorization_endpoint:
        raise Unavailable("the provider does not offer sign-in with a device code (no device_authorization_endpoint)")
    answer = http.post(metadata.device_authorization_endpoint, data={"client_id": client_id, "scope": scopes})
    try:
        said = answer.json()
        login = DeviceLogin(
            device_code=str(said["device_code"]),
            user_code=str(said["user_code"]),
            verification_uri=str(said["verification_uri"]),
            complete_uri=str(said.get("verification_uri_complete") or ""),
            expires_in_s=min(float(said["expires_in"]), MAX_WAIT_S),
            interval_s=min(max(float(said.get("interval", INTERVAL_S)), 1.0), _MAX_INTERVAL_S),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unavailable(
            f"the provider refused to begin a sign-in with a device code (status {answer.status_code}): "
            f"{answer.text[:200]}"
        ) from error
    if not is_safe_url(login.verification_uri) or not (login.complete_uri == "" or is_safe_url(login.complete_uri)):
        raise Unavailable("the provider named an address without https for entering the code")
    return login


def wait_for_id_token(
    http: ProviderHttp,
    metadata: Metadata,
    client_id: str,
    login: DeviceLogin,
    *,
    sleep: Callable[[float], None],
    monotonic: Callable[[], float],
) -> str:
    """Asks at the provider's pace until the person has confirmed. Raises `Unauthorized` if the person refused or the
    code has expired, and `Unavailable`.

    A provider that does not answer is asked again after twice the time.
    """
    client = OAuth2Client(http, client_id=client_id, token_endpoint_auth_method="none")  # noqa: S106 - the name of a method
    until, interval_s = monotonic() + login.expires_in_s, login.interval_s
    reason: MoorageError = Unauthorized(_REASONS["expired_token"])
    while monotonic() < until:
        sleep(interval_s)
        try:
            said = client.fetch_token(metadata.token_endpoint, grant_type=GRANT, device_code=login.device_code)
        except OAuth2Error as error:
            code = str(error.error)
            if code == "slow_down":
                interval_s += _SLOWER_S
            elif code != "authorization_pending":
                raise Unauthorized(_REASONS.get(code, f"the provider refused: {code[:100]}")) from error
            reason = Unauthorized(_REASONS["expired_token"])
            continue
        except Unavailable as error:
            interval_s, reason = max(interval_s, min(2 * interval_s, _MAX_INTERVAL_S)), error
            continue
        except (ValueError, TypeError) as error:
            raise Unavailable("the provider's token endpoint answered something unexpected") from error
        if not isinstance(id_token := said.get("id_token"), str):
            raise Unavailable("the provider sent no ID token; the scopes must contain openid")
        return id_token
    raise reason


_REASONS = {
    "access_denied": "the sign-in was refused at the provider",
    "expired_token": "the code has expired; run the command again",
    "invalid_grant": "the code is not valid any more; run the command again",
}
