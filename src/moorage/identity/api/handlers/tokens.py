"""``/v3/auth``: tokens, and the catalogue and projects of a token's holder."""

from datetime import datetime
from typing import NotRequired, TypedDict

from moorage.core.errors import Forbidden, Invalid, Unauthorized
from moorage.identity.api.handlers.account_views import named_domain, project_document
from moorage.identity.embedded import AuthenticatedCaller
from moorage.identity.model import CatalogEndpoint
from moorage.identity.policy import with_implied
from moorage.identity.service import DomainRef, IdentityService, Login, NamedEntity
from moorage.wire.http import Request, Response

_SUBJECT = "x-subject-token"
_METHODS = {"password", "token", "application_credential"}
_NO = {"false", "0", "no", "off", "f", "n"}


def create_token(request: Request[IdentityService]) -> Response:
    login = _login(request.json["auth"])
    if request.change is not None:
        # Record existing users only: people sometimes type their password into the field of the name.
        user = request.service.account_of(login)
        request.change.set_initiator(id=user.id if user else "", name=user.name if user else "")
    return new_token(request, *request.service.log_in(login, request.address))


def new_token(request: Request[IdentityService], token: str, holder: AuthenticatedCaller) -> Response:
    """The answer to a login."""
    if request.change is not None:
        request.change.set_initiator(id=holder.user.id, name=holder.user.name)
        if holder.project is not None:
            request.change.set_initiator(project_id=holder.project.id, project_name=holder.project.name)
    return Response(201, _document(request, holder), {_SUBJECT: token, "vary": "X-Auth-Token"})


def show_token(request: Request[IdentityService]) -> Response:
    subject = _subject(request)
    return Response(
        body=_document(request, _validate(request, subject)), headers={_SUBJECT: subject, "vary": "X-Auth-Token"}
    )


def check_token(request: Request[IdentityService]) -> Response:
    _validate(request, _subject(request))
    return Response(200)


def revoke_token(request: Request[IdentityService]) -> Response:
    request.service.revoke_token(
        request.caller,
        _subject(request),
        is_admin=request.allowed("identity:revoke_any_token"),
        with_descendants=(request.query.first("cascade") or "true").lower() not in _NO,
    )
    return Response(204)


def show_catalog(request: Request[IdentityService]) -> Response:
    if not request.caller.project_id:
        raise Forbidden("The catalogue requires a token with a project.")
    return Response(
        body={
            "catalog": _catalog(request, request.caller.project_id, request.caller.user_id),
            "links": {"self": f"{request.base_url}{request.path}"},
        }
    )


def list_auth_projects(request: Request[IdentityService]) -> Response:
    rows = [project_document(project, request.base_url) for project in request.service.own_projects(request.caller)]
    return Response(body={"projects": rows, "links": _links(request)})


def list_auth_domains(request: Request[IdentityService]) -> Response:
    """Always empty: this service issues no tokens for domains."""
    return Response(body={"domains": [], "links": _links(request)})


def list_system_roles(request: Request[IdentityService]) -> Response:
    """Always empty: this service issues no tokens for the whole system."""
    return Response(body={"system": [], "links": _links(request)})


class DomainBody(TypedDict, total=False):
    id: str
    name: str


class NamedBody(TypedDict, total=False):
    """A user or a project, by its id or its name."""

    id: str
    name: str
    domain: DomainBody


class UserBody(NamedBody):
    password: str


class PasswordBody(TypedDict):
    user: UserBody


class TokenBody(TypedDict):
    id: str


class CredentialBody(TypedDict, total=False):
    """An application credential, by its id, or by its name and its user."""

    id: str
    name: str
    user: NamedBody
    secret: str


class IdentityBody(TypedDict):
    methods: list[str]
    password: NotRequired[PasswordBody]
    token: NotRequired[TokenBody]
    application_credential: NotRequired[CredentialBody]


class ScopeBody(TypedDict, total=False):
    """`unscoped`, `domain` and `system` are read only as keys."""

    project: NamedBody


class AuthBody(TypedDict):
    identity: IdentityBody
    scope: NotRequired[ScopeBody | str]


