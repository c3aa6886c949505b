"""``/v3/roles``, the roles of users and groups on projects, domains and the system, and ``/v3/role_assignments``.

A handler of a grant gets the ids that its path has: `project_id` or `domain_id` (neither: the system), and `user_id` or
`group_id`.
"""

from collections.abc import Mapping

from moorage.identity.accounts.account_rules import find
from moorage.identity.accounts.role_service import effective_assignments
from moorage.identity.api.handlers.account_views import Document, listed, named_domain, role_document
from moorage.identity.model import WHOLE_SYSTEM, Accounts, Assignment, Group, Project, Role, User
from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response

#: The paths of roles that are inherited by the projects of a domain begin so.
INHERIT = "/v3/OS-INHERIT/"


def list_roles(request: Request[IdentityService]) -> Response:
    roles = sorted(_accounts(request).roles.values(), key=lambda role: role.name)
    # Keystone has roles of a domain, which a list shows only on request.
    rows = [] if request.query.first("domain_id") else [role_document(role, request.base_url) for role in roles]
    return listed(request, "roles", rows, "name")


def show_role(request: Request[IdentityService], role_id: str) -> Response:
    return Response(body={"role": role_document(find(_accounts(request).roles, role_id, "role"), request.base_url)})


def create_role(request: Request[IdentityService]) -> Response:
    role = request.service.roles.create_role(request.json["role"])
    return Response(201, {"role": role_document(role, request.base_url)})


def update_role(request: Request[IdentityService], role_id: str) -> Response:
    role = request.service.roles.update_role(role_id, request.json["role"])
    return Response(body={"role": role_document(role, request.base_url)})


def delete_role(request: Request[IdentityService], role_id: str) -> Response:
    request.service.roles.delete_role(role_id)
    return Response(204)


# ------------------------------------------------------------------------------------------------------ implied roles


def list_inferences(request: Request[IdentityService]) -> Response:
    roles = _accounts(request).roles
    rows: list[Document] = [
        {"prior_role": _short(roles[prior_id], request), "implies": [_short(role, request) for role in implied]}
        for prior_id, implied in request.service.roles.implied_roles().items()
    ]
    return listed(request, "role_inferences", rows)


def list_implied(request: Request[IdentityService], role_id: str) -> Response:
    prior = find(_accounts(request).roles, role_id, "role")
    implied = request.service.roles.implied_roles().get(role_id, [])
    rows = [_short(role, request) for role in implied]
    return Response(body={"role_inference": {"prior_role": _short(prior, request), "implies": rows}})


def show_implied(request: Request[IdentityService], role_id: str, implied_id: str) -> Response:
    return Response(body=_inference(request, *request.service.roles.check_implied(role_id, implied_id)))


def check_implied(request: Request[IdentityService], role_id: str, implied_id: str) -> Response:
    request.service.roles.check_implied(role_id, implied_id)
    return Response(204)


def put_implied(request: Request[IdentityService], role_id: str, implied_id: str) -> Response:
    return Response(201, _inference(request, *request.service.roles.imply(role_id, implied_id)))


def delete_implied(request: Request[IdentityService], role_id: str, implied_id: str) -> Response:
    request.service.roles.stop_implying(role_id, implied_id)
    return Response(204)


# ------------------------------------------------------------------------------------------------------------- grants


def list_grants(request: Request[IdentityService], **ids: str) -> Response:
    roles = request.service.roles.granted_roles(_grant(request, "", ids))
    return listed(request, "roles", [role_document(role, request.base_url) for role in roles])


def put_grant(request: Request[IdentityService], role_id: str, **ids: str) -> Response:
    request.service.roles.grant(_grant(request, role_id, ids))
    return Response(204)


def check_grant(request: Request[IdentityService], role_id: str, **ids: str) -> Response:
    request.service.roles.check_granted(_grant(request, role_id, ids))
    return Response(204)


def delete_grant(request: Request[IdentityService], role_id: str, **ids: str) -> Response:
    request.service.roles.revoke(_grant(request, role_id, ids))
    return Response(204)


