"""Use cases of domains, projects, users and groups. Each change is one transaction, and ends the tokens that it must.

Not here: who may call them (`routes`), and what is removed with a record (`account_rules`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from moorage.core.errors import Forbidden, Invalid, NotFound
from moorage.core.ids import Ids
from moorage.identity.accounts import account_rules as rules
from moorage.identity.accounts.account_rules import find
from moorage.identity.embedded import EmbeddedIdentity
from moorage.identity.model import (
    DOMAIN_ID,
    AccountDomain,
    Accounts,
    Change,
    Group,
    GroupMember,
    Project,
    User,
)

#: The attributes of a record as a request names them; unknown ones are kept in `extra` where the record has it.
Given: TypeAlias = Mapping[str, Any]

#: Bound of what is kept in `extra`.
MAX_EXTRA_BYTES = 16_384


@dataclass(frozen=True)
class AccountService:
    identity: EmbeddedIdentity
    ids: Ids

    # ------------------------------------------------------------------------------------------------- domains

    def create_domain(self, given: Given) -> AccountDomain:
        domain = AccountDomain(
            self._new_id(), given["name"], given.get("description") or "", given.get("enabled", True)
        )

        def decide(accounts: Accounts) -> tuple[AccountDomain, Change]:
            return domain, Change(added=(rules.check_name(domain, accounts.domains.values()),))

        return self.identity.database.change(decide)

    def update_domain(self, domain_id: str, given: Given) -> AccountDomain:
        def decide(accounts: Accounts) -> tuple[AccountDomain, Change]:
            before = find(accounts.domains, domain_id, "domain")
            after = replace(before, **chosen(given, "name", "description", "enabled"))
            rules.check_domain_change(before, after)
            ended: list[User] = []
            if before.enabled and not after.enabled:  # its tokens stay invalid when it is enabled again
                ended = [_ended(user) for user in accounts.users.values() if user.domain_id == domain_id]
            return after, Change(changed=(rules.check_name(after, accounts.domains.values()), *ended))

        return self.identity.database.change(decide)

    def delete_domain(self, domain_id: str) -> None:
        self._remove(lambda accounts: rules.without_domain(accounts, find(accounts.domains, domain_id, "domain")))

    # ------------------------------------------------------------------------------------------------ projects

    def create_project(self, given: Given) -> Project:
        domain_id = _domain_of(given)
        if given.get("parent_id") not in (None, domain_id) or given.get("is_domain"):
            raise Invalid("This service has no projects below projects: parent_id must be the id of the domain.")
        project = Project(
            id=self._new_id(),
            name=given["name"],
            description=given.get("description") or "",
            enabled=given.get("enabled", True),
            domain_id=domain_id,
            tags=tuple(given.get("tags", ())),
            extra=extra_of({}, given, _PROJECT_KEYS),
        )

        def decide(accounts: Accounts) -> tuple[Project, Change]:
            find(accounts.domains, project.domain_id, "domain")
            return project, Change(added=(rules.check_name(project, accounts.projects.values()),))

        return self.identity.database.change(decide)

    def update_project(self, project_id: str, given: Given) -> Project:
        """Raises `Forbidden` for a change that would keep the services of the plane from logging in."""

        def decide(accounts: Accounts) -> tuple[Project, Change]:
            before = find(accounts.projects, project_id, "project")
            _refuse_move(before, given)
            after = replace(
                before,
                **chosen(given, "name", "description", "enabled"),
                tags=tuple(given.get("tags", before.tags)),
                extra=extra_of(before.extra, given, _PROJECT_KEYS),
            )
            if self.identity.is_service_project(before) and (not after.enabled or after.name != before.name):
                raise _services_need_project(before)
            if before.enabled and not after.enabled:
                after = replace(after, epoch=before.epoch + 1)
            return after, Change(changed=(rules.check_name(after, accounts.projects.values()),))

        return self.identity.database.change(decide)

    def delete_project(self, project_id: str) -> None:
        def decide(accounts: Accounts) -> Change:
            project = find(accounts.projects, project_id, "project")
            if self.identity.is_service_project(project):
                raise _services_need_project(project)
            return rules.without_project(accounts, project)

        self._remove(decide)

    # --------------------------------------------------------------------------------------------------- users

    def create_user(self, given: Given) -> User:
        password = given.get("password")
        user = User(
            id=self._new_id(),
            name=given["name"],
            password_hash="" if password is None else self.identity.hash_of(password),
            default_project_id=given.get("default_project_id"),
            enabled=given.get("enabled", True),
            domain_id=_domain_of(given),
            extra=extra_of({}, given, _USER_KEYS),
            password_changed_at=None if password is None else self.identity.now(),
        )

        def decide(accounts: Accounts) -> tuple[User, Change]:
            find(accounts.domains, user.domain_id, "domain")
            return user, Change(added=(rules.check_name(user, accounts.users.values()),))

        return self.identity.database.change(decide)

    def update_user(self, user_id: str, given: Given) -> User:
        """Raises `Forbidden` for a change that would keep the services of the plane from logging in."""
        password = given.get("password")
        password_hash = None if password is None else self.identity.hash_of(password)

        def decide(accounts: Accounts) -> tuple[User, Change]:
            before = find(accounts.users, user_id, "user")
            _refuse_move(before, given)
            after = replace(
                before,
                **chosen(given, "name", "enabled"),
                password_hash=before.password_hash if password_hash is None else password_hash,
                default_project_id=given.get("default_project_id", before.default_project_id),
                extra=extra_of(before.extra, given, _USER_KEYS),
                password_changed_at=before.password_changed_at if password_hash is None else self.identity.now(),
            )
            if self.identity.is_service_user(before) and (not after.enabled or after.name != before.name):
                raise _services_need(before)
            if before.enabled and not after.enabled:
                after = _ended(after)
            return after, Change(changed=(rules.check_name(after, accounts.users.values()),))

        changed = self.identity.database.change(decide)
        if password is not None:
            self.identity.update_first_password(changed, password)
        return changed

    def unlock_user(self, user_id: str) -> None:
        """Forgets the user's failed logins: here when this returns, in other processes within `RELOAD_PERIOD`. Raises
        `NotFound`.
        """

        def decide(accounts: Accounts) -> tuple[User, Change]:
            user = find(accounts.users, user_id, "user")
            after = replace(user, unlocks=user.unlocks + 1)
            return after, Change(changed=(after,))

        unlocked = self.identity.database.change(decide)
        self.identity.throttle.apply_unlocks([(unlocked.id, unlocked.unlocks)])

    def delete_user(self, user_id: str) -> None:
        def decide(accounts: Accounts) -> Change:
            user = find(accounts.users, user_id, "user")
            if self.identity.is_service_user(user):
                raise _services_need(user)
            return rules.without_user(accounts, user)

        self._remove(decide)

    # -------------------------------------------------------------------------------------------------- groups

    def create_group(self, given: Given) -> Group:
        group = Group(
            self._new_id(),
            given["name"],
            given.get("description") or "",
            _domain_of(given),
            extra_of({}, given, _GROUP_KEYS),
        )

        def decide(accounts: Accounts) -> tuple[Group, Change]:
            find(accounts.domains, group.domain_id, "domain")
            return group, Change(added=(rules.check_name(group, accounts.groups.values()),))

        return self.identity.database.change(decide)

    def update_group(self, group_id: str, given: Given) -> Group:
        def decide(accounts: Accounts) -> tuple[Group, Change]:
            before = find(accounts.groups, group_id, "group")
            _refuse_move(before, given)
            extra = extra_of(before.extra, given, _GROUP_KEYS)
            after = replace(before, **chosen(given, "name", "description"), extra=extra)
            return after, Change(changed=(rules.check_name(after, accounts.groups.values()),))

        return self.identity.database.change(decide)

    def delete_group(self, group_id: str) -> None:
        self._remove(lambda accounts: rules.without_group(accounts, find(accounts.groups, group_id, "group")))

    def add_member(self, group_id: str, user_id: str) -> None:
        def decide(accounts: Accounts) -> tuple[None, Change]:
            row = _member(accounts, group_id, user_id)
            return None, Change() if row in accounts.memberships else Change(added=(row,))

        self.identity.database.change(decide)

    def remove_member(self, group_id: str, user_id: str) -> None:
        def decide(accounts: Accounts) -> Change:
            row = _member(accounts, group_id, user_id)
            if row not in accounts.memberships:
                raise NotFound(f"Could not find user: {user_id} in group {group_id}.")
            return Change(removed=(row,))

        self._remove(decide)

    def is_member(self, group_id: str, user_id: str) -> bool:
        accounts = self.identity.accounts()
        return _member(accounts, group_id, user_id) in accounts.memberships

    def _remove(self, decide: Callable[[Accounts], Change]) -> None:
        self.identity.database.change(lambda accounts: (None, decide(accounts)))

    def _new_id(self) -> str:
        return self.ids.uuid().replace("-", "")


_PROJECT_KEYS = frozenset(
    {"id", "name", "description", "enabled", "domain_id", "parent_id", "is_domain", "tags", "options", "links"}
)
_USER_KEYS = frozenset(
    {
        "id", "name", "password", "enabled", "domain_id", "default_project_id", "options", "links",
        "password_expires_at", "original_password",
    }
)  # fmt: skip
_GROUP_KEYS = frozenset({"id", "name", "description", "domain_id", "links"})


def chosen(given: Given, *names: str) -> dict[str, Any]:
    """The attributes `names` that the request has; an empty text for null."""
    return {name: "" if given[name] is None else given[name] for name in names if name in given}


def extra_of(before: Mapping[str, object], given: Given, known: frozenset[str]) -> dict[str, object]:
    """The attributes that this service only stores. Raises `Invalid` beyond `MAX_EXTRA_BYTES`."""
    extra = {**before, **{name: value for name, value in given.items() if name not in known}}
    if len(str(extra)) > MAX_EXTRA_BYTES:
        raise Invalid(f"The attributes {', '.join(extra)[:200]} are longer than {MAX_EXTRA_BYTES} bytes together.")
    return extra


def _domain_of(given: Given) -> str:
    return str(given.get("domain_id") or DOMAIN_ID)


def _refuse_move(before: Project | User | Group, given: Given) -> None:
    if given.get("domain_id", before.domain_id) != before.domain_id:
        raise Invalid(f"The domain of {before.name} cannot be changed.")


def _ended(user: User) -> User:
    return replace(user, epoch=user.epoch + 1)


def _member(accounts: Accounts, group_id: str, user_id: str) -> GroupMember:
    """Raises `NotFound` for an unknown user or group."""
    find(accounts.groups, group_id, "group")
    find(accounts.users, user_id, "user")
    return GroupMember(user_id, group_id)


def _services_need(user: User) -> Forbidden:
    return Forbidden(
        f"The services of this cloud log in as {user.name}; it cannot be deleted, disabled or renamed.",
        code="identity.service_user",
    )


def _services_need_project(project: Project) -> Forbidden:
    return Forbidden(
        f"The services of this cloud log in to the project {project.name}; it cannot be deleted, disabled or renamed.",
        code="identity.service_project",
    )
