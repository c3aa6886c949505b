"""Projects, users, roles and the one domain. Read-only except for passwords, since people edit the users file."""

from moorage.core.errors import NotFound
from moorage.identity.model import DOMAIN_ID, DOMAIN_NAME, Project, User
from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response


def list_projects(request: Request[IdentityService]) -> Response:
    rows = [project_document(project, request.base_url) for project in request.service.list_projects(_name(request))]
    return _listed(request, "projects", rows if _in_our_domain(request) else [])


def show_project(request: Request[IdentityService], project_id: str) -> Response:
    project = request.service.get_project(
        request.caller, project_id, privileged=request.allowed("identity:get_any_project")
    )
    return Response(body={"project": project_document(project, request.base_url)})


def list_users(request: Request[IdentityService]) -> Response:
    rows = [_user(user, request.base_url) for user in request.service.list_users(_name(request))]
    return _listed(request, "users", rows if _in_our_domain(request) else [])


def show_user(request: Request[IdentityService], user_id: str) -> Response:
    user = request.service.get_user(request.caller, user_id, privileged=request.allowed("identity:get_any_user"))
    return Response(body={"user": _user(user, request.base_url)})


def change_password(request: Request[IdentityService], user_id: str) -> Response:
    given = request.json["user"]
    request.service.change_password(user_id, given["original_password"], given["password"], request.address)
    return Response(204)


def list_user_projects(request: Request[IdentityService], user_id: str) -> Response:
    privileged = request.allowed("identity:get_any_user")
    projects = request.service.projects_of(request.caller, user_id, privileged=privileged)
    return _listed(request, "projects", [project_document(project, request.base_url) for project in projects])


def list_roles(request: Request[IdentityService]) -> Response:
    return _listed(
        request, "roles", [_role(role, request.base_url) for role in request.service.list_roles(_name(request))]
    )


def show_role(request: Request[IdentityService], role_id: str) -> Response:
    if not request.service.list_roles(role_id):
        raise NotFound(f"Could not find role: {role_id}.")
    return Response(body={"role": _role(role_id, request.base_url)})


def list_domains(request: Request[IdentityService]) -> Response:
    rows = [_domain(request.base_url)] if _name(request) in (None, DOMAIN_NAME) else []
    return _listed(request, "domains", rows)


def show_domain(request: Request[IdentityService], domain_id: str) -> Response:
    if domain_id != DOMAIN_ID:
        raise NotFound(f"Could not find domain: {domain_id}.")
    return Response(body={"domain": _domain(request.base_url)})


def project_document(project: Project, base_url: str) -> dict[str, object]:
    return {
        "id": project.id,
        "name": project.name,
        "description": project.description,
        "domain_id": DOMAIN_ID,
        "parent_id": DOMAIN_ID,
        "enabled": project.enabled,
        "is_domain": False,
        "tags": [],
        "options": {},
        "links": {"self": f"{base_url}/v3/projects/{project.id}"},
    }


def _user(user: User, base_url: str) -> dict[str, object]:
    document: dict[str, object] = {
        "id": user.id,
        "name": user.name,
        "domain_id": DOMAIN_ID,
        "enabled": user.enabled,
        "password_expires_at": None,
        "options": {},
        "links": {"self": f"{base_url}/v3/users/{user.id}"},
    }
    if user.default_project_id:
        document["default_project_id"] = user.default_project_id
    return document


def _role(name: str, base_url: str) -> dict[str, object]:
    """A role's name is its id."""
    return {
        "id": name,
        "name": name,
        "description": "",
        "domain_id": None,
        "options": {},
        "links": {"self": f"{base_url}/v3/roles/{name}"},
    }


def _domain(base_url: str) -> dict[str, object]:
    return {
        "id": DOMAIN_ID,
        "name": DOMAIN_NAME,
        "description": "The default domain",
        "enabled": True,
        "tags": [],
        "options": {},
        "links": {"self": f"{base_url}/v3/domains/{DOMAIN_ID}"},
    }


def _name(request: Request[IdentityService]) -> str | None:
    return request.query.first("name")


def _in_our_domain(request: Request[IdentityService]) -> bool:
    return request.query.first("domain_id") in (None, DOMAIN_ID)


def _listed(request: Request[IdentityService], name: str, rows: list[dict[str, object]]) -> Response:
    links = {"self": f"{request.base_url}{request.path}", "previous": None, "next": None}
    return Response(body={name: rows, "links": links})
