"""The route table of identity: the Identity API v3 without federation, trusts and EC2, with its policy rules.

``/moorage/v1`` is our own addition: the credentials of hosts, the failed logins and invitations of users, and sign-in
with an OpenID provider.
"""

from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from moorage.identity.api import schemas
from moorage.identity.api.handlers import accounts, catalog, credentials, hosts, oidc, roles, tokens, users
from moorage.identity.policy import RuleTable, admin, admin_or_service, anyone, in_project
from moorage.identity.service import IdentityService
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema
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


_MEMBER = "/v3/groups/{group_id}/users/{user_id}"
_IMPLIED = "/v3/roles/{role_id}/implies/{implied_id}"
_CREDENTIALS = "/v3/users/{user_id}/application_credentials"
_CREDENTIAL = f"{_CREDENTIALS}/{{credential_id}}"


def _records(kind: str, handlers: ModuleType, create: Schema, update: Schema) -> Iterator[Route[IdentityService]]:
    """The five routes of a kind of record, whose handlers are ``list_projects``, ``show_project`` and so on."""
    every, one = f"/v3/{kind}s", f"/v3/{kind}s/{{{kind}_id}}"
    handler = partial(getattr, handlers)
    yield Route("GET", every, handler(f"list_{kind}s"), f"identity:list_{kind}s")
    yield Route("POST", every, handler(f"create_{kind}"), f"identity:create_{kind}", schema=create)
    yield Route("GET", one, handler(f"show_{kind}"), f"identity:get_{kind}")
    yield Route("PATCH", one, handler(f"update_{kind}"), f"identity:update_{kind}", schema=update)
    yield Route("DELETE", one, handler(f"delete_{kind}"), f"identity:delete_{kind}")


def _grants(target: str, *, inherited: bool = False) -> Iterator[Route[IdentityService]]:
    """The routes of the roles that users and groups have on the target whose path is `target`."""
    rule = "system_grant_for" if target == "/v3/system" else "grant"
    suffix = "/inherited_to_projects" if inherited else ""
    for actor in ("user", "group"):
        every = f"{target}/{actor}s/{{{actor}_id}}/roles"
        one = f"{every}/{{role_id}}{suffix}"
        rules = [f"identity:{verb}_{rule}" for verb in ("list", "check", "create", "revoke")]
        if rule != "grant":
            rules = [f"{name}_{actor}" for name in rules]
        yield Route("GET", f"{every}{suffix}", roles.list_grants, rules[0].replace("list_grant", "list_grants"))
        yield Route("HEAD", one, roles.check_grant, rules[1])
        yield Route("PUT", one, roles.put_grant, rules[2])
        yield Route("DELETE", one, roles.delete_grant, rules[3])


#: The rule for inviting and revoking hosts.
HOSTS_RULE = "moorage:hosts"

#: The rule for failed logins and invitations of users.
USERS_RULE = "moorage:users"

_INVITATION = "/moorage/v1/users/{user_id}/invitation"
_HOST = "/moorage/v1/hosts/{host}"
_OIDC = "/moorage/v1/oidc"

