"""Requests on behalf of a user: with the user's token and our service token, never with our token alone."""

from moorage.wire.client import NoCredentials, ServiceClient
from moorage.wire.transports import ClientResponse

USER = {"x-auth-token": "users"}


class CountedTokens:
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


def test_a_request_for_a_user_has_the_users_token_and_our_service_token():
    assert asked(Peer(), USER, CountedTokens()) == [{"x-auth-token": "users", "x-service-token": "ours-0"}]


def test_a_request_whose_service_token_is_refused_is_repeated_with_the_users_token_alone():
    """Our token may have expired, or belong to a user without the role service."""
    peer = Peer(lambda headers: "x-service-token" in headers)
    assert asked(peer, USER, CountedTokens()) == [{"x-auth-token": "users", "x-service-token": "ours-0"}, USER]


def test_a_refused_user_token_is_not_replaced_by_ours():
    peer = Peer(lambda headers: True)
    assert [one["x-auth-token"] for one in asked(peer, USER, CountedTokens())] == ["users", "users"]


def test_for_a_user_without_credentials_no_token_is_sent():
    assert asked(Peer(), {}, CountedTokens()) == [{}]


def test_a_service_without_credentials_sends_only_the_users_token():
    assert asked(Peer(), USER, NoCredentials()) == [USER]
