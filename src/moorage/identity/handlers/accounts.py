"""Projects, users, roles and the one domain: read only but for passwords, since the users file is edited by hand."""

from moorage.core.errors import NotFound
from moorage.identity.model import DOMAIN_ID, DOMAIN_NAME, Project, User
from moorage.identity.service import IdentityService
from moorage.wire.http import Call, Reply


def list_projects(call: Call[IdentityService]) -> Reply:
    rows = [project_document(project, call.base_url) for project in call.service.projects(_name(call))]
    return _listed(call, "projects", rows if _in_our_domain(call) else [])


def show_project(call: Call[IdentityService], project_id: str) -> Reply:
    project = call.service.project(call.caller, project_id, privileged=call.allowed("identity:get_any_project"))
    return Reply(body={"project": project_document(project, call.base_url)})


def list_users(call: Call[IdentityService]) -> Reply:
    rows = [_user(user, call.base_url) for user in call.service.users(_name(call))]
    return _listed(call, "users", rows if _in_our_domain(call) else [])


def show_user(call: Call[IdentityService], user_id: str) -> Reply:
    user = call.service.user(call.caller, user_id, privileged=call.allowed("identity:get_any_user"))
    return Reply(body={"user": _user(user, call.base_url)})


def change_password(call: Call[IdentityService], user_id: str) -> Reply:
    given = call.json["user"]
    call.service.change_password(user_id, given["original_password"], given["password"], call.address)
    return Reply(204)


def list_user_projects(call: Call[IdentityService], user_id: str) -> Reply:
    privileged = call.allowed("identity:get_any_user")
    projects = call.service.projects_of(call.caller, user_id, privileged=privileged)
    return _listed(call, "projects", [project_document(project, call.base_url) for project in projects])


def list_roles(call: Call[IdentityService]) -> Reply:
    return _listed(call, "roles", [_role(role, call.base_url) for role in call.service.roles(_name(call))])


def show_role(call: Call[IdentityService], role_id: str) -> Reply:
    if not call.service.roles(role_id):
        raise NotFound(f"Could not find role: {role_id}.")
    return Reply(body={"role": _role(role_id, call.base_url)})


def list_domains(call: Call[IdentityService]) -> Reply:
    rows = [_domain(call.base_url)] if _name(call) in (None, DOMAIN_NAME) else []
    return _listed(call, "domains", rows)


def show_domain(call: Call[IdentityService], domain_id: str) -> Reply:
    if domain_id != DOMAIN_ID:
        raise NotFound(f"Could not find domain: {domain_id}.")
    return Reply(body={"domain": _domain(call.base_url)})


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


def _name(call: Call[IdentityService]) -> str | None:
    return call.query.first("name")


def _in_our_domain(call: Call[IdentityService]) -> bool:
    return call.query.first("domain_id") in (None, DOMAIN_ID)


def _listed(call: Call[IdentityService], name: str, rows: list[dict[str, object]]) -> Reply:
    links = {"self": f"{call.base_url}{call.path}", "previous": None, "next": None}
    return Reply(body={name: rows, "links": links})
