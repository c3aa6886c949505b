"""``/v3/domains``, ``/v3/projects``, ``/v3/users`` and ``/v3/groups``.

Callers without the rule for foreign objects see only themselves and their projects: others are not found.
"""

from moorage.core.errors import Invalid, NotFound
from moorage.identity.accounts.account_rules import find
from moorage.identity.api.handlers.account_views import (
    domain_document,
    group_document,
    listed,
    project_document,
    user_document,
)
from moorage.identity.model import Accounts, Group, Project
from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response

# ----------------------------------------------------------------------------------------------------------- domains


def list_domains(request: Request[IdentityService]) -> Response:
    rows = [domain_document(domain, request.base_url) for domain in _accounts(request).domains.values()]
    return listed(request, "domains", rows, "name", "enabled")


def show_domain(request: Request[IdentityService], domain_id: str) -> Response:
    return Response(
        body={"domain": domain_document(find(_accounts(request).domains, domain_id, "domain"), request.base_url)}
    )


def create_domain(request: Request[IdentityService]) -> Response:
    domain = request.service.people.create_domain(request.json["domain"])
    return Response(201, {"domain": domain_document(domain, request.base_url)})


def update_domain(request: Request[IdentityService], domain_id: str) -> Response:
    domain = request.service.people.update_domain(domain_id, request.json["domain"])
    return Response(body={"domain": domain_document(domain, request.base_url)})


def delete_domain(request: Request[IdentityService], domain_id: str) -> Response:
    request.service.people.delete_domain(domain_id)
    return Response(204)


# ---------------------------------------------------------------------------------------------------------- projects


def list_projects(request: Request[IdentityService]) -> Response:
    projects = sorted(_accounts(request).projects.values(), key=lambda project: project.name)
    rows = [project_document(project, request.base_url) for project in projects]
    return listed(request, "projects", rows, "name", "domain_id", "parent_id", "enabled", "is_domain")


def show_project(request: Request[IdentityService], project_id: str) -> Response:
    project = request.service.get_project(
        request.caller, project_id, privileged=request.allowed("identity:get_any_project")
    )
    document = project_document(project, request.base_url) | _hierarchy(request, project)
    return Response(body={"project": document})


def _hierarchy(request: Request[IdentityService], project: Project) -> dict[str, object]:
    """``parents`` and ``subtree``, if the query asks for them: a project has only its domain above it, and nothing
    below. As in Keystone, the name of a parameter counts and not its value, and a list contains no domain.
    """
    shown: dict[str, object] = {}
    for key, prefix, ids in (("parents", "parents_as_", {project.domain_id: None}), ("subtree", "subtree_as_", None)):
        asked = request.query.names() & {f"{prefix}list", f"{prefix}ids"}
        if len(asked) == 2:
            raise Invalid(f"Use either {prefix}list or {prefix}ids, not both.")
        if asked:
            shown[key] = ids if f"{prefix}ids" in asked else []
    return shown


def create_project(request: Request[IdentityService]) -> Response:
    project = request.service.people.create_project(request.json["project"])
    return Response(201, {"project": project_document(project, request.base_url)})


def update_project(request: Request[IdentityService], project_id: str) -> Response:
    project = request.service.people.update_project(project_id, request.json["project"])
    return Response(body={"project": project_document(project, request.base_url)})


def delete_project(request: Request[IdentityService], project_id: str) -> Response:
    request.service.people.delete_project(project_id)
    return Response(204)


# ------------------------------------------------------------------------------------------------------------- users


def list_users(request: Request[IdentityService]) -> Response:
    users = sorted(_accounts(request).users.values(), key=lambda user: user.name)
    rows = [user_document(user, request.base_url) for user in users]
    return listed(request, "users", rows, "name", "domain_id", "enabled")


def show_user(request: Request[IdentityService], user_id: str) -> Response:
    user = request.service.get_user(request.caller, user_id, privileged=request.allowed("identity:get_any_user"))
    return Response(body={"user": user_document(user, request.base_url)})


def create_user(request: Request[IdentityService]) -> Response:
    user = request.service.people.create_user(request.json["user"])
    return Response(201, {"user": user_document(user, request.base_url)})


def update_user(request: Request[IdentityService], user_id: str) -> Response:
    user = request.service.people.update_user(user_id, request.json["user"])
    return Response(body={"user": user_document(user, request.base_url)})


def delete_user(request: Request[IdentityService], user_id: str) -> Response:
    request.service.people.delete_user(user_id)
    return Response(204)


def change_password(request: Request[IdentityService], user_id: str) -> Response:
    given = request.json["user"]
    request.service.change_password(user_id, given["original_password"], given["password"], request.address)
    return Response(204)


def list_user_projects(request: Request[IdentityService], user_id: str) -> Response:
    privileged = request.allowed("identity:get_any_user")
    projects = request.service.projects_of(request.caller, user_id, privileged=privileged)
    return listed(request, "projects", [project_document(project, request.base_url) for project in projects], "name")


def list_user_groups(request: Request[IdentityService], user_id: str) -> Response:
    user = request.service.get_user(request.caller, user_id, privileged=request.allowed("identity:get_any_user"))
    accounts = _accounts(request)
    groups = [accounts.groups[row.group_id] for row in accounts.memberships if row.user_id == user.id]
    return listed(request, "groups", _by_name(groups, request.base_url), "name")


# ------------------------------------------------------------------------------------------------------------ groups


def list_groups(request: Request[IdentityService]) -> Response:
    rows = _by_name(list(_accounts(request).groups.values()), request.base_url)
    return listed(request, "groups", rows, "name", "domain_id")


def show_group(request: Request[IdentityService], group_id: str) -> Response:
    group = find(_accounts(request).groups, group_id, "group")
    return Response(body={"group": group_document(group, request.base_url)})


def create_group(request: Request[IdentityService]) -> Response:
    group = request.service.people.create_group(request.json["group"])
    return Response(201, {"group": group_document(group, request.base_url)})


def update_group(request: Request[IdentityService], group_id: str) -> Response:
    group = request.service.people.update_group(group_id, request.json["group"])
    return Response(body={"group": group_document(group, request.base_url)})


def delete_group(request: Request[IdentityService], group_id: str) -> Response:
    request.service.people.delete_group(group_id)
    return Response(204)


def list_members(request: Request[IdentityService], group_id: str) -> Response:
    accounts = _accounts(request)
    find(accounts.groups, group_id, "group")
    users = sorted(
        (accounts.users[row.user_id] for row in accounts.memberships if row.group_id == group_id),
        key=lambda user: user.name,
    )
    return listed(request, "users", [user_document(user, request.base_url) for user in users], "name")


def add_member(request: Request[IdentityService], group_id: str, user_id: str) -> Response:
    request.service.people.add_member(group_id, user_id)
    return Response(204)


def check_member(request: Request[IdentityService], group_id: str, user_id: str) -> Response:
    if not request.service.people.is_member(group_id, user_id):
        raise NotFound(f"Could not find user: {user_id} in group {group_id}.")
    return Response(204)


def remove_member(request: Request[IdentityService], group_id: str, user_id: str) -> Response:
    request.service.people.remove_member(group_id, user_id)
    return Response(204)


def _accounts(request: Request[IdentityService]) -> Accounts:
    return request.service.identity.accounts()


def _by_name(groups: list[Group], base_url: str) -> list[dict[str, object]]:
    return [group_document(group, base_url) for group in sorted(groups, key=lambda group: group.name)]
