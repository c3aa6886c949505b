"""``/moorage/v1/users`` and ``/moorage/v1/invitations``: what Keystone's API does not have.

GET    /moorage/v1/users                 ``{"users": [{"id", "name", "domain_id", "enabled", "is_service",
                                         "has_password", "password_changed_at", "invited_until", "failed_logins",
                                         "locked_until", "addresses",
                                         "projects": [{"id", "name", "roles", "indirect_roles", "is_service"}]}]}``;
                                         `locked_until`: until when a login from some of `addresses` must wait;
                                         `indirect_roles`: through a group, a domain or another role
DELETE /moorage/v1/users/{user_id}/lock  forgets the user's failed logins, in all processes within a second
POST   /moorage/v1/users/{user_id}/invitation  ``{"expires_s": 259200}`` -> 201 ``{"token", "expires_at"}``; replaces
                                         an earlier one
DELETE /moorage/v1/users/{user_id}/invitation  withdraws it

Called by the invited person, without a token of a session:

POST   /moorage/v1/invitations/password  ``{"token", "password"}`` -> 200 ``{"user": {"id", "name"}}``
"""

from collections.abc import Callable
from datetime import datetime

from moorage.identity.model import Accounts, Project, User
from moorage.identity.service import IdentityService
from moorage.identity.tokens.throttle import FailedLogins
from moorage.wire.http import Request, Response


def list_users(request: Request[IdentityService]) -> Response:
    identity = request.service.identity
    accounts = identity.accounts()
    failures = identity.failed_logins()
    direct = _direct_roles(accounts)
    rows = [
        _shown(user, failures.get(user.id), accounts, direct, identity.is_service_project)
        | {
            "is_service": identity.is_service_user(user),
            "invited_until": _time(request.service.invitations.invited_until(accounts, user)),
        }
        for user in sorted(accounts.users.values(), key=lambda user: user.name)
    ]
    return Response(body={"users": rows})


def clear_lock(request: Request[IdentityService], user_id: str) -> Response:
    request.service.people.unlock_user(user_id)
    return Response(204)


def invite_user(request: Request[IdentityService], user_id: str) -> Response:
    token, expires_at = request.service.invitations.invite(user_id, request.json["expires_s"])
    return Response(201, {"token": token, "expires_at": expires_at.isoformat()})


def withdraw_invitation(request: Request[IdentityService], user_id: str) -> Response:
    request.service.invitations.withdraw(user_id)
    return Response(204)


def choose_password(request: Request[IdentityService]) -> Response:
    user = request.service.invitations.accept(request.json["token"], request.json["password"], request.address)
    if request.change is not None:
        request.change.set_initiator(id=user.id, name=user.name)
    return Response(body={"user": {"id": user.id, "name": user.name}})


def _direct_roles(accounts: Accounts) -> dict[tuple[str, str], set[str]]:
    """{(user id, project id): names of roles}"""
    found: dict[tuple[str, str], set[str]] = {}
    for row in accounts.assignments:
        if (row.actor_kind, row.target_kind) == ("user", "project") and row.role_id in accounts.roles:
            found.setdefault((row.actor_id, row.target_id), set()).add(accounts.roles[row.role_id].name)
    return found


def _shown(
    user: User,
    failed: FailedLogins | None,
    accounts: Accounts,
    direct: dict[tuple[str, str], set[str]],
    is_service: Callable[[Project], bool],
) -> dict[str, object]:
    def shown_project(project: Project) -> dict[str, object]:
        roles = direct.get((user.id, project.id), set())
        indirect = user.roles[project.id] - roles
        named = {"id": project.id, "name": project.name, "is_service": is_service(project)}
        return {**named, "roles": sorted(roles), "indirect_roles": sorted(indirect)}

    known = [accounts.projects[each] for each in user.roles if each in accounts.projects]
    return {
        "id": user.id,
        "name": user.name,
        "domain_id": user.domain_id,
        "enabled": accounts.is_enabled(user),
        "has_password": bool(user.password_hash),
        "password_changed_at": _time(user.password_changed_at),
        "failed_logins": failed.failures if failed else 0,
        "locked_until": _time(failed.locked_until) if failed else None,
        "addresses": [address for address in failed.addresses if address] if failed else [],
        "projects": [shown_project(project) for project in sorted(known, key=lambda project: project.name)],
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
