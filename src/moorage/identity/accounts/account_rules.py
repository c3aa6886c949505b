"""Which changes of accounts are possible, and what goes with a record that is removed. Pure.

Not here: who may make a change (`routes`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from moorage.core.errors import Conflict, Forbidden, Invalid, NotFound
from moorage.identity.model import (
    DOMAIN_ID,
    STANDARD_ROLES,
    AccountDomain,
    Accounts,
    Assignment,
    CatalogService,
    Change,
    Group,
    Project,
    Record,
    Region,
    Role,
    User,
)

N = TypeVar("N", AccountDomain, Project, User, Group, Role)
R = TypeVar("R")

#: What a record is called in messages.
_KINDS: Mapping[type[object], str] = {
    AccountDomain: "domain",
    Project: "project",
    User: "user",
    Group: "group",
    Role: "role",
}


def find(records: Mapping[str, R], record_id: str, kind: str) -> R:
    """Raises `NotFound` in Keystone's words."""
    try:
        return records[record_id]
    except KeyError:
        raise NotFound(f"Could not find {kind}: {record_id}.") from None


def check_name(record: N, others: Iterable[N]) -> N:
    """`record`. Raises `Conflict` if another record in its domain has its name."""
    domain_id = getattr(record, "domain_id", None)
    for other in others:
        if other.name == record.name and other.id != record.id and getattr(other, "domain_id", None) == domain_id:
            raise Conflict(
                f"Conflict occurred attempting to store {_KINDS[type(record)]} - it is not possible to have two with "
                f"the same name: {record.name}."
            )
    return record


def check_domain_change(before: AccountDomain, after: AccountDomain) -> None:
    """Raises `Forbidden` for changes that would stop the plane's own users."""
    if before.id == DOMAIN_ID and (not after.enabled or after.name != before.name):
        raise Forbidden("The services of this cloud log in to the domain default; it keeps its name and stays.")


def check_role_change(role: Role, after: Role | None) -> None:
    """Raises `Forbidden` if a role that policies name would be removed (None) or renamed."""
    if role.id in STANDARD_ROLES and (after is None or after.name != role.name):
        raise Forbidden(f"The policies of this cloud name the role {role.name}; it keeps its name and stays.")


def check_interface(interface: str) -> None:
    if interface not in ("public", "internal", "admin"):
        raise Invalid(f"The interface {interface} is not known; it is public, internal or admin.")


def without_user(accounts: Accounts, user: User) -> Change:
    members = [row for row in accounts.memberships if row.user_id == user.id]
    credentials = [row for row in accounts.credentials.values() if row.user_id == user.id]
    invitations = [accounts.invitations[user.id]] if user.id in accounts.invitations else []
    assignments = _assignments_of(accounts, "user", user.id)
    return Change(removed=(*assignments, *members, *credentials, *invitations, user))


def without_group(accounts: Accounts, group: Group) -> Change:
    members = [row for row in accounts.memberships if row.group_id == group.id]
    return Change(removed=(*_assignments_of(accounts, "group", group.id), *members, group))


def without_project(accounts: Accounts, project: Project) -> Change:
    credentials = [row for row in accounts.credentials.values() if row.project_id == project.id]
    users = [
        replace(user, default_project_id=None)
        for user in accounts.users.values()
        if user.default_project_id == project.id
    ]
    removed: tuple[Record, ...] = (*_assignments_on(accounts, "project", project.id), *credentials, project)
    return Change(changed=tuple(users), removed=removed)


def without_domain(accounts: Accounts, domain: AccountDomain) -> Change:
    """Removes all projects, users and groups of the domain as well. Raises `Forbidden` if the domain is enabled."""
    if domain.enabled:
        raise Forbidden("Cannot delete a domain that is enabled, please disable it first.")
    parts: list[Change] = [
        *(without_project(accounts, row) for row in accounts.projects.values() if row.domain_id == domain.id),
        *(without_user(accounts, row) for row in accounts.users.values() if row.domain_id == domain.id),
        *(without_group(accounts, row) for row in accounts.groups.values() if row.domain_id == domain.id),
    ]
    records: list[Record] = [record for part in parts for record in part.removed]
    records += [*_assignments_on(accounts, "domain", domain.id), domain]
    gone = {record.id for record in records if isinstance(record, User)}
    changed: dict[str, Record] = {
        record.id: record
        for part in parts
        for record in part.changed
        if isinstance(record, User) and record.id not in gone
    }
    # An assignment goes with its user and with its project: list it once.
    removed: dict[object, Record] = {_key(record): record for record in records}
    return Change(changed=tuple(changed.values()), removed=tuple(removed.values()))


def without_role(accounts: Accounts, role: Role) -> Change:
    check_role_change(role, None)
    assignments = [row for row in accounts.assignments if row.role_id == role.id]
    implied = [row for row in accounts.implied_roles if role.id in (row.prior_id, row.implied_id)]
    credentials = [
        replace(row, role_ids=tuple(each for each in row.role_ids if each != role.id))
        for row in accounts.credentials.values()
        if role.id in row.role_ids
    ]
    return Change(changed=tuple(credentials), removed=(*assignments, *implied, role))


def without_service(accounts: Accounts, service: CatalogService) -> Change:
    endpoints = [row for row in accounts.endpoints.values() if row.service_id == service.id]
    return Change(removed=(*endpoints, service))


def without_region(accounts: Accounts, region: Region) -> Change:
    """Raises `Forbidden` for a region with endpoints, and `Conflict` for one with regions below it."""
    if any(row.region_id == region.id for row in accounts.endpoints.values()):
        raise Forbidden(f"Region {region.id} has endpoints; delete them first.")
    if below := [row.id for row in accounts.regions.values() if row.parent_region_id == region.id]:
        raise Conflict(f"Region {region.id} is the parent of {', '.join(below)}; delete these first.")
    return Change(removed=(region,))


def _assignments_of(accounts: Accounts, kind: str, actor_id: str) -> list[Assignment]:
    return [row for row in accounts.assignments if (row.actor_kind, row.actor_id) == (kind, actor_id)]


def _assignments_on(accounts: Accounts, kind: str, target_id: str) -> list[Assignment]:
    return [row for row in accounts.assignments if (row.target_kind, row.target_id) == (kind, target_id)]


def _key(record: Record) -> object:
    """The same for two records of one row."""
    return (type(record), getattr(record, "id", record))
