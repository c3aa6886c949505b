"""A TCP port of this machine for a server that a test starts."""

import contextlib
import secrets
import socket


def free_port() -> int:
    """A free port outside the range of outgoing connections, so no other process takes it between its uses."""
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
