"""Requests for a user: with the user's credentials and ours beside them, never with ours instead."""

from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import ClientResponse

USER = {"x-auth-token": "users"}


class Ours:
    """A `TokenSource` whose tokens are counted."""

    def __init__(self):
        self.number = 0

    def headers(self, *, renew=False):
        self.number += renew
        return {"x-auth-token": f"ours-{self.number}"}


class Peer:
    """A transport to a service that refuses the credentials in `refuses`."""

    def __init__(self, refuses=lambda headers: False):
        self.refuses, self.seen = refuses, []

    def send(self, method, path, headers, body=None):
        self.seen.append({name: headers[name] for name in headers if name in ("x-auth-token", "x-service-token")})
        return ClientResponse(401 if self.refuses(headers) else 200, {}, b"{}")


def asked(peer, user, credentials):
    client = ServiceClient(peer, service_type="image", credentials=credentials).on_behalf_of(user)
    client.request_raw("GET", "/", accept=(401,))
    return peer.seen


def test_the_users_token_goes_with_ours_beside_it():
    assert asked(Peer(), USER, Ours()) == [{"x-auth-token": "users", "x-service-token": "ours-0"}]


def test_where_ours_is_refused_the_users_is_tried_alone():
    """Ours may be too old, or belong to a user without the role of a service."""
    peer = Peer(lambda headers: "x-service-token" in headers)
    assert asked(peer, USER, Ours()) == [{"x-auth-token": "users", "x-service-token": "ours-0"}, USER]


def test_a_refused_user_is_not_replaced_by_us():
    peer = Peer(lambda headers: True)
    assert [one["x-auth-token"] for one in asked(peer, USER, Ours())] == ["users", "users"]


def test_a_user_without_credentials_sends_none():
    assert asked(Peer(), {}, Ours()) == [{}]


def test_a_service_without_credentials_has_none_to_add():
    assert asked(Peer(), USER, NoCredentials()) == [USER]
