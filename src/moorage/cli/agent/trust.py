"""Chooses the certificates that a joining machine trusts: authorities in a file, or the one with a fingerprint."""

import hashlib
import re
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from moorage.core.errors import StartError

TIMEOUT_S = 15.0
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def checked_url(text: str, *, allows_plain_http: bool) -> str:
    """The plane's address without a final slash. Raises `StartError`, also for plain HTTP to another machine."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise StartError(f"{text!r} is not the address of a plane; give it as https://cloud.example.org")
    try:
        port = parts.port
    except ValueError as error:
        raise StartError(f"{text!r}: {error}; give it as https://cloud.example.org:8778") from error
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost") and not allows_plain_http:
        raise StartError(
            f"{text} is not encrypted: everyone on the way could read the token and become this host. Put TLS in front "
            "of the services (docs/guides/tls.md) and use https, or add --plain-http on a network that you trust"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"


def certificates_of_file(path: Path) -> bytes:
    """The content of a file of authorities. Raises `StartError` if it has no certificate."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StartError(f"--ca-file {path} cannot be read: {error.strerror}") from error
    try:
        ssl.create_default_context(cadata=content.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise StartError(f"--ca-file {path} has no certificates in PEM format") from error
    return content


def pinned_certificate(url: str, fingerprint: str) -> bytes:
    """The server's certificate, PEM, if it has this SHA-256 fingerprint (colons are ignored). Raises `StartError`."""
    wanted = fingerprint.replace(":", "").lower().removeprefix("sha256")
    if not _SHA256.match(wanted):
        raise StartError(
            f"--fingerprint {fingerprint!r} is not a SHA-256 fingerprint of 64 hexadecimal digits; on the server run: "
            "openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE"
        )
    parts = urlsplit(url)
    if parts.scheme != "https":
        raise StartError("--fingerprint needs an address that begins with https://")
    try:
        pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 443), timeout=TIMEOUT_S)
    except OSError as error:
        raise StartError(f"{url} shows no certificate: {error}; check the address, and that the server runs") from error
    shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    if shown != wanted:
        raise StartError(
            f"{url} shows a certificate with another fingerprint, {shown}: it was renewed, or somebody else answers. "
            "Compare it with the server's own; nothing was sent"
        )
    return pem.encode()


def own_address(url: str) -> str:
    """This machine's address towards the server; loopback if there is no way to it."""
    parts = urlsplit(url)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing: the kernel only chooses the way
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
