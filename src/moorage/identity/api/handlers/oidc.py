"""``/moorage/v1/oidc``: sign-in with an OpenID provider. Public, as a login: the bodies authenticate their callers.

Without a provider every route answers 404, so that a client finds out whether there is one.
"""

from moorage.core.errors import NotFound
from moorage.identity.api.handlers.tokens import new_token
from moorage.identity.service import IdentityService, ProviderSignIn
from moorage.wire.http import Request, Response


def show_provider(request: Request[IdentityService]) -> Response:
    """What a client needs to know: the provider's name, and how a program without a browser signs in at it."""
    settings = _sign_in(request).settings
    return Response(
        body={
            "provider": {
                "name": settings.name,
                "issuer": settings.issuer,
                "device_client_id": settings.device_client_id or None,
                "scopes": settings.scopes,
            }
        }
    )


def begin_sign_in(request: Request[IdentityService]) -> Response:
    return Response(body={"url": _sign_in(request).authorization_url(request.json["browser_secret"])})


def redeem_code(request: Request[IdentityService]) -> Response:
    body = request.json
    found = _sign_in(request).sign_in_with_code(
        body["browser_secret"], body["state"], body["code"], body.get("iss"), request.address
    )
    return new_token(request, *found)


def redeem_id_token(request: Request[IdentityService]) -> Response:
    return new_token(request, *_sign_in(request).sign_in_with_id_token(request.json["id_token"], request.address))


def _sign_in(request: Request[IdentityService]) -> ProviderSignIn:
    """Raises `NotFound`."""
    if request.service.oidc is None:
        raise NotFound("This cloud has no OpenID provider: [oidc] issuer is not set.", code="identity.oidc.off")
    return request.service.oidc
