"""The documents of records, as Keystone v3 shows them, and lists of documents with filters."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from moorage.identity.model import (
    AccountDomain,
    Accounts,
    ApplicationCredential,
    CatalogEndpoint,
    CatalogService,
    Group,
    Project,
    Region,
    Role,
    User,
)
from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response

Document: TypeAlias = dict[str, object]

_TRUE = {"true", "1", "yes", "on", "t", "y", ""}


def domain_document(domain: AccountDomain, base_url: str) -> Document:
    return {
        "id": domain.id,
        "name": domain.name,
        "description": domain.description,
        "enabled": domain.enabled,
        "tags": [],
        "options": {},
        "links": {"self": f"{base_url}/v3/domains/{domain.id}"},
    }


def project_document(project: Project, base_url: str) -> Document:
    return {
        **project.extra,
        "id": project.id,
        "name": project.name,
        "description": project.description,
        "domain_id": project.domain_id,
        "parent_id": project.domain_id,
        "enabled": project.enabled,
        "is_domain": False,
        "tags": list(project.tags),
        "options": {},
        "links": {"self": f"{base_url}/v3/projects/{project.id}"},
    }


def user_document(user: User, base_url: str) -> Document:
    document: Document = {
        **user.extra,
        "id": user.id,
        "name": user.name,
        "domain_id": user.domain_id,
        "enabled": user.enabled,
        "password_expires_at": None,
        "options": {},
        "links": {"self": f"{base_url}/v3/users/{user.id}"},
    }
    if user.default_project_id:
        document["default_project_id"] = user.default_project_id
    return document


def group_document(group: Group, base_url: str) -> Document:
    return {
        **group.extra,
        "id": group.id,
        "name": group.name,
        "description": group.description,
        "domain_id": group.domain_id,
        "links": {"self": f"{base_url}/v3/groups/{group.id}"},
    }


def role_document(role: Role, base_url: str) -> Document:
    return {
        "id": role.id,
        "name": role.name,
        "description": role.description,
        "domain_id": None,
        "options": {},
        "links": {"self": f"{base_url}/v3/roles/{role.id}"},
    }


def credential_document(credential: ApplicationCredential, roles: Iterable[Role], base_url: str) -> Document:
    expires_at = credential.expires_at
    path = f"/v3/users/{credential.user_id}/application_credentials/{credential.id}"
    return {
        "id": credential.id,
        "name": credential.name,
        "description": credential.description,
        "user_id": credential.user_id,
        "project_id": credential.project_id,
        "roles": [{"id": role.id, "name": role.name, "domain_id": None} for role in roles],
        "unrestricted": credential.unrestricted,
        "expires_at": expires_at.strftime("%Y-%m-%dT%H:%M:%S.%f") if expires_at else None,
        "system": None,
        "links": {"self": f"{base_url}{path}"},
    }


def region_document(region: Region, base_url: str) -> Document:
    return {
        "id": region.id,
        "description": region.description,
        "parent_region_id": region.parent_region_id,
        "links": {"self": f"{base_url}/v3/regions/{region.id}"},
    }


def service_document(service: CatalogService, base_url: str) -> Document:
    return {
        "description": "",
        **service.extra,
        "id": service.id,
        "type": service.type,
        "name": service.name,
        "enabled": service.enabled,
        "links": {"self": f"{base_url}/v3/services/{service.id}"},
    }


def endpoint_document(endpoint: CatalogEndpoint, base_url: str) -> Document:
    return {
        **endpoint.extra,
        "id": endpoint.id,
        "service_id": endpoint.service_id,
        "interface": endpoint.interface,
        "region": endpoint.region_id,
        "region_id": endpoint.region_id,
        "url": endpoint.url,
        "enabled": endpoint.enabled,
        "links": {"self": f"{base_url}/v3/endpoints/{endpoint.id}"},
    }


def named_domain(accounts: Accounts, domain_id: str) -> Document:
    """``{"id": ..., "name": ...}`` of the domain of a user or project."""
    return {"id": domain_id, "name": accounts.domains[domain_id].name}


def listed(request: Request[IdentityService], name: str, rows: Iterable[Document], *filters: str) -> Response:
    """The rows whose attributes have the values of the query, for the attributes `filters`."""
    wanted: Mapping[str, str] = {each: value for each in filters if (value := request.query.first(each)) is not None}
    found = [row for row in rows if all(_has_value(row[each], value) for each, value in wanted.items())]
    links = {"self": f"{request.base_url}{request.path}", "previous": None, "next": None}
    return Response(body={name: found, "links": links})


def _has_value(actual: object, wanted: str) -> bool:
    return actual == (wanted.lower() in _TRUE) if isinstance(actual, bool) else actual == wanted
