"""TLS of the server: its certificate, and the socket of a connection on which it encrypts.

`TlsSocket` behaves as a socket that does not block. It encrypts and decrypts in memory (`ssl.MemoryBIO`), so that a
client that stops in the middle of the handshake or of a record holds no thread; it only keeps its connection until its
deadline.

Not here: deadlines (`moorage.wire.server.connection`). How clients verify certificates: `moorage.wire.transports`.
"""

import logging
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from moorage.core import blocking_hook
from moorage.core.errors import StartError
from moorage.wire.server import http1
from moorage.wire.server.http1 import BadRequestHead

log = logging.getLogger(__name__)

#: Bytes that are encrypted before the kernel is offered the result: four records.
_PIECE_BYTES = 64 * 1024
#: Parts of a response are joined up to this size, so that they share records.
_JOINED_BYTES = 256 * 1024
#: Bound of the encrypted bytes that the kernel has not taken: one piece, and answers to messages of the protocol itself
#: (such as key updates), which a client could request without end.
_MAX_ENCRYPTED_BYTES = 2 * _PIECE_BYTES
#: The type of the record with which each handshake begins.
_HANDSHAKE = 22


class ServerTls:
    """The certificate and key of the server. `reload` reads them again, for new connections."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Both are PEM files; `certificate` also contains the intermediate certificates. Raises `StartError`."""
        self._certificate = certificate
        self._key = key
        self._context = _load_context(certificate, key)

    def reload(self) -> None:
        """Read the files again. If they are invalid, logs the reason and keeps the present certificate."""
        try:
            self._context = _load_context(self._certificate, self._key)
        except StartError as error:
            log.error("the new certificate is invalid; the present one stays", extra={"reason": error.message})
        else:
            log.info("the certificate was read again", extra={"file": str(self._certificate)})

    def wrap(self, sock: socket.socket) -> "TlsSocket":
        return TlsSocket(sock, self._context)


def _load_context(certificate: Path, key: Path) -> ssl.SSLContext:
    for option, path in (("certificate_file", certificate), ("key_file", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise StartError(f"[server] {option}: {path} cannot be read: {error.strerror}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])

    def refuse_passphrase() -> NoReturn:
        # Without this, OpenSSL would ask on the terminal and wait.
        raise StartError(
            f"[server] key_file: {key} is encrypted; save it without a passphrase, readable by this user only"
        )

    try:
        context.load_cert_chain(certificate, key, password=refuse_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise StartError(f"[server] key_file: {key} is not the key of the certificate {certificate}") from error
        raise StartError(
            f"[server] certificate_file {certificate} or key_file {key} is invalid ({error.reason or error}); both "
            "must be PEM files, the certificate before its intermediate certificates"
        ) from error
    return context


class TlsSocket:
    """The server's side of a TLS connection over `sock`, which does not block.

    After `send` or `sendmsg` took only a part, the next call must begin with the rest, because the kernel may already
    have got a piece of it.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._has_begun = False
        #: Whether the handshake is complete.
        self.is_established = False
        self._is_ended = False
        #: Encrypted bytes that the kernel has not taken, and the number of bytes of the application in them.
        self._encrypted = memoryview(b"")
        self._pending_bytes = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes of the client; empty at the end. Raises `BlockingIOError` if there are none now, and
        `OSError` (also `ssl.SSLError`) if the connection has failed.
        """
        arrived = self._socket.recv(size)
        if not arrived or self._is_ended:  # bytes after our own end are discarded, so they are not decrypted
            return arrived
        if not self._has_begun and arrived[0] != _HANDSHAKE:
            self._refuse_plain_http()
        self._has_begun = True
        self._incoming.write(arrived)
        try:
            found = self._decrypt(size) if self.is_established or self._shake_hands() else b""
        except ssl.SSLError:
            with suppress(OSError):
                self._flush()  # the alert that tells the client why
            raise
        self._flush()
        if not found:
            raise BlockingIOError
        return found

    def _refuse_plain_http(self) -> NoReturn:
        """Answer a client that speaks plain HTTP with an HTTP error."""
        with suppress(OSError):
            self._socket.send(http1.error_response(BadRequestHead(400, "this port expects TLS; use https://")))
        raise ConnectionError("the client does not speak TLS")

    def _shake_hands(self) -> bool:
        """Continue the handshake with the bytes received so far; returns whether it is complete."""
        blocking_hook.about_to_block()  # the signature takes a millisecond, without the interpreter's lock
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_established = True
        return True

    def _decrypt(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while self._incoming.pending:
            try:
                piece = self._tls.read(size)
            except ssl.SSLWantReadError:
                break
            if not piece:  # the client has ended; the next `recv` finds the end
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RD)
                break
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send(self, data: bytes | memoryview) -> int:
        """The number of bytes that the kernel took. Raises `BlockingIOError` if it took none."""
        taken, whole = 0, memoryview(data)
        while self._flush():
            taken, self._pending_bytes = taken + self._pending_bytes, 0
            if taken == len(whole):
                return taken
            piece = whole[taken : taken + _PIECE_BYTES]
            self._pending_bytes = self._tls.write(piece)
        if not taken:
            raise BlockingIOError
        return taken

    def sendmsg(self, parts: Sequence[bytes]) -> int:
        """As `send`, with several parts."""
        if sum(map(len, parts)) <= _JOINED_BYTES:
            return self.send(b"".join(parts))
        taken = 0
        for part in parts:
            try:
                sent = self.send(part)
            except BlockingIOError:
                break
            taken += sent
            if sent < len(part):
                break
        if not taken:
            raise BlockingIOError
        return taken

    def _flush(self) -> bool:
        """Offer the encrypted bytes to the kernel; returns whether it took all of them. Raises `OSError`."""
        if self._outgoing.pending:
            self._encrypted = memoryview(b"".join((self._encrypted, self._outgoing.read())))
            if len(self._encrypted) > _MAX_ENCRYPTED_BYTES:
                raise ConnectionError("the client does not read the answers to its TLS messages")
        while self._encrypted:
            try:
                sent = self._socket.send(self._encrypted)
            except BlockingIOError:
                return False
            self._encrypted = self._encrypted[sent:]
        return True

    def shutdown(self, how: int) -> None:
        """Shut the socket down; from any thread, except for SHUT_WR, which tells the client that nothing follows."""
        if how == socket.SHUT_WR:
            self._is_ended = True
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()
