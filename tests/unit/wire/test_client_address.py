"""The address of a client, with and without trusted proxies."""

import pytest

from moorage.wire.forwarded import IN_PROCESS_KEY, TrustedProxies

PROXY = "10.0.0.1"


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({"REMOTE_ADDR": "192.0.2.7"}, "192.0.2.7"),
        ({"REMOTE_ADDR": "192.0.2.7", "HTTP_X_FORWARDED_FOR": "198.51.100.1"}, "192.0.2.7"),
        ({"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": "198.51.100.1"}, "198.51.100.1"),
        ({"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": "1.2.3.4, 198.51.100.1"}, "198.51.100.1"),
        ({"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": "198.51.100.1:4711"}, "198.51.100.1"),
        ({"REMOTE_ADDR": PROXY, "HTTP_FORWARDED": 'for="[2001:db8:1:2:3::4]:4711";proto=https'}, "2001:db8:1:2::/64"),
        ({"REMOTE_ADDR": PROXY, "HTTP_FORWARDED": "for=_hidden"}, ""),
        ({"REMOTE_ADDR": PROXY}, PROXY),
        ({"REMOTE_ADDR": "2001:db8:1:2:3::4"}, "2001:db8:1:2::/64"),
        ({"REMOTE_ADDR": "::ffff:192.0.2.7"}, "192.0.2.7"),
        ({"REMOTE_ADDR": "fe80::1%eth0"}, "fe80::/64"),
        ({"REMOTE_ADDR": "127.0.0.1"}, ""),
        ({"REMOTE_ADDR": "::1"}, ""),
        ({"REMOTE_ADDR": ""}, ""),
        ({}, ""),
        ({"REMOTE_ADDR": "127.0.0.1", IN_PROCESS_KEY: True}, ""),
        ({"REMOTE_ADDR": "127.0.0.1", IN_PROCESS_KEY: True, "HTTP_X_FORWARDED_FOR": "192.0.2.7"}, "192.0.2.7"),
        ({"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "192.0.2.7"}, ""),
    ],
)
def test_the_client_address_comes_from_the_connection_or_a_trusted_proxy(environ, address):
    assert TrustedProxies([f"{PROXY}/32"]).client_address(environ) == address


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({"REMOTE_ADDR": "127.0.0.1"}, "127.0.0.1"),
        ({"REMOTE_ADDR": "2001:db8:1:2:3::4"}, "2001:db8:1:2:3::4"),
        ({"REMOTE_ADDR": "192.0.2.7", "HTTP_X_FORWARDED_FOR": "198.51.100.1"}, "192.0.2.7"),
        ({"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": "198.51.100.1"}, "198.51.100.1"),
        ({"REMOTE_ADDR": PROXY, "HTTP_FORWARDED": 'for="[2001:db8:1:2:3::4]:4711"'}, "2001:db8:1:2:3::4"),
        ({"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": "a secret"}, PROXY),
        ({"REMOTE_ADDR": "127.0.0.1", IN_PROCESS_KEY: True, "HTTP_X_FORWARDED_FOR": "192.0.2.7"}, "192.0.2.7"),
        ({"REMOTE_ADDR": "127.0.0.1", IN_PROCESS_KEY: True}, "127.0.0.1"),
        ({}, ""),
    ],
)
def test_the_full_client_address_for_logs_is_not_shortened(environ, address):
    assert TrustedProxies([f"{PROXY}/32"]).full_address(environ) == address
