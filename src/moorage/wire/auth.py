"""The two questions that the kernel asks of identity. `moorage.identity` has the answers."""

from collections.abc import Mapping
from typing import Protocol

from moorage.core.caller import Caller


class Authenticator(Protocol):
    """Who sent this request?"""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        """The caller. `headers` are by lower-case name. Raises `Unauthorized`."""
        ...


class Policy(Protocol):
    """May they? One table of rules per service; a rule that is not in it allows nobody."""

    def allows(self, rule: str, caller: Caller) -> bool: ...

    def refusal(self, rule: str) -> str:
        """The peer's words for a refusal by `rule`."""
        ...
