"""Use cases of roles: who has which role where, and which roles imply others."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from moorage.core.errors import Conflict, Forbidden, NotFound
from moorage.core.ids import Ids
from moorage.identity.accounts import account_rules as rules
from moorage.identity.accounts.account_rules import find
from moorage.identity.accounts.account_service import Given
from moorage.identity.embedded import EmbeddedIdentity
from moorage.identity.model import WHOLE_SYSTEM, Accounts, Assignment, Change, ImpliedRole, Role
from moorage.identity.policy import BUILT_IN_IMPLIED, with_implied
from moorage.identity.store.account_database import AccountDatabase

#: The roles that the first start gives to the services' user.
_SERVICE_ROLES = ("admin", "service")


@dataclass(frozen=True)
class RoleService:
    identity: EmbeddedIdentity
    ids: Ids

    @property
    def database(self) -> AccountDatabase:
        return self.identity.database

    def create_role(self, given: Given) -> Role:
        """Raises `Forbidden` for a role of one domain, which this service does not have."""
        if given.get("domain_id") is not None:
            raise Forbidden("This service has no roles of one domain; leave domain_id out.")
        role = Role(self.ids.uuid().replace("-", ""), given["name"], given.get("description") or "")

        def decide(accounts: Accounts) -> tuple[Role, Change]:
            return role, Change(added=(rules.check_name(role, accounts.roles.values()),))

        return self.database.change(decide)

    def update_role(self, role_id: str, given: Given) -> Role:
        def decide(accounts: Accounts) -> tuple[Role, Change]:
            before = find(accounts.roles, role_id, "role")
            description = given.get("description", before.description) or ""
            after = replace(before, name=given.get("name", before.name), description=description)
            rules.check_role_change(before, after)
            return after, Change(changed=(rules.check_name(after, accounts.roles.values()),))

        return self.database.change(decide)

    def delete_role(self, role_id: str) -> None:
        self.database.change(
            lambda accounts: (None, rules.without_role(accounts, find(accounts.roles, role_id, "role")))
        )

    def grant(self, row: Assignment) -> None:
        def decide(accounts: Accounts) -> tuple[None, Change]:
            _check_exists(accounts, row)
            return None, Change() if row in accounts.assignments else Change(added=(row,))

        self.database.change(decide)

    def revoke(self, row: Assignment) -> None:
        """Raises `NotFound` if there is no such assignment, and `Forbidden` for one that the services need."""

        def decide(accounts: Accounts) -> tuple[None, Change]:
            _check_granted(accounts, row)
            if self._is_of_services(accounts, row):
                name = accounts.roles[row.role_id].name
                raise Forbidden(
                    f"The services of this cloud log in with the role {name}; it cannot be removed from their user.",
                    code="identity.service_role",
                )
            return None, Change(removed=(row,))

        self.database.change(decide)

    def _is_of_services(self, accounts: Accounts, row: Assignment) -> bool:
        if (row.actor_kind, row.target_kind) != ("user", "project"):
            return False
        user, project = accounts.users[row.actor_id], accounts.projects[row.target_id]
        is_theirs = self.identity.is_service_user(user) and self.identity.is_service_project(project)
        return is_theirs and accounts.roles[row.role_id].name in _SERVICE_ROLES

    def check_granted(self, row: Assignment) -> None:
        _check_granted(self.database.accounts(), row)

    def granted_roles(self, row: Assignment) -> list[Role]:
        """The roles of the actor on the target of `row`, whose role is ignored. Raises `NotFound`."""
        accounts = self.database.accounts()
        _check_ends(accounts, row)
        ids = (each.role_id for each in accounts.assignments if replace(each, role_id=row.role_id) == row)
        return sorted((accounts.roles[each] for each in ids), key=lambda role: role.name)

    def implied_roles(self) -> dict[str, list[Role]]:
        """{role id: the roles that it implies directly}, with those that the policies imply."""
        accounts = self.database.accounts()
        found: dict[str, list[Role]] = {}
        for row in sorted(_all_implied(accounts), key=lambda row: (row.prior_id, row.implied_id)):
            found.setdefault(row.prior_id, []).append(accounts.roles[row.implied_id])
        return found

    def imply(self, prior_id: str, implied_id: str) -> tuple[Role, Role]:
        """(prior, implied). Raises `Forbidden` if everybody with the prior role would become an administrator, and
        `Conflict` for a circle.
        """

        def decide(accounts: Accounts) -> tuple[tuple[Role, Role], Change]:
            prior, implied = find(accounts.roles, prior_id, "role"), find(accounts.roles, implied_id, "role")
            row = ImpliedRole(prior.id, implied.id)
            if "admin" in accounts.with_implied([implied_id]):
                raise Forbidden(f"The role {implied.name} cannot be implied: it would make administrators.")
            if prior_id in accounts.with_implied([implied_id]):
                raise Conflict(f"The role {implied.name} already implies {prior.name}.")
            return (prior, implied), Change() if row in _all_implied(accounts) else Change(added=(row,))

        return self.database.change(decide)

    def check_implied(self, prior_id: str, implied_id: str) -> tuple[Role, Role]:
        """(prior, implied). Raises `NotFound`."""
        accounts = self.database.accounts()
        prior, implied = find(accounts.roles, prior_id, "role"), find(accounts.roles, implied_id, "role")
        if ImpliedRole(prior_id, implied_id) not in _all_implied(accounts):
            raise NotFound(f"{prior.name} does not imply {implied.name}.")
        return prior, implied

    def stop_implying(self, prior_id: str, implied_id: str) -> None:
        self.check_implied(prior_id, implied_id)

        def decide(accounts: Accounts) -> tuple[None, Change]:
            row = ImpliedRole(prior_id, implied_id)
            if row not in accounts.implied_roles:
                raise Forbidden(f"The policies of this cloud say that {prior_id} implies {implied_id}.")
            return None, Change(removed=(row,))

        self.database.change(decide)


def _all_implied(accounts: Accounts) -> set[ImpliedRole]:
    built_in = {
        ImpliedRole(prior, implied)
        for prior, names in BUILT_IN_IMPLIED.items()
        for implied in names
        if prior in accounts.roles and implied in accounts.roles
    }
    return built_in | accounts.implied_roles


def _check_ends(accounts: Accounts, row: Assignment) -> None:
    """Raises `NotFound` if the actor or the target of an assignment does not exist."""
    find(accounts.users if row.actor_kind == "user" else accounts.groups, row.actor_id, row.actor_kind)
    if row.target_kind == "project":
        find(accounts.projects, row.target_id, "project")
    elif row.target_kind == "domain":
        find(accounts.domains, row.target_id, "domain")
    else:
        find({WHOLE_SYSTEM: None}, row.target_id, "system")


def _check_exists(accounts: Accounts, row: Assignment) -> None:
    find(accounts.roles, row.role_id, "role")
    _check_ends(accounts, row)


def _check_granted(accounts: Accounts, row: Assignment) -> None:
    _check_exists(accounts, row)
    if row not in accounts.assignments:
        raise NotFound(f"Could not find role assignment with role: {row.role_id}.")


def effective_assignments(accounts: Accounts) -> Iterable[Assignment]:
    """The roles that users have in projects: through groups, inherited from domains, and implied by others."""
    ids = {role.name: role.id for role in accounts.roles.values()}
    for user in accounts.users.values():
        for project_id, names in user.roles.items():
            for name in sorted(with_implied(names) & ids.keys()):
                yield Assignment(ids[name], "user", user.id, "project", project_id)
