"""Use cases of invitations: a user chooses a password with a one-time link from an administrator.

    invite      by an administrator; returns a token and stores its digest; replaces an earlier one
    withdraw    by an administrator
    accept      by anybody who has the token; sets the password and uses the token up

A token has 256 random bits, so a fast digest protects it, and the time to find a digest reveals nothing. It also ends
when the user is disabled or gets a password in another way, since the invitation has the user's fingerprint: this needs
no further write, also not by a process of an older release, which knows no invitations.
"""

import base64
import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from moorage.core.errors import Conflict, Forbidden, NotFound, Unauthorized
from moorage.identity.accounts.account_rules import find
from moorage.identity.embedded import EmbeddedIdentity
from moorage.identity.model import Accounts, Change, Invitation, User

#: Under this name, which no user has, failed attempts of an address are counted beside those of logins.
_ACCOUNT = "!invitation"


@dataclass(frozen=True)
class InvitationService:
    identity: EmbeddedIdentity

    def invite(self, user_id: str, lifetime_s: float) -> tuple[str, datetime]:
        """(token, its expiry). Raises `NotFound`, `Conflict` for a disabled user, `Forbidden` for that of services."""
        token = base64.urlsafe_b64encode(self.identity.random_bytes(32)).rstrip(b"=").decode()
        expires_at = self.identity.now() + timedelta(seconds=lifetime_s)

        def decide(accounts: Accounts) -> tuple[None, Change]:
            user = find(accounts.users, user_id, "user")
            if self.identity.is_service_user(user):
                raise Forbidden(f"The services of this cloud log in as {user.name}: nobody is invited to be it.")
            if not accounts.is_enabled(user):
                raise Conflict(f"{user.name} is disabled; enable the user before you invite it.")
            invitation = Invitation(user.id, _digest(token), user.fingerprint, expires_at)
            is_known = user.id in accounts.invitations
            return None, Change(changed=(invitation,)) if is_known else Change(added=(invitation,))

        self.identity.database.change(decide)
        return token, expires_at

    def withdraw(self, user_id: str) -> None:
        """Raises `NotFound` if there is no invitation, also if it was used."""

        def decide(accounts: Accounts) -> tuple[None, Change]:
            user = find(accounts.users, user_id, "user")
            if user.id not in accounts.invitations:
                raise NotFound(f"Could not find an invitation of the user: {user_id}.")
            return None, Change(removed=(accounts.invitations[user.id],))

        self.identity.database.change(decide)

    def accept(self, token: str, password: str, address: str) -> User:
        """The user, who has this password now. Raises `Unauthorized` (one message for every cause), `TooManyRequests`
        after several wrong tokens from the address, and `Invalid` for an unacceptable password, which leaves the
        token valid.
        """
        throttle, digest = self.identity.throttle, _digest(token)
        throttle.check(_ACCOUNT, address)
        # Checked before the database is written, so that callers without a token keep no writer waiting.
        if self._invited(self.identity.accounts(), digest) is None:
            throttle.record_failure(_ACCOUNT, address)
            raise _refused()
        password_hash = self.identity.hash_of(password)

        def decide(accounts: Accounts) -> tuple[User, Change]:
            user = self._invited(accounts, digest)
            if user is None:  # another request was faster
                raise _refused()
            after = replace(
                user, password_hash=password_hash, password_changed_at=self.identity.now(), unlocks=user.unlocks + 1
            )
            return after, Change(changed=(after,), removed=(accounts.invitations[user.id],))

        changed = self.identity.database.change(decide)
        self.identity.update_first_password(changed, None)
        throttle.record_success(_ACCOUNT, address)
        throttle.apply_unlocks([(changed.id, changed.unlocks)])
        return changed

    def invited_until(self, accounts: Accounts, user: User) -> datetime | None:
        """When the user's invitation ends; None if there is none that is valid."""
        invitation = accounts.invitations.get(user.id)
        return invitation.expires_at if invitation and self._is_valid(accounts, user, invitation) else None

    def _invited(self, accounts: Accounts, digest: str) -> User | None:
        invitation = next((each for each in accounts.invitations.values() if each.digest == digest), None)
        user = accounts.users.get(invitation.user_id) if invitation else None
        return user if invitation and user and self._is_valid(accounts, user, invitation) else None

    def _is_valid(self, accounts: Accounts, user: User, invitation: Invitation) -> bool:
        is_current = invitation.fingerprint == user.fingerprint and self.identity.now() < invitation.expires_at
        return is_current and accounts.is_enabled(user)


def _refused() -> Unauthorized:
    return Unauthorized(
        "this link is not valid: it was used, replaced or withdrawn, or it has expired; ask an administrator for a new "
        "one",
        code="identity.invitation",
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
