"""SQL statements of identity: reads everything, and writes records. The caller begins and ends the transactions."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, and_, bindparam, delete, insert, select, update

from moorage.identity.model import (
    AccountDomain,
    Accounts,
    ApplicationCredential,
    Assignment,
    CatalogEndpoint,
    CatalogService,
    Change,
    Group,
    GroupMember,
    ImpliedRole,
    Invitation,
    Project,
    Record,
    Region,
    Role,
    User,
    accounts_of,
)
from moorage.identity.store import tables as t

R = TypeVar("R", bound=Record)

#: The table of each kind of record. Its columns have the names of the record's fields.
_TABLES: dict[type[Any], Table] = {
    AccountDomain: t.domains,
    Project: t.projects,
    User: t.users,
    Group: t.user_groups,
    GroupMember: t.memberships,
    Role: t.roles,
    ImpliedRole: t.implied_roles,
    Assignment: t.assignments,
    ApplicationCredential: t.application_credentials,
    Invitation: t.invitations,
    Region: t.regions,
    CatalogService: t.services,
    CatalogEndpoint: t.endpoints,
}
#: The parameters of a WHERE are named so, because an UPDATE has its new values under the columns' names.
_KEY = "key_"
_ROW = 1


def _by_key(table: Table) -> Any:
    return and_(*(column == bindparam(f"{_KEY}{column.name}") for column in table.primary_key))


_INSERT = {kind: insert(table) for kind, table in _TABLES.items()}
_UPDATE = {kind: update(table).where(_by_key(table)) for kind, table in _TABLES.items()}
_DELETE = {kind: delete(table).where(_by_key(table)) for kind, table in _TABLES.items()}
_NEXT_REVISION = update(t.revision).values(value=t.revision.c.value + 1)
_REVISION = select(t.revision.c.value)


def read_revision(connection: Connection) -> int:
    return int(connection.execute(_REVISION).scalar_one())


def next_revision(connection: Connection) -> int:
    """Begins a change: increments the revision and thereby waits for the transactions of other writers."""
    connection.execute(_NEXT_REVISION)
    return read_revision(connection)


def read_accounts(connection: Connection) -> Accounts:
    def every(kind: type[R]) -> Iterable[R]:
        table = _TABLES[kind]
        for row in connection.execute(select(table).order_by(*table.primary_key)):
            yield kind(**{name: _from_column(value) for name, value in row._mapping.items()})

    users = {user.id: user for user in every(User)}
    costs = [int(user.password_hash[4:6]) for user in users.values() if user.password_hash]
    return accounts_of(
        Accounts(
            users=users,
            projects={project.id: project for project in every(Project)},
            bcrypt_rounds=max(set(costs), key=costs.count) if costs else Accounts.bcrypt_rounds,
            domains={domain.id: domain for domain in every(AccountDomain)},
            groups={group.id: group for group in every(Group)},
            roles={role.id: role for role in every(Role)},
            memberships=frozenset(every(GroupMember)),
            implied_roles=frozenset(every(ImpliedRole)),
            assignments=frozenset(every(Assignment)),
            credentials={credential.id: credential for credential in every(ApplicationCredential)},
            invitations={invitation.user_id: invitation for invitation in every(Invitation)},
            regions={region.id: region for region in every(Region)},
            services={service.id: service for service in every(CatalogService)},
            endpoints={endpoint.id: endpoint for endpoint in every(CatalogEndpoint)},
        )
    )


def write_change(connection: Connection, change: Change) -> None:
    for record in change.removed:
        connection.execute(_DELETE[type(record)], _key(record))
    for record in change.changed:
        connection.execute(_UPDATE[type(record)], _key(record) | _values(record))
    for record in change.added:
        connection.execute(_INSERT[type(record)], _values(record))


def read_import(connection: Connection) -> tuple[str, str] | None:
    """(path, SHA-256) of the users file that was imported; None if there was none."""
    row = connection.execute(select(t.imports.c.path, t.imports.c.sha256)).one_or_none()
    return None if row is None else (row.path, row.sha256)


def record_import(connection: Connection, path: str, sha256: str, now: datetime) -> None:
    connection.execute(insert(t.imports), {"id": _ROW, "path": path, "sha256": sha256, "imported_at": now})


def _key(record: Record) -> dict[str, object]:
    return {f"{_KEY}{column.name}": getattr(record, column.name) for column in _TABLES[type(record)].primary_key}


def _values(record: Record) -> dict[str, object]:
    columns = _TABLES[type(record)].columns
    return {item.name: getattr(record, item.name) for item in fields(record) if item.name in columns}


def _from_column(value: Any) -> Any:
    """JSON's lists become tuples, since records are immutable."""
    return tuple(value) if isinstance(value, list) else value