def list_assignments(request: Request[IdentityService]) -> Response:
    query, accounts = request.query, _accounts(request)
    rows = effective_assignments(accounts) if _flag(request, "effective") else accounts.assignments
    wanted = {
        "role_id": query.first("role.id"),
        "user": query.first("user.id"),
        "group": query.first("group.id"),
        "project": query.first("scope.project.id"),
        "domain": query.first("scope.domain.id"),
        "system": WHOLE_SYSTEM if query.first("scope.system") else None,
        "inherited": query.first("scope.OS-INHERIT:inherited_to"),
    }
    chosen = {name: value for name, value in wanted.items() if value is not None}
    found = [row for row in rows if all(_facts(row).get(name) == value for name, value in chosen.items())]
    found.sort(key=lambda row: (row.actor_id, row.target_kind, row.target_id, row.role_id, row.inherited))
    names = _flag(request, "include_names")
    return listed(request, "role_assignments", [_assignment_document(request, accounts, row, names) for row in found])


def _grant(request: Request[IdentityService], role_id: str, ids: dict[str, str]) -> Assignment:
    actor = "user" if "user_id" in ids else "group"
    target = next((kind for kind in ("project", "domain") if f"{kind}_id" in ids), "system")
    return Assignment(
        role_id,
        actor,
        ids[f"{actor}_id"],
        target,
        ids.get(f"{target}_id", WHOLE_SYSTEM),
        inherited=request.path.startswith(INHERIT),
    )


def _facts(row: Assignment) -> dict[str, str]:
    """What the filters of the list compare."""
    inherited = {"inherited": "projects"} if row.inherited else {}
    return {"role_id": row.role_id, row.actor_kind: row.actor_id, row.target_kind: row.target_id, **inherited}


def _assignment_document(
    request: Request[IdentityService], accounts: Accounts, row: Assignment, names: bool
) -> Document:
    def named(kind: str, record_id: str) -> Document:
        if not names:
            return {"id": record_id}
        if kind == "domain":
            return named_domain(accounts, record_id)
        records: Mapping[str, Mapping[str, User | Group | Project]] = {
            "user": accounts.users,
            "group": accounts.groups,
            "project": accounts.projects,
        }
        record = records[kind][record_id]
        return {"id": record_id, "name": record.name, "domain": named_domain(accounts, record.domain_id)}

    role: Document = {"id": row.role_id}
    if names:
        role["name"] = accounts.roles[row.role_id].name
    scope: Document = (
        {"system": {"all": True}}
        if row.target_kind == "system"
        else {row.target_kind: named(row.target_kind, row.target_id)}
    )
    if row.inherited:
        scope["OS-INHERIT:inherited_to"] = "projects"
    target = "system" if row.target_kind == "system" else f"{row.target_kind}s/{row.target_id}"
    path = f"{target}/{row.actor_kind}s/{row.actor_id}/roles/{row.role_id}"
    url = f"{request.base_url}{INHERIT if row.inherited else '/v3/'}{path}"
    return {
        "role": role,
        row.actor_kind: named(row.actor_kind, row.actor_id),
        "scope": scope,
        "links": {"assignment": f"{url}/inherited_to_projects" if row.inherited else url},
    }


def _inference(request: Request[IdentityService], prior: Role, implied: Role) -> Document:
    return {"role_inference": {"prior_role": _short(prior, request), "implies": _short(implied, request)}}


def _short(role: Role, request: Request[IdentityService]) -> Document:
    return {"id": role.id, "name": role.name, "links": {"self": f"{request.base_url}/v3/roles/{role.id}"}}


def _flag(request: Request[IdentityService], name: str) -> bool:
    """As in Keystone, a parameter without a value is set."""
    value = request.query.first(name)
    return value is not None and value.lower() not in ("0", "false", "no")


def _accounts(request: Request[IdentityService]) -> Accounts:
    return request.service.identity.accounts()