API: ServiceApi[IdentityService] = ServiceApi(
    name="identity",
    error_shape=keystone_error,
    schema_error_message=_schema_error_message,
    routes=(
        Route("GET", "/", list_versions, None, reads="none"),
        Route("GET", "/v3", show_version, None, reads="none"),
        Route("GET", "/v3/", show_version, None, reads="none"),
        Route("POST", "/v3/auth/tokens", tokens.create_token, None, schema=schemas.LOGIN),
        Route("GET", "/v3/auth/tokens", tokens.show_token, "identity:validate_token"),
        Route("HEAD", "/v3/auth/tokens", tokens.check_token, "identity:check_token"),
        Route("DELETE", "/v3/auth/tokens", tokens.revoke_token, "identity:revoke_token"),
        Route("GET", "/v3/auth/catalog", tokens.show_catalog, "identity:get_auth_catalog"),
        Route("GET", "/v3/auth/projects", tokens.list_auth_projects, "identity:get_auth_projects"),
        Route("GET", "/v3/auth/domains", tokens.list_auth_domains, "identity:get_auth_domains"),
        Route("GET", "/v3/auth/system", tokens.list_system_roles, "identity:get_auth_system"),
        *_records("domain", accounts, schemas.CREATE_DOMAIN, schemas.UPDATE_DOMAIN),
        *_records("project", accounts, schemas.CREATE_PROJECT, schemas.UPDATE_PROJECT),
        *_records("user", accounts, schemas.CREATE_USER, schemas.UPDATE_USER),
        # Public: the old password in the body authenticates the caller.
        Route("POST", "/v3/users/{user_id}/password", accounts.change_password, None, schema=schemas.CHANGE_PASSWORD),
        Route("GET", "/v3/users/{user_id}/projects", accounts.list_user_projects, "identity:list_user_projects"),
        Route("GET", "/v3/users/{user_id}/groups", accounts.list_user_groups, "identity:list_groups_for_user"),
        *_records("group", accounts, schemas.CREATE_GROUP, schemas.UPDATE_GROUP),
        Route("GET", "/v3/groups/{group_id}/users", accounts.list_members, "identity:list_users_in_group"),
        Route("PUT", _MEMBER, accounts.add_member, "identity:add_user_to_group"),
        Route("HEAD", _MEMBER, accounts.check_member, "identity:check_user_in_group"),
        Route("DELETE", _MEMBER, accounts.remove_member, "identity:remove_user_from_group"),
        *_records("role", roles, schemas.CREATE_ROLE, schemas.UPDATE_ROLE),
        Route("GET", "/v3/role_inferences", roles.list_inferences, "identity:list_role_inference_rules"),
        Route("GET", "/v3/roles/{role_id}/implies", roles.list_implied, "identity:list_implied_roles"),
        Route("GET", _IMPLIED, roles.show_implied, "identity:get_implied_role"),
        Route("HEAD", _IMPLIED, roles.check_implied, "identity:check_implied_role"),
        Route("PUT", _IMPLIED, roles.put_implied, "identity:create_implied_role"),
        Route("DELETE", _IMPLIED, roles.delete_implied, "identity:delete_implied_role"),
        Route("GET", "/v3/role_assignments", roles.list_assignments, "identity:list_role_assignments"),
        *_grants("/v3/projects/{project_id}"),
        *_grants("/v3/domains/{domain_id}"),
        *_grants("/v3/system"),
        *_grants(f"{roles.INHERIT}projects/{{project_id}}", inherited=True),
        *_grants(f"{roles.INHERIT}domains/{{domain_id}}", inherited=True),
        Route("GET", _CREDENTIALS, credentials.list_credentials, "identity:list_application_credentials"),
        Route(
            "POST",
            _CREDENTIALS,
            credentials.create_credential,
            "identity:create_application_credential",
            schema=schemas.CREATE_CREDENTIAL,
        ),
        Route("GET", _CREDENTIAL, credentials.show_credential, "identity:get_application_credential"),
        Route("DELETE", _CREDENTIAL, credentials.delete_credential, "identity:delete_application_credential"),
        *_records("region", catalog, schemas.CREATE_REGION, schemas.UPDATE_REGION),
        *_records("service", catalog, schemas.CREATE_SERVICE, schemas.UPDATE_SERVICE),
        *_records("endpoint", catalog, schemas.CREATE_ENDPOINT, schemas.UPDATE_ENDPOINT),
        Route("GET", "/moorage/v1/users", users.list_users, USERS_RULE),
        Route("DELETE", "/moorage/v1/users/{user_id}/lock", users.clear_lock, USERS_RULE),
        Route("POST", _INVITATION, users.invite_user, USERS_RULE, schema=schemas.INVITE_USER),
        Route("DELETE", _INVITATION, users.withdraw_invitation, USERS_RULE),
        # Public: the token in the body authenticates the caller.
        Route("POST", "/moorage/v1/invitations/password", users.choose_password, None, schema=schemas.CHOOSE_PASSWORD),
        # Public, like a login. The codes and tokens of the provider authenticate the caller.
        Route("GET", _OIDC, oidc.show_provider, None, reads="none"),
        Route("POST", f"{_OIDC}/authorizations", oidc.begin_sign_in, None, schema=schemas.BEGIN_SIGN_IN, effect="none"),
        Route("POST", f"{_OIDC}/codes", oidc.redeem_code, None, schema=schemas.REDEEM_CODE),
        Route("POST", f"{_OIDC}/id_tokens", oidc.redeem_id_token, None, schema=schemas.REDEEM_ID_TOKEN),
        Route("GET", "/moorage/v1/hosts", hosts.list_hosts, HOSTS_RULE),
        Route("DELETE", _HOST, hosts.revoke_host, HOSTS_RULE),
        Route("POST", f"{_HOST}/enrolment", hosts.invite_host, HOSTS_RULE, schema=schemas.INVITE),
        # Public, like a login: the body authenticates the caller.
        Route("POST", f"{_HOST}/credential", hosts.enrol_host, None, schema=schemas.ENROL),
        Route("PUT", f"{_HOST}/credential", hosts.rotate_secret, None, schema=schemas.ROTATE),
        Route("POST", f"{_HOST}/tokens", hosts.log_in_host, None, schema=schemas.HOST_LOGIN, effect="routine"),
    ),
)

#: What administrators and services read. Others see in a token what they need of roles and the catalogue.
_READS = (
    "list_domains", "list_projects", "list_users", "list_groups", "get_group", "list_users_in_group",
    "check_user_in_group", "list_roles", "get_role", "list_role_inference_rules", "list_implied_roles",
    "get_implied_role", "check_implied_role", "list_role_assignments", "list_grants", "check_grant",
    "list_system_grant_for_user", "list_system_grant_for_group", "check_system_grant_for_user",
    "check_system_grant_for_group", "list_services", "get_service", "list_endpoints", "get_endpoint",
)  # fmt: skip

#: What administrators alone do.
_WRITES = (
    *(
        f"{verb}_{kind}"
        for kind in ("domain", "project", "user", "group", "role", "region", "service", "endpoint")
        for verb in ("create", "update", "delete")
    ),
    "add_user_to_group", "remove_user_from_group", "create_implied_role", "delete_implied_role", "create_grant",
    "revoke_grant", "create_system_grant_for_user", "create_system_grant_for_group", "revoke_system_grant_for_user",
    "revoke_system_grant_for_group",
)  # fmt: skip

RULES = RuleTable(
    {
        # These allow a caller's own token, user, projects and credentials. For those of others, the handlers check the
        # rules with "any".
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
        "identity:get_user": anyone,
        "identity:get_any_user": admin_or_service,
        "identity:list_user_projects": anyone,
        "identity:list_groups_for_user": anyone,
        "identity:list_application_credentials": anyone,
        "identity:get_application_credential": anyone,
        "identity:create_application_credential": in_project,
        "identity:delete_application_credential": anyone,
        "identity:manage_any_application_credential": admin,
        "identity:get_domain": anyone,
        "identity:list_regions": in_project,
        "identity:get_region": in_project,
        **{f"identity:{name}": admin_or_service for name in _READS},
        **{f"identity:{name}": admin for name in _WRITES},
        HOSTS_RULE: admin,
        USERS_RULE: admin,
    },
    refusal_text="You are not authorized to perform the requested action: {rule}.",
)