def _login(auth: AuthBody) -> Login:
    identity = auth["identity"]
    methods = tuple(identity["methods"])
    if unknown := sorted(set(methods) - _METHODS):
        raise Unauthorized(
            f"the authentication method {', '.join(unknown)} is not supported; supported are "
            f"{', '.join(sorted(_METHODS))}"
        )
    for method in methods:
        if method not in identity:
            raise Invalid(f"Expecting to find {method} in identity. The server could not comply with the request.")
    scope = auth.get("scope")
    user: NamedBody | None = identity["password"]["user"] if "password" in methods else None
    credential = identity["application_credential"] if "application_credential" in methods else None
    if credential is not None and user is None:
        user = credential.get("user")
    return Login(
        methods=methods,
        user=_named(user) if user else None,
        password=identity["password"]["user"]["password"] if "password" in methods else "",
        token=identity["token"]["id"] if "token" in methods else None,
        credential=NamedEntity(credential.get("id"), credential.get("name"), DomainRef()) if credential else None,
        secret=credential["secret"] if credential else "",
        project=_named(scope["project"]) if isinstance(scope, dict) and "project" in scope else None,
        unscoped=scope == "unscoped" or (isinstance(scope, dict) and "unscoped" in scope),
        other_scope=isinstance(scope, dict) and not scope.keys().isdisjoint({"domain", "system"}),
    )


def _named(row: NamedBody) -> NamedEntity:
    domain: DomainBody = row.get("domain", {})
    return NamedEntity(row.get("id"), row.get("name"), DomainRef(domain.get("id"), domain.get("name")))


def _subject(request: Request[IdentityService]) -> str:
    subject = request.headers.get(_SUBJECT)
    if not subject:
        raise Invalid("The header X-Subject-Token must contain the token.")
    return subject


def _validate(request: Request[IdentityService], subject: str) -> AuthenticatedCaller:
    return request.service.validate_token(
        request.caller,
        subject,
        request.headers.get("x-auth-token"),
        privileged=request.allowed("identity:validate_any_token"),
        allow_expired=request.query.first("allow_expired") in ("1", "true", "True"),
    )


def _document(request: Request[IdentityService], holder: AuthenticatedCaller) -> dict[str, object]:
    accounts = request.service.identity.accounts()
    token: dict[str, object] = {
        "methods": list(holder.claims.methods),
        "user": {
            "id": holder.user.id,
            "name": holder.user.name,
            "domain": named_domain(accounts, holder.user.domain_id),
            "password_expires_at": None,
        },
        "audit_ids": [one for one in (holder.claims.audit_id, holder.claims.chain_id) if one],
        "issued_at": _time(holder.claims.issued_at),
        "expires_at": _time(holder.claims.expires_at),
    }
    if holder.credential is not None:
        token["application_credential"] = {
            "id": holder.credential.id,
            "name": holder.credential.name,
            "restricted": not holder.credential.unrestricted,
        }
    if holder.project is not None:
        token["project"] = {
            "id": holder.project.id,
            "name": holder.project.name,
            "domain": named_domain(accounts, holder.project.domain_id),
        }
        token["is_domain"] = False
        ids = {role.name: role.id for role in accounts.roles.values()}
        # Peers check for a role by its name, such as "reader", so list implied roles as well.
        token["roles"] = [{"id": ids[name], "name": name} for name in sorted(with_implied(holder.roles)) if name in ids]
        if "nocatalog" not in request.query.names():
            token["catalog"] = _catalog(request, holder.project.id, holder.user.id)
    return {"token": token}


def _catalog(request: Request[IdentityService], project_id: str, user_id: str) -> list[dict[str, object]]:
    """The enabled services, each with its enabled endpoints."""
    values = {"project_id": project_id, "tenant_id": project_id, "user_id": user_id}
    endpoints: dict[str, list[dict[str, object]]] = {}
    for endpoint in request.service.catalog.endpoints(request.base_url):
        if endpoint.enabled:
            endpoints.setdefault(endpoint.service_id, []).append(_endpoint(endpoint, values))
    return [
        {
            "id": service.id,
            "type": service.type,
            "name": service.name,
            "endpoints": endpoints.get(service.id, []),
        }
        for service in request.service.catalog.services()
        if service.enabled
    ]


def _endpoint(endpoint: CatalogEndpoint, values: dict[str, str]) -> dict[str, object]:
    url = endpoint.url
    for name, value in values.items():
        url = url.replace(f"$({name})s", value).replace(f"%({name})s", value)
    return {
        "id": endpoint.id,
        "interface": endpoint.interface,
        "region": endpoint.region_id,
        "region_id": endpoint.region_id,
        "url": url,
    }


def _links(request: Request[IdentityService]) -> dict[str, object]:
    return {"self": f"{request.base_url}{request.path}", "previous": None, "next": None}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
