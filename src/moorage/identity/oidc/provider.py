"""One provider: its metadata and keys, which are fetched when needed and kept for a while, and its token endpoint."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from authlib.oauth2.base import OAuth2Error
from authlib.oauth2.client import OAuth2Client
from joserfc.jwk import KeySet

from moorage.core.clock import Clock
from moorage.core.errors import Unauthorized, Unavailable
from moorage.identity.oidc.id_token import UnknownKey, key_set_of, verified_claims
from moorage.identity.oidc.provider_http import ProviderHttp
from moorage.identity.oidc.settings import OidcSettings, is_safe_url

log = logging.getLogger(__name__)

#: How long metadata and keys are kept.
KEPT = timedelta(hours=1)
#: After a failed fetch, for how long the next caller gets the same answer at once.
FAILURE_KEPT = timedelta(seconds=5)
#: Keys are fetched again for an unknown key id at most this often: anybody can name one.
KEYS_REFETCHED = timedelta(seconds=60)

_REQUIRED = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The provider's metadata as far as it is used."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    device_authorization_endpoint: str  #: empty: the provider has no grant for devices
    auth_methods: frozenset[str]  #: of the client at the token endpoint
    names_issuer: bool  #: whether the answer to an authorization request names the issuer (RFC 9207)


def metadata_of(document: Mapping[str, Any], issuer: str) -> Metadata:
    """Raises `Unavailable` for metadata of another issuer or without what is needed."""
    if document.get("issuer") != issuer:
        raise Unavailable(
            f"the provider at {issuer} says that its issuer is {str(document.get('issuer'))[:200]!r}; if it is the "
            "right provider, set [oidc] issuer to exactly this text"
        )
    for name in _REQUIRED:
        if not is_safe_url(document.get(name)):
            raise Unavailable(f"the metadata of {issuer} has no usable {name}: it must be a URL with https")
    device = document.get("device_authorization_endpoint")
    methods = document.get("token_endpoint_auth_methods_supported")
    return Metadata(
        authorization_endpoint=document["authorization_endpoint"],
        token_endpoint=document["token_endpoint"],
        jwks_uri=document["jwks_uri"],
        device_authorization_endpoint=str(device) if is_safe_url(device) else "",
        auth_methods=frozenset(map(str, methods)) if isinstance(methods, list) else frozenset({"client_secret_basic"}),
        names_issuer=document.get("authorization_response_iss_parameter_supported") is True,
    )


def metadata_url(issuer: str) -> str:
    return f"{issuer.removesuffix('/')}/.well-known/openid-configuration"


class OpenIdProvider:
    """Thread-safe. Two threads may fetch the same thing at once, which is harmless."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        """Raises `StartError` for an unusable file of authorities. Asks the provider nothing yet."""
        self._settings = settings
        self._clock = clock
        self._http = ProviderHttp(settings.timeout_s, settings.ca_file)
        self._lock = threading.Lock()
        self._metadata: tuple[datetime, Metadata] | None = None
        self._keys: tuple[datetime, KeySet] | None = None
        self._failure: tuple[datetime, Unavailable] | None = None

    def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Raises `Unavailable`."""
        metadata = self.metadata()
        url, _ = self._client(metadata).create_authorization_url(
            metadata.authorization_endpoint, state=state, nonce=nonce, code_verifier=verifier
        )
        return str(url)

    def redeem_code(self, code: str, verifier: str) -> tuple[str, str | None]:
        """(ID token, access token). Raises `Unauthorized` for a code that the provider refuses, and `Unavailable`."""
        metadata = self.metadata()
        try:
            answer = self._client(metadata).fetch_token(
                metadata.token_endpoint, grant_type="authorization_code", code=code, code_verifier=verifier
            )
        except OAuth2Error as error:
            log.warning("the provider refused a code", extra={"error": str(error.error)[:100]})
            raise Unauthorized(
                "the provider refused the sign-in; start again", code="identity.oidc.refused", error=str(error.error)
            ) from error
        except (ValueError, TypeError) as error:  # not JSON, or not an answer of OAuth
            raise Unavailable("the provider's token endpoint answered something unexpected") from error
        id_token, access_token = answer.get("id_token"), answer.get("access_token")
        if not isinstance(id_token, str):
            raise Unavailable("the provider sent no ID token; [oidc] scopes must contain openid")
        return id_token, access_token if isinstance(access_token, str) else None

    def verify(
        self, id_token: str, *, client_id: str, nonce: str | None, access_token: str | None = None
    ) -> Mapping[str, object]:
        """The claims; an unknown key is fetched first. Raises `Unauthorized`, `Unavailable`."""

        def claims(keys: KeySet) -> Mapping[str, object]:
            return verified_claims(
                id_token,
                keys,
                algorithms=self._settings.algorithms,
                issuer=self._settings.issuer,
                client_id=client_id,
                now=self._clock.now(),
                nonce=nonce,
                access_token=access_token,
            )

        fetched_at, keys = self._current_keys(KEPT)
        try:
            return claims(keys)
        except UnknownKey:
            if self._clock.now() - fetched_at < KEYS_REFETCHED:
                raise
            return claims(self._current_keys(KEYS_REFETCHED)[1])

    def metadata(self) -> Metadata:
        """Raises `Unavailable`."""
        now, kept, failure = self._clock.now(), self._metadata, self._failure
        if kept is not None and abs(now - kept[0]) < KEPT:
            return kept[1]
        if failure is not None and abs(now - failure[0]) < FAILURE_KEPT:
            raise Unavailable(failure[1].message)
        issuer = self._settings.issuer
        try:
            found = metadata_of(self._http.get_json(metadata_url(issuer)), issuer)
        except Unavailable as error:
            with self._lock:
                self._failure = (self._clock.now(), error)
            log.warning("the OpenID provider cannot be used", extra={"reason": error.message})
            raise
        with self._lock:
            self._metadata, self._failure = (now, found), None
        return found

    def _current_keys(self, kept_for: timedelta) -> tuple[datetime, KeySet]:
        """(when they were fetched, the keys), not older than `kept_for`."""
        now, kept = self._clock.now(), self._keys
        if kept is not None and abs(now - kept[0]) < kept_for:
            return kept
        url = self.metadata().jwks_uri
        try:
            found = key_set_of(self._http.get_json(url))
        except ValueError as error:
            raise Unavailable(f"{url} has no public key for signatures", url=url) from error
        with self._lock:
            self._keys = (now, found)
        return now, found

    def _client(self, metadata: Metadata) -> OAuth2Client:
        """The client of Authlib, which is made for one use."""
        settings = self._settings
        method = "none"
        if settings.client_secret:
            method = "client_secret_basic" if "client_secret_basic" in metadata.auth_methods else "client_secret_post"
        return OAuth2Client(
            self._http,
            client_id=settings.client_id,
            client_secret=settings.client_secret or None,
            token_endpoint_auth_method=method,
            scope=settings.scopes,
            redirect_uri=settings.redirect_uri,
            code_challenge_method="S256",
        )
