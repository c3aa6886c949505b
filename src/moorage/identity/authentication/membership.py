"""Looks up the present roles of a user in a project, for work in the user's name without a token: `caller_now`.

| mode | class | asks |
|---|---|---|
| embedded, http_basic | `EmbeddedMembership` | the accounts in memory, which are at most a second old |
| keystone | `KeystoneMembership` | Keystone, with the credentials of the services, which may read users and roles |
| none | `EveryoneIsAdmin` | nothing |
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from moorage.core.caller import Caller
from moorage.core.errors import NotFound
from moorage.identity.model import caller_for
from moorage.wire.client import ServiceClient

if TYPE_CHECKING:
    from moorage.identity.embedded import EmbeddedIdentity


@dataclass(frozen=True)
class EmbeddedMembership:
    identity: "EmbeddedIdentity"

    def caller_now(self, user_id: str, project_id: str) -> Caller | None:
        accounts = self.identity.accounts()
        user, project = accounts.users.get(user_id), accounts.projects.get(project_id)
        if user is None or project is None or not user.roles_in(project):
            return None
        if not (accounts.is_enabled(user) and accounts.is_enabled(project)):
            return None
        return caller_for(user, project)


@dataclass(frozen=True)
class KeystoneMembership:
    """`keystone`: a client whose paths begin with ``/v3``."""

    keystone: ServiceClient

    def caller_now(self, user_id: str, project_id: str) -> Caller | None:
        try:
            user = self.keystone.get(f"/v3/users/{quote(user_id, safe='')}")["user"]
            project = self.keystone.get(f"/v3/projects/{quote(project_id, safe='')}")["project"]
            domain = self.keystone.get(f"/v3/domains/{quote(user['domain_id'], safe='')}")["domain"]
        except NotFound:
            return None
        if not (user["enabled"] and project["enabled"] and domain["enabled"]):
            return None
        wanted = f"user.id={quote(user_id)}&scope.project.id={quote(project_id)}&effective&include_names"
        rows = self.keystone.get(f"/v3/role_assignments?{wanted}")["role_assignments"]
        roles = frozenset(str(row["role"]["name"]).lower() for row in rows)
        if not roles:
            return None
        return Caller(user_id, project_id, roles, user_name=str(user["name"]), project_name=str(project["name"]))


class EveryoneIsAdmin:
    """In identity mode none, every caller on this machine is an administrator."""

    def caller_now(self, user_id: str, project_id: str) -> Caller | None:
        return Caller(user_id, project_id, frozenset({"admin"}))
