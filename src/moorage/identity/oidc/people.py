"""The user of a person whom a provider knows, and the roles that the mapping gives to it. Pure.

A person is identified by issuer and subject alone: the id of the user is their digest. Users of a provider are in a
domain of their own, so a name that the provider chose is never that of a local user.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from moorage.core.errors import Invalid
from moorage.identity.model import DOMAIN_ID, AccountDomain, Accounts, Assignment, Change, Record, User
from moorage.identity.oidc.mapping import MAX_LENGTH, Grant

#: Of a name; the rest of the column is for the suffix of a name that is taken.
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class ProviderPerson:
    """`subject` is the value of the claim that identifies the person at this issuer for ever."""

    issuer: str
    subject: str
    name: str

    @property
    def user_id(self) -> str:
        return _digest(self.issuer, self.subject)

    @property
    def domain_id(self) -> str:
        return _digest(self.issuer)[:32]


def person_of(claims: Mapping[str, object], issuer: str, person_claim: str, name_claim: str) -> ProviderPerson:
    """Raises `Invalid` if the claims identify nobody. Control characters in the name are left out."""
    subject = claims.get(person_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_LENGTH:
        raise Invalid(f"the claim {person_claim} must be a text of 1 to {MAX_LENGTH} characters")
    name = claims.get(name_claim)
    shown = "".join(one for one in name if one.isprintable()).strip() if isinstance(name, str) else ""
    return ProviderPerson(issuer, subject, shown[:_MAX_NAME] or subject[:_MAX_NAME])


def unknown_grants(accounts: Accounts, grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Those whose project or role does not exist."""
    return tuple(grant for grant in grants if _target(accounts, grant) is None)


def account_change(accounts: Accounts, person: ProviderPerson, grants: Sequence[Grant]) -> tuple[str | None, Change]:
    """(id of the person's user, what to write so that the user has the roles of `grants` and no other).

    The id is None for a person without a role here; then no user is made, and a known one loses its roles.
    """
    known = accounts.users.get(person.user_id)
    targets = [target for grant in grants if (target := _target(accounts, grant)) is not None]
    wanted = {Assignment(role_id, "user", person.user_id, "project", project_id) for project_id, role_id in targets}
    held = {row for row in accounts.assignments if (row.actor_kind, row.actor_id) == ("user", person.user_id)}
    groups = {row for row in accounts.memberships if row.user_id == person.user_id}
    removed = (*_sorted(held - wanted), *_sorted(groups))
    if not wanted:
        return None, Change(removed=removed)
    added: list[Record] = []
    if person.domain_id not in accounts.domains:
        description = "People of an OpenID provider; made at the first sign-in"
        added.append(AccountDomain(person.domain_id, person.issuer, description))
    projects = [project_id for project_id, _ in targets]
    before = known or User(person.user_id, "", "", domain_id=person.domain_id)
    after = replace(
        before,
        name=_free_name(accounts, person),
        default_project_id=before.default_project_id if before.default_project_id in projects else projects[0],
        extra={**before.extra, "oidc_issuer": person.issuer, "oidc_subject": person.subject},
    )
    if known is None:
        added.append(after)
    changed = (after,) if known is not None and after != known else ()
    return person.user_id, Change(added=(*added, *_sorted(wanted - held)), changed=changed, removed=removed)


def _target(accounts: Accounts, grant: Grant) -> tuple[str, str] | None:
    """(project id, role id)"""
    project = accounts.project_named(grant.project, DOMAIN_ID)
    role = next((role for role in accounts.roles.values() if role.name == grant.role), None)
    return (project.id, role.id) if project and role else None


def _free_name(accounts: Accounts, person: ProviderPerson) -> str:
    """The person's name, with a part of the id behind it if another person of the domain has it."""
    other = accounts.user_named(person.name, person.domain_id)
    return person.name if other is None or other.id == person.user_id else f"{person.name} ({person.user_id[:12]})"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _sorted(rows: Iterable[Record]) -> list[Record]:
    """In one order in every run, so that concurrent writers lock rows in the same order."""
    return sorted(rows, key=repr)
