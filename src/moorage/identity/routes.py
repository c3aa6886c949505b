"""The route table of identity: the part of the Identity API v3 that clients and services need, with its policy rules.

``/moorage/v1/hosts`` is our own addition: the credentials of hosts.
Not here: routes that create or change users and projects, except passwords; people edit the users file instead.
"""

from typing import TYPE_CHECKING

from moorage.identity import request_schemas as host_schemas
from moorage.identity.handlers import accounts, hosts, tokens
from moorage.identity.policy import RuleTable, admin, admin_or_service, anyone
from moorage.identity.request_schemas import CHANGE_PASSWORD, LOGIN
from moorage.identity.service import IdentityService
from moorage.wire.app import ServiceApi
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response, Route

if TYPE_CHECKING:
    import jsonschema


def keystone_error(problem: Problem) -> Response:
    """``{"error": {"code": 401, "message": "...", "title": "Unauthorized"}}``"""
    body = {"error": {"code": problem.status, "message": problem.message, "title": problem.title}}
    headers = {"www-authenticate": "Keystone"} if problem.status == 401 else {}
    return Response(problem.status, body, headers | {"vary": "X-Auth-Token"})


def _schema_error_message(error: "jsonschema.ValidationError") -> str:
    """Names the invalid field. Quotes the validator only for a missing field: other messages may contain a password."""
    place = "/".join(map(str, error.absolute_path)) or "the body"
    return f"Invalid input at {place}" + (f": {error.message}" if error.validator == "required" else "")


def list_versions(request: Request[IdentityService]) -> Response:
    """300, as Keystone does: clients pick from ``versions.values``."""
    document = {"versions": {"values": [_version(request.base_url)]}}
    return Response(300, document, {"location": f"{request.base_url}/v3/"})


def show_version(request: Request[IdentityService]) -> Response:
    return Response(body={"version": _version(request.base_url)})


def _version(base_url: str) -> dict[str, object]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{base_url}/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }


#: The rule for inviting and revoking hosts.
HOSTS_RULE = "moorage:hosts"

_HOST = "/moorage/v1/hosts/{host}"

API: ServiceApi[IdentityService] = ServiceApi(
    name="identity",
    error_shape=keystone_error,
    schema_error_message=_schema_error_message,
    routes=(
        Route("GET", "/", list_versions, None, reads="none"),
        Route("GET", "/v3", show_version, None, reads="none"),
        Route("GET", "/v3/", show_version, None, reads="none"),
        Route("POST", "/v3/auth/tokens", tokens.create_token, None, schema=LOGIN),
        Route("GET", "/v3/auth/tokens", tokens.show_token, "identity:validate_token"),
        Route("HEAD", "/v3/auth/tokens", tokens.check_token, "identity:check_token"),
        Route("DELETE", "/v3/auth/tokens", tokens.revoke_token, "identity:revoke_token"),
        Route("GET", "/v3/auth/catalog", tokens.show_catalog, "identity:get_auth_catalog"),
        Route("GET", "/v3/auth/projects", tokens.list_auth_projects, "identity:get_auth_projects"),
        Route("GET", "/v3/auth/domains", tokens.list_auth_domains, "identity:get_auth_domains"),
        Route("GET", "/v3/auth/system", tokens.list_system_roles, "identity:get_auth_system"),
        Route("GET", "/v3/projects", accounts.list_projects, "identity:list_projects"),
        Route("GET", "/v3/projects/{project_id}", accounts.show_project, "identity:get_project"),
        Route("GET", "/v3/users", accounts.list_users, "identity:list_users"),
        Route("GET", "/v3/users/{user_id}", accounts.show_user, "identity:get_user"),
        # Public: the old password in the body authenticates the caller.
        Route("POST", "/v3/users/{user_id}/password", accounts.change_password, None, schema=CHANGE_PASSWORD),
        Route("GET", "/v3/users/{user_id}/projects", accounts.list_user_projects, "identity:list_user_projects"),
        Route("GET", "/v3/roles", accounts.list_roles, "identity:list_roles"),
        Route("GET", "/v3/roles/{role_id}", accounts.show_role, "identity:get_role"),
        Route("GET", "/v3/domains", accounts.list_domains, "identity:list_domains"),
        Route("GET", "/v3/domains/{domain_id}", accounts.show_domain, "identity:get_domain"),
        Route("GET", "/moorage/v1/hosts", hosts.list_hosts, HOSTS_RULE),
        Route("DELETE", _HOST, hosts.revoke_host, HOSTS_RULE),
        Route("POST", f"{_HOST}/enrolment", hosts.invite_host, HOSTS_RULE, schema=host_schemas.INVITE),
        # Public, like a login: the body authenticates the caller.
        Route("POST", f"{_HOST}/credential", hosts.enrol_host, None, schema=host_schemas.ENROL),
        Route("PUT", f"{_HOST}/credential", hosts.rotate_secret, None, schema=host_schemas.ROTATE),
        Route("POST", f"{_HOST}/tokens", hosts.log_in_host, None, schema=host_schemas.HOST_LOGIN, effect="routine"),
    ),
)

RULES = RuleTable(
    {
        # These allow a caller's own token, user and projects. For those of others, the service checks the rules with
        # "any".
        "identity:validate_token": anyone,
        "identity:check_token": anyone,
        "identity:revoke_token": anyone,
        "identity:validate_any_token": admin_or_service,
        "identity:revoke_any_token": admin,
        "identity:get_auth_catalog": anyone,
        "identity:get_auth_projects": anyone,
        "identity:get_auth_domains": anyone,
        "identity:get_auth_system": anyone,
        "identity:get_project": anyone,
        "identity:get_any_project": admin_or_service,
        "identity:list_projects": admin_or_service,
        "identity:get_user": anyone,
        "identity:get_any_user": admin_or_service,
        "identity:list_user_projects": anyone,
        "identity:list_users": admin_or_service,
        "identity:list_roles": admin_or_service,
        "identity:get_role": admin_or_service,
        "identity:list_domains": admin_or_service,
        "identity:get_domain": anyone,
        HOSTS_RULE: admin,
    },
    refusal_text="You are not authorized to perform the requested action: {rule}.",
)
