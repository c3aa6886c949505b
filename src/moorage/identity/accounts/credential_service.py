"""Use cases of application credentials: a program logs in with one instead of with its user's password.

A credential belongs to its user, who alone may create one, in the project of the user's token and with roles of that
token. It ends with the user, the project, its own expiry, and when the user loses the roles.
"""

import base64
from dataclasses import dataclass
from datetime import UTC, datetime

from moorage.core.errors import Conflict, Forbidden, Invalid, NotFound, Unauthorized
from moorage.core.ids import Ids
from moorage.identity.accounts.account_service import Given
from moorage.identity.embedded import AuthenticatedCaller, EmbeddedIdentity
from moorage.identity.model import Accounts, ApplicationCredential, Change, Role, User
from moorage.identity.policy import with_implied
from moorage.identity.tokens.passwords import password_matches

#: Bound of a user's credentials, which are all kept in memory.
MAX_PER_USER = 100


@dataclass(frozen=True)
class CredentialService:
    identity: EmbeddedIdentity
    ids: Ids

    def create(self, holder: AuthenticatedCaller, given: Given) -> tuple[ApplicationCredential, str]:
        """(credential, its secret, which nobody can read again). Raises `Forbidden`, `Conflict` or `Invalid`."""
        check_may_manage(holder)
        project = holder.project
        if project is None:
            raise Forbidden("An application credential is for one project: use a token for that project.")
        if given.get("project_id") not in (None, project.id):
            raise Forbidden("An application credential is for the project of the token that creates it.")
        if given.get("access_rules"):
            raise Invalid("This service has no access rules: no service of this cloud would enforce them.")
        secret = given.get("secret") or base64.urlsafe_b64encode(self.identity.random_bytes(32)).rstrip(b"=").decode()
        credential = ApplicationCredential(
            id=self.ids.uuid().replace("-", ""),
            user_id=holder.user.id,
            project_id=project.id,
            name=given["name"],
            secret_hash=self.identity.hash_of(secret),
            role_ids=_role_ids(self.identity.accounts(), holder, given.get("roles")),
            description=given.get("description") or "",
            unrestricted=bool(given.get("unrestricted")),
            expires_at=_expiry(given.get("expires_at"), self.identity.now()),
        )

        def decide(accounts: Accounts) -> tuple[ApplicationCredential, Change]:
            others = [row for row in accounts.credentials.values() if row.user_id == credential.user_id]
            if any(row.name == credential.name for row in others):
                raise Conflict(f"The user already has an application credential with the name {credential.name}.")
            if len(others) >= MAX_PER_USER:
                raise Forbidden(f"A user may have {MAX_PER_USER} application credentials; delete others first.")
            if credential.user_id not in accounts.users or credential.project_id not in accounts.projects:
                raise NotFound("The user or the project was deleted in the meantime.")
            return credential, Change(added=(credential,))

        return self.identity.database.change(decide), secret

    def list_of(self, user_id: str, name: str | None) -> list[ApplicationCredential]:
        rows = (row for row in self.identity.accounts().credentials.values() if row.user_id == user_id)
        return sorted((row for row in rows if name in (None, row.name)), key=lambda row: row.name)

    def get(self, user_id: str, credential_id: str) -> ApplicationCredential:
        return _find(self.identity.accounts(), user_id, credential_id)

    def delete(self, holder: AuthenticatedCaller, user_id: str, credential_id: str) -> None:
        """Also ends the tokens that were obtained with it. Raises `NotFound` or `Forbidden`."""
        check_may_manage(holder)
        self.identity.database.change(
            lambda accounts: (None, Change(removed=(_find(accounts, user_id, credential_id),)))
        )

    def roles_of(self, credential: ApplicationCredential) -> list[Role]:
        roles = self.identity.accounts().roles
        return [roles[each] for each in credential.role_ids if each in roles]

    def check_secret(
        self, credential: ApplicationCredential | None, secret: str, *, named: str, address: str
    ) -> tuple[ApplicationCredential, User]:
        """(credential, its user) if the secret is right. Raises `Unauthorized` with one message, or `TooManyRequests`.
        `named` is what the caller gave, for an unknown credential.
        """
        accounts = self.identity.accounts()
        account = credential.id if credential else f"?credential {named}"
        self.identity.throttle.check(account, address)
        user = accounts.users.get(credential.user_id) if credential else None
        is_usable = (
            credential is not None
            and user is not None
            and accounts.is_enabled(user)
            and (credential.expires_at is None or self.identity.now() < credential.expires_at)
        )
        # Its hash in the place of the user's password: a login that fails takes as long, whatever the reason.
        carrier = User("", "", credential.secret_hash) if credential is not None and is_usable else None
        if not password_matches(carrier, secret, accounts.bcrypt_rounds) or credential is None or user is None:
            self.identity.throttle.record_failure(account, address)
            raise Unauthorized(
                "the application credential is unknown or has expired, or its secret is wrong",
                code="identity.application_credential",
            )
        self.identity.throttle.record_success(account, address)
        return credential, user


def check_may_manage(holder: AuthenticatedCaller) -> None:
    """Raises `Forbidden` for a token of a restricted credential, which could otherwise outlive its revocation."""
    if holder.credential is not None and not holder.credential.unrestricted:
        raise Forbidden(
            "A token of an application credential may not manage application credentials, unless the credential is "
            "unrestricted.",
            code="identity.restricted",
        )


def _find(accounts: Accounts, user_id: str, credential_id: str) -> ApplicationCredential:
    credential = accounts.credentials.get(credential_id)
    if credential is None or credential.user_id != user_id:
        raise NotFound(f"Could not find Application Credential: {credential_id}.")
    return credential


def _role_ids(accounts: Accounts, holder: AuthenticatedCaller, wanted: list[Given] | None) -> tuple[str, ...]:
    """The ids of the wanted roles, by default all of the token. Raises `Invalid` for a role that the token lacks."""
    held = {role.id: role.name for role in accounts.roles.values() if role.name in with_implied(holder.roles)}
    if not wanted:
        return tuple(sorted(each for each, name in held.items() if name in holder.roles))
    ids = {name: each for each, name in held.items()}
    chosen = []
    for row in wanted:
        found = row["id"] if row.get("id") in held else ids.get(row.get("name", ""))
        if found is None:
            raise Invalid(f"The token has no role {row.get('name') or row.get('id')} to pass on to the credential.")
        chosen.append(found)
    return tuple(sorted(set(chosen)))


def _expiry(text: str | None, now: datetime) -> datetime | None:
    """Raises `Invalid` for a time that is malformed or over. A time without zone is UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"expires_at is no time such as 2030-01-31T12:00:00Z: {text[:64]}") from error
    if moment <= now:
        raise Invalid(f"expires_at is over: {text[:64]}")
    return moment.replace(microsecond=0)
