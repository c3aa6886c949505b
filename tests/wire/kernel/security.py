"""How the servers and clients of a test speak: plain HTTP, or TLS with a certificate of a test authority."""

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from moorage.wire.server.tls import ServerTls

NAME = "localhost"


@dataclass(frozen=True)
class Security:
    """`tls` is the server's; `trust` that of its clients. Both are None for plain HTTP."""

    tls: ServerTls | None = None
    trust: ssl.SSLContext | None = None

    def connect(self, address: tuple[str, int], timeout_s: float, *, receive_bytes: int = 0) -> socket.socket:
        """`receive_bytes`: size of the receive buffer, if it is not the kernel's."""
        sock = socket.socket()
        sock.settimeout(timeout_s)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.connect(address)
        return sock if self.trust is None else self.trust.wrap_socket(sock, server_hostname=NAME)


PLAIN = Security()


def with_tls(certificates: Path) -> Security:
    """`certificates`: a directory in which `tests.certificates.make_certificates` wrote."""
    trust = ssl.create_default_context(cafile=certificates / "ca.crt")
    return Security(ServerTls(certificates / "moorage.crt", certificates / "moorage.key"), trust)
