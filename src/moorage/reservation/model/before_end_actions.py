"""The actions before the end of a lease (webhook, email, snapshot), and the check that the operator allows them.

No I/O: the steps that run them are in `moorage.reservation.steps`.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from moorage.core.errors import Invalid

#: Maximum number of actions of a lease.
MAX_ACTIONS = 5

#: Accepts only characters that all URL parsers read in the same way in host and path; rejects user names and fragments.
_URL = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?(/[!$-\[\]-~]*)?", re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)")
_PORTS = {"http": 80, "https": 443}


class EndActionKind(StrEnum):
    WEBHOOK = "webhook"
    EMAIL = "email"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class EndAction:
    kind: EndActionKind
    target: str = ""  #: URL or mail address; empty for a snapshot, which covers all servers


@dataclass(frozen=True, slots=True)
class Allowed:
    """The actions that the operator allows. `origins`: allowed webhook targets, in the form of `split_url`."""

    origins: Collection[str] = frozenset()
    mail: bool = False
    mail_domains: Collection[str] = frozenset()  #: in lower case; ``*`` is any

    def check(self, action: EndAction) -> None:
        """Raises `Invalid` if the operator does not allow the action or its target is malformed."""
        if action.kind is EndActionKind.WEBHOOK:
            self._check_url(action.target)
        elif action.kind is EndActionKind.EMAIL:
            self._check_address(action.target)

    def _check_url(self, url: str) -> None:
        parts = split_url(url)
        if parts is None:
            raise Invalid(
                "url of a webhook must have the form https://host/path, without a user name, a fragment or blanks"
            )
        if parts[0] not in self.origins:
            known = ", ".join(sorted(self.origins)) or "none"
            raise Invalid(f"Webhooks to {parts[0]} are not allowed. Allowed by the operator: {known}")

    def _check_address(self, address: str) -> None:
        if not self.mail:
            raise Invalid("This service cannot send mail: no mail server is configured")
        domain = domain_of(address)
        if domain is None:
            raise Invalid("to of an email must be a single address, for example somebody@example.org")
        if domain not in self.mail_domains and "*" not in self.mail_domains:
            known = ", ".join(sorted(self.mail_domains)) or "none"
            raise Invalid(f"Mail to {domain} is not allowed. Domains allowed by the operator: {known}")


def split_url(url: str) -> tuple[str, str] | None:
    """(origin, path and query); the origin is in lower case and omits the scheme's default port. None: invalid URL.

    >>> split_url("https://Hooks.example.org:443/a?b=c")
    ('https://hooks.example.org', '/a?b=c')
    """
    found = _URL.fullmatch(url)
    if found is None:
        return None
    scheme, host = found[1].lower(), found[2].lower()
    port = int(found[3] or _PORTS[scheme])
    if not 0 < port < 65536:
        return None
    return f"{scheme}://{host}" + ("" if port == _PORTS[scheme] else f":{port}"), found[4] or "/"


def domain_of(address: str) -> str | None:
    """The domain of a mail address, in lower case; None if `address` is not a single plain address."""
    found = _ADDRESS.fullmatch(address)
    return found[1].lower() if found and ".." not in address else None
