"""The use cases: begin a sign-in in a browser, end it with a code, or sign in with the ID token of a device."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from moorage.core.errors import Forbidden, Invalid, NotFound, Unauthorized
from moorage.identity.embedded import AuthenticatedCaller, EmbeddedIdentity
from moorage.identity.model import Accounts, Change
from moorage.identity.oidc.browser_secret import is_state_of, nonce_of, state_of, verifier_of
from moorage.identity.oidc.id_token import LEEWAY
from moorage.identity.oidc.mapping import grants_of
from moorage.identity.oidc.people import account_change, person_of, unknown_grants
from moorage.identity.oidc.provider import OpenIdProvider
from moorage.identity.oidc.settings import OidcSettings

log = logging.getLogger(__name__)

#: An ID token of a device is accepted for so long after it was made, also if it is valid for longer: it has no nonce.
DEVICE_TOKEN_AGE = timedelta(minutes=5)

#: Under this name, which no user has, failed attempts of an address are counted beside those of logins.
_ACCOUNT = "!oidc"

_METHODS = ("openid",)


@dataclass(frozen=True)
class OidcSignIn:
    identity: EmbeddedIdentity
    provider: OpenIdProvider
    settings: OidcSettings

    def authorization_url(self, secret: str) -> str:
        """Where the browser with this secret signs in. Raises `Unavailable`."""
        return self.provider.authorization_url(state_of(secret), nonce_of(secret), verifier_of(secret))

    def sign_in_with_code(
        self, secret: str, state: str, code: str, issuer: str | None, address: str
    ) -> tuple[str, AuthenticatedCaller]:
        """(token, its holder) for the browser with this secret, which the provider sent back with `state` and `code`.

        Raises `Unauthorized`, `Forbidden` for a person without a role here, `TooManyRequests`, `Unavailable`.
        """
        with self._counted(address):
            if not is_state_of(state, secret):
                raise Unauthorized(
                    "this sign-in was not started in this browser, or another one was started since; start again",
                    code="identity.oidc.state",
                )
            is_named = issuer is not None or self.provider.metadata().names_issuer
            if is_named and issuer != self.settings.issuer:
                raise Unauthorized("the answer comes from another provider; start again", code="identity.oidc.issuer")
            id_token, access_token = self.provider.redeem_code(code, verifier_of(secret))
            claims = self.provider.verify(
                id_token, client_id=self.settings.client_id, nonce=nonce_of(secret), access_token=access_token
            )
            return self._sign_in(claims)

    def sign_in_with_id_token(self, id_token: str, address: str) -> tuple[str, AuthenticatedCaller]:
        """(token, its holder) for a person with the ID token of the client for devices. Raises as `sign_in_with_code`,
        and `NotFound` if devices cannot sign in.
        """
        if not self.settings.device_client_id:
            raise NotFound("[oidc] device_client_id is not set: the command line cannot sign in with the provider")
        with self._counted(address):
            claims = self.provider.verify(id_token, client_id=self.settings.device_client_id, nonce=None)
            issued_at = claims["iat"]
            if not isinstance(issued_at, int | float) or self._age(issued_at) > DEVICE_TOKEN_AGE + LEEWAY:
                raise Unauthorized("the ID token is too old; sign in again", code="identity.oidc.id_token")
            return self._sign_in(claims)

    @contextmanager
    def _counted(self, address: str) -> Iterator[None]:
        """Counts refusals of an address, and makes it wait after several. Raises `TooManyRequests`."""
        throttle = self.identity.throttle
        throttle.check(_ACCOUNT, address)
        try:
            yield
        except Unauthorized as error:
            log.warning("a sign-in with the OpenID provider was refused", extra={"reason": error.message})
            throttle.record_failure(_ACCOUNT, address)
            raise
        throttle.record_success(_ACCOUNT, address)

    def _sign_in(self, claims: Mapping[str, object]) -> tuple[str, AuthenticatedCaller]:
        """Raises `Forbidden`, or `Unauthorized` for a user that is disabled here."""
        settings, identity = self.settings, self.identity
        try:
            person = person_of(claims, settings.issuer, settings.person_claim, settings.name_claim)
        except Invalid as error:
            raise Unauthorized(f"the provider's ID token is not usable: {error.message}") from error
        grants = grants_of(settings.rules, claims.get(settings.projects_claim))

        def decide(accounts: Accounts) -> tuple[str | None, Change]:
            return account_change(accounts, person, grants)

        accounts = identity.accounts()
        for grant in unknown_grants(accounts, grants):
            log.warning(
                "a rule of [oidc] mapping_file names a project or role that does not exist",
                extra={"project": grant.project, "role": grant.role},
            )
        user_id, change = decide(accounts)
        if change != Change():
            user_id = identity.database.change(decide)
            accounts = identity.accounts()
        known = accounts.users.get(person.user_id)
        if known is not None and not accounts.is_enabled(known):
            raise Unauthorized(f"{known.name} is disabled here; ask an administrator", code="identity.oidc.disabled")
        if user_id is None:
            raise Forbidden(
                f"{settings.name} knows {person.name}, but no rule of this cloud gives this person a role in a "
                "project; ask an administrator",
                code="identity.oidc.no_role",
            )
        user = accounts.users[user_id]
        return identity.issue_token(user, accounts.default_project(user), _METHODS)

    def _age(self, issued_at: float) -> timedelta:
        return self.identity.now() - datetime.fromtimestamp(issued_at, UTC)
