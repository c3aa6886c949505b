"""What the configuration says about the provider, checked. Not here: the options themselves (`moorage.options`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from moorage.core.errors import StartError
from moorage.identity.oidc.mapping import MappingRule

#: Signatures with a key pair. HMAC ("HS256") and "none" are not: with them everybody who knows the client's secret, or
#: anybody at all, could make a token.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")

#: Claims that a person or an administrator of the provider can change, and that later belong to somebody else.
_NOT_IDENTIFYING = frozenset({"email", "name", "nickname", "preferred_username", "upn", "phone_number"})


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Create it with `checked_settings`."""

    issuer: str
    name: str  #: of the provider, for people
    client_id: str
    client_secret: str = field(repr=False)  #: empty for a public client
    device_client_id: str  #: empty: the CLI cannot sign in
    redirect_uri: str
    scopes: str
    person_claim: str
    name_claim: str
    projects_claim: str
    algorithms: tuple[str, ...]
    timeout_s: float
    ca_file: Path | None
    rules: Sequence[MappingRule]


def checked_settings(settings: OidcSettings, place: str) -> OidcSettings:
    """`settings`. Raises `StartError` that begins with `place`."""
    if not is_safe_url(settings.issuer) or urlsplit(settings.issuer).query:
        raise StartError(
            f"{place} issuer {settings.issuer!r} must be a URL with https, as the provider itself writes it"
        )
    if not is_safe_url(settings.redirect_uri):
        raise StartError(
            f"{place} redirect_uri {settings.redirect_uri!r} must be a URL with https; set it, or [server] public_url"
        )
    if not settings.client_id:
        raise StartError(f"{place} client_id is empty; set the id that the provider gave to the dashboard")
    if settings.device_client_id == settings.client_id:
        raise StartError(
            f"{place} device_client_id must not be client_id: a token for one program would count for the other one; "
            "register a second client at the provider"
        )
    if "openid" not in settings.scopes.split():
        raise StartError(f"{place} scopes must contain openid")
    if settings.person_claim in _NOT_IDENTIFYING:
        raise StartError(
            f"{place} person_claim = {settings.person_claim} does not identify a person for ever; use sub, or another "
            "claim that the provider never gives to anybody else"
        )
    if unknown := sorted(set(settings.algorithms) - set(ALGORITHMS)):
        raise StartError(f"{place} algorithms names {', '.join(unknown)}; supported are {', '.join(ALGORITHMS)}")
    if not settings.algorithms:
        raise StartError(f"{place} algorithms is empty; supported are {', '.join(ALGORITHMS)}")
    if not 0.1 <= settings.timeout_s <= 60:
        raise StartError(f"{place} timeout_s must be from 0.1 to 60")
    return settings


def is_safe_url(text: object) -> bool:
    """Whether requests to the URL are encrypted, or stay on this machine."""
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or set(text) & set(' \\"<>'):
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    if parts.username is not None or parts.fragment or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1"))
