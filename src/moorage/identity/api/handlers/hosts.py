"""``/moorage/v1/hosts``: the identities of hosts; not part of Keystone's API.

GET    /moorage/v1/hosts                    ``{"hosts": [{"name", "state", "enrolled_at", "rotated_at", "revoked_at",
                                            "invited_until"}]}``; `state` is invited, expired,
                                            enrolled, own or revoked
POST   /moorage/v1/hosts/{host}/enrolment   ``{"expires_s": 3600}`` -> 201 ``{"token", "expires_at"}``
DELETE /moorage/v1/hosts/{host}             revokes its credential and all its tokens

Called by hosts, without a token:

POST   /moorage/v1/hosts/{host}/credential  ``{"token", "secret_sha256"}``: exchange the one-time token
PUT    /moorage/v1/hosts/{host}/credential  ``{"secret", "secret_sha256"}``: the next secret
POST   /moorage/v1/hosts/{host}/tokens      ``{"secret"}`` -> 201 ``{"token", "expires_at"}``: an access token
"""

from datetime import datetime

from moorage.identity.host_registry import HostIdentity
from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response


def list_hosts(request: Request[IdentityService]) -> Response:
    now = request.service.now()
    return Response(
        body={"hosts": [_shown(name, host, now) for name, host in sorted(request.service.hosts.hosts().items())]}
    )


def invite_host(request: Request[IdentityService], host: str) -> Response:
    token, expires_at = request.service.hosts.invite_host(host, request.json["expires_s"])
    return Response(201, {"token": token, "expires_at": expires_at.isoformat()})


def revoke_host(request: Request[IdentityService], host: str) -> Response:
    request.service.hosts.revoke_host(host)
    return Response(204)


def enrol_host(request: Request[IdentityService], host: str) -> Response:
    request.service.hosts.enrol_host(host, request.json["token"], request.json["secret_sha256"])
    return Response(204)


def rotate_secret(request: Request[IdentityService], host: str) -> Response:
    request.service.hosts.rotate_secret(host, request.json["secret"], request.json["secret_sha256"])
    return Response(204)


def log_in_host(request: Request[IdentityService], host: str) -> Response:
    token, holder = request.service.log_in_host(host, request.json["secret"])
    return Response(201, {"token": token, "expires_at": holder.claims.expires_at.isoformat()})


def _shown(name: str, host: HostIdentity, now: datetime) -> dict[str, object]:
    invitation = host.invitation
    is_invited = invitation is not None and now < invitation.expires_at
    if host.revoked_at is not None:
        state = "revoked"
    elif host.is_own:
        state = "own"
    elif host.secret:
        state = "enrolled"
    else:
        state = "invited" if is_invited else "expired"
    return {
        "name": name,
        "state": state,
        "enrolled_at": _time(host.enrolled_at),
        "rotated_at": _time(host.rotated_at),
        "revoked_at": _time(host.revoked_at),
        "invited_until": _time(invitation.expires_at if invitation is not None and is_invited else None),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
