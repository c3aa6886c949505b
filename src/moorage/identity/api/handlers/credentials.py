"""``/v3/users/{user_id}/application_credentials``: of the caller; administrators also read and delete others'."""

from moorage.core.errors import Forbidden
from moorage.identity.api.handlers.account_views import credential_document, listed
from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response


def list_credentials(request: Request[IdentityService], user_id: str) -> Response:
    _check_sees(request, user_id)
    credentials = request.service.credentials
    rows = [
        credential_document(row, credentials.roles_of(row), request.base_url)
        for row in credentials.list_of(user_id, request.query.first("name"))
    ]
    return listed(request, "application_credentials", rows)


def show_credential(request: Request[IdentityService], user_id: str, credential_id: str) -> Response:
    _check_sees(request, user_id)
    credentials = request.service.credentials
    found = credentials.get(user_id, credential_id)
    document = credential_document(found, credentials.roles_of(found), request.base_url)
    return Response(body={"application_credential": document})


def create_credential(request: Request[IdentityService], user_id: str) -> Response:
    holder = request.service.holder_of(request.headers.get("x-auth-token"))
    if holder.user.id != user_id:
        raise Forbidden("Everybody creates application credentials for himself only: they act in the user's name.")
    credentials = request.service.credentials
    created, secret = credentials.create(holder, request.json["application_credential"])
    document = credential_document(created, credentials.roles_of(created), request.base_url)
    body = {"application_credential": document | {"secret": secret}}
    return Response(201, body, {"cache-control": "no-store"})


def delete_credential(request: Request[IdentityService], user_id: str, credential_id: str) -> Response:
    _check_sees(request, user_id)
    holder = request.service.holder_of(request.headers.get("x-auth-token"))
    request.service.credentials.delete(holder, user_id, credential_id)
    return Response(204)


def _check_sees(request: Request[IdentityService], user_id: str) -> None:
    """Raises `NotFound` for other users, unless the caller is an administrator."""
    request.service.get_user(
        request.caller, user_id, privileged=request.allowed("identity:manage_any_application_credential")
    )
