"""``/v3/auth``: tokens, and what the holder of one may learn about itself."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from moorage.core.errors import Forbidden, Invalid, Unauthorized
from moorage.identity.embedded import AuthenticatedCaller
from moorage.identity.handlers.accounts import project_document
from moorage.identity.model import DOMAIN_ID, DOMAIN_NAME
from moorage.identity.policy import with_implied
from moorage.identity.service import INTERFACES, DomainRef, Endpoint, IdentityService, Login, Named
from moorage.wire.http import Call, Reply

_SUBJECT = "x-subject-token"
_METHODS = {"password", "token"}
_NO = {"false", "0", "no", "off", "f", "n"}


def create(call: Call[IdentityService]) -> Reply:
    login = _login(call.json["auth"])
    if call.change is not None:
        # Only who there is: in the place of the name people type their passwords, too.
        user = call.service.account_of(login)
        call.change.by(id=user.id if user else "", name=user.name if user else "")
    token, held = call.service.log_in(login, call.address)
    if call.change is not None:
        call.change.by(id=held.user.id, name=held.user.name)
        if held.project is not None:
            call.change.by(project_id=held.project.id, project_name=held.project.name)
    return Reply(201, _document(call, held), {_SUBJECT: token, "vary": "X-Auth-Token"})


def show(call: Call[IdentityService]) -> Reply:
    subject = _subject(call)
    return Reply(body=_document(call, _judge(call, subject)), headers={_SUBJECT: subject, "vary": "X-Auth-Token"})


def check(call: Call[IdentityService]) -> Reply:
    _judge(call, _subject(call))
    return Reply(200)


def revoke(call: Call[IdentityService]) -> Reply:
    call.service.revoke(
        call.caller,
        _subject(call),
        is_admin=call.allowed("identity:revoke_any_token"),
        with_descendants=(call.query.first("cascade") or "true").lower() not in _NO,
    )
    return Reply(204)


def catalog(call: Call[IdentityService]) -> Reply:
    if not call.caller.project_id:
        raise Forbidden("A catalogue belongs to a project: ask for a token with one.")
    return Reply(body={"catalog": _catalog(call), "links": {"self": f"{call.base_url}{call.path}"}})


def projects(call: Call[IdentityService]) -> Reply:
    rows = [project_document(project, call.base_url) for project in call.service.own_projects(call.caller)]
    return Reply(body={"projects": rows, "links": _links(call)})


def domains(call: Call[IdentityService]) -> Reply:
    """Nobody has a role in a domain here."""
    return Reply(body={"domains": [], "links": _links(call)})


def system(call: Call[IdentityService]) -> Reply:
    """Nobody has a role in the whole system here."""
    return Reply(body={"system": [], "links": _links(call)})


def _login(auth: dict[str, Any]) -> Login:
    identity = auth["identity"]
    methods = tuple(identity["methods"])
    if unknown := sorted(set(methods) - _METHODS):
        raise Unauthorized(
            f"the method {', '.join(unknown)} is not served here; there is {', '.join(sorted(_METHODS))}"
        )
    for method in methods:
        if method not in identity:
            raise Invalid(f"Expecting to find {method} in identity. The server could not comply with the request.")
    scope = auth.get("scope")
    user = identity["password"]["user"] if "password" in methods else None
    return Login(
        methods=methods,
        user=_named(user) if user else None,
        password=user["password"] if user else "",
        token=identity["token"]["id"] if "token" in methods else None,
        project=_named(scope["project"]) if isinstance(scope, dict) and "project" in scope else None,
        unscoped=scope == "unscoped" or (isinstance(scope, dict) and "unscoped" in scope),
        other_scope=isinstance(scope, dict) and not scope.keys().isdisjoint({"domain", "system"}),
    )


def _named(row: dict[str, Any]) -> Named:
    domain = row.get("domain", {})
    return Named(row.get("id"), row.get("name"), DomainRef(domain.get("id"), domain.get("name")))


def _subject(call: Call[IdentityService]) -> str:
    subject = call.headers.get(_SUBJECT)
    if not subject:
        raise Invalid("The header X-Subject-Token must hold the token in question.")
    return subject


def _judge(call: Call[IdentityService], subject: str) -> AuthenticatedCaller:
    return call.service.judge(
        call.caller,
        subject,
        call.headers.get("x-auth-token"),
        privileged=call.allowed("identity:validate_any_token"),
        allow_expired=call.query.first("allow_expired") in ("1", "true", "True"),
    )


def _document(call: Call[IdentityService], held: AuthenticatedCaller) -> dict[str, object]:
    token: dict[str, object] = {
        "methods": list(held.claims.methods),
        "user": {
            "id": held.user.id,
            "name": held.user.name,
            "domain": {"id": DOMAIN_ID, "name": DOMAIN_NAME},
            "password_expires_at": None,
        },
        "audit_ids": [one for one in (held.claims.audit_id, held.claims.chain_id) if one],
        "issued_at": _time(held.claims.issued_at),
        "expires_at": _time(held.claims.expires_at),
    }
    if held.project is not None:
        token["project"] = {
            "id": held.project.id,
            "name": held.project.name,
            "domain": {"id": DOMAIN_ID, "name": DOMAIN_NAME},
        }
        token["is_domain"] = False
        # A peer that is shown the token asks for the role by its name: "reader" also of a member.
        token["roles"] = [{"id": role, "name": role} for role in sorted(with_implied(held.roles))]
        if "nocatalog" not in call.query.names():
            token["catalog"] = _catalog(call)
    return {"token": token}


def _catalog(call: Call[IdentityService]) -> list[dict[str, object]]:
    return [_service(endpoint) for endpoint in call.service.catalog(call.base_url)]


def _service(endpoint: Endpoint) -> dict[str, object]:
    rows: Sequence[dict[str, str]] = [
        {
            "id": f"{endpoint.service_type}-{interface}",
            "interface": interface,
            "region": endpoint.region,
            "region_id": endpoint.region,
            "url": endpoint.url,
        }
        for interface in INTERFACES
    ]
    return {
        "id": endpoint.service_type,
        "type": endpoint.service_type,
        "name": endpoint.service_name,
        "endpoints": rows,
    }


def _links(call: Call[IdentityService]) -> dict[str, object]:
    return {"self": f"{call.base_url}{call.path}", "previous": None, "next": None}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
