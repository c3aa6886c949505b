"""Transports of a client's requests to a service: a socket, or a WSGI call in this process.

Both transports take a method, path, headers and body, and return a status, headers and body; nothing else differs.
"""

import io
import ssl
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes, urlsplit

from moorage.core.errors import StartError, Unavailable
from moorage.telemetry.logs import caller_context, global_request, request_context
from moorage.wire.app import WsgiApp
from moorage.wire.forwarded import IN_PROCESS_KEY

if TYPE_CHECKING:
    import httpx


def outgoing_request_id() -> str:
    """The request id to send to other services: the client's if it sent one, else our own; empty outside requests."""
    return global_request.get() or request_context.get()[1]


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """A response with its whole body. `headers` are by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> ClientResponse:
        """`path` starts with ``/`` and may include a query. Raises `Unavailable` if there is no response."""
        ...

    def stream(self, method: str, path: str, headers: Mapping[str, str]) -> Any:
        """A context manager that returns (status, headers, chunks of the body as they arrive)."""
        ...


@cache
def trusted_authorities(ca_file: Path | None) -> ssl.SSLContext:
    """Verifies servers against the machine's authorities (`SSL_CERT_FILE` names others) and those in `ca_file`.

    Every certificate in `ca_file` is trusted as it stands, as Python 3.13 does by default: also that of a server, which
    `moorage agent join --fingerprint` writes there. The name and the dates are verified as ever, and a certificate
    that is no authority's vouches for itself only. Read once per process. Raises `StartError`.
    """
    trust = ssl.create_default_context()
    if ca_file is not None:
        trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            trust.load_verify_locations(ca_file)
        except ssl.SSLError as error:
            raise StartError(f"ca_file: {ca_file} has no certificates in PEM format ({error.reason})") from error
        except OSError as error:
            raise StartError(f"ca_file: {ca_file} cannot be read: {error.strerror}") from error
    return trust


class SocketTransport:
    """HTTP over TCP, or over the Unix socket `unix_socket`."""

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = 60.0,
        answer_s: float | None = None,
        unix_socket: str | None = None,
        ca_file: Path | None = None,
        tls_name: str | None = None,
    ) -> None:
        """`timeout_s`: of each step of a request; `answer_s`: instead of it, if the request's body is small (bytes).
        `ca_file`: see `trusted_authorities`. `tls_name`: the name in the server's certificate, if it is not that in
        `base_url`. Raises `StartError`.
        """
        import httpx  # importing it takes a fifth of the start of a process that may never need it

        self.base_url = base_url.rstrip("/")
        self._error = httpx.HTTPError
        trust = trusted_authorities(ca_file)
        transport = httpx.HTTPTransport(uds=unix_socket, verify=trust) if unix_socket else None
        # trust_env=False: requests between services of one plane must not go through a proxy from the environment.
        self._http = httpx.Client(timeout=timeout_s, transport=transport, trust_env=False, verify=trust)
        self._timeout_s, self._answer_s = timeout_s, answer_s or timeout_s
        self._extensions = {"sni_hostname": tls_name} if tls_name else None

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> ClientResponse:
        timeout_s = self._answer_s if body is None or isinstance(body, bytes) else self._timeout_s
        try:
            response = self._http.request(
                method, self.base_url + path, headers=dict(headers), content=body, extensions=self._extensions,
                timeout=timeout_s,
            )  # fmt: skip
        except self._error as error:
            raise self._unavailable(error) from error
        return ClientResponse(response.status_code, response.headers, response.content)

    @contextmanager
    def stream(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        try:
            with self._http.stream(
                method, self.base_url + path, headers=dict(headers), extensions=self._extensions
            ) as response:
                yield response.status_code, response.headers, response.iter_bytes()
        except self._error as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: "httpx.HTTPError") -> Unavailable:
        said = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in said:
            said += "; set [endpoints] ca_file (or OS_CACERT) to a file with the authority that issued its certificate"
        return Unavailable(f"{self.base_url} does not answer: {said}", url=self.base_url)


class InProcessTransport:
    """The WSGI application `app`, called as its server would call it."""

    def __init__(self, app: WsgiApp, base_url: str = "http://127.0.0.1") -> None:
        self._app = app
        url = urlsplit(base_url)
        self.base_url = base_url.rstrip("/")
        self._prefix = url.path.rstrip("/")
        self._environ = {
            "SERVER_NAME": url.hostname or "127.0.0.1",
            "SERVER_PORT": str(url.port or 80),
            "HTTP_HOST": url.netloc,
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "SCRIPT_NAME": "",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": url.scheme,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
            IN_PROCESS_KEY: True,
        }

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> ClientResponse:
        with self.stream(method, path, headers, body) as (status, answer_headers, chunks):
            return ClientResponse(status, answer_headers, b"".join(chunks))

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        started: list[tuple[int, dict[str, str]]] = []

        def start_response(status: str, answer_headers: list[tuple[str, str]], _exc_info: object = None) -> None:
            started.append((int(status[:3]), {name.lower(): value for name, value in answer_headers}))

        # The application runs in this thread: restore our request ids afterwards, for our own log lines.
        context, given, caller = request_context.get(), global_request.get(), caller_context.get()
        chunks = self._app(self._environ_of(method, path, headers, body), start_response)
        try:
            iterator = iter(chunks)
            status, answer_headers = started[0]
            yield status, answer_headers, iterator
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
            request_context.set(context)
            global_request.set(given)
            caller_context.set(caller)

    def _environ_of(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None
    ) -> dict[str, Any]:
        raw_path, _, query = path.partition("?")
        environ = dict(self._environ)
        environ |= {
            "REQUEST_METHOD": method,
            "PATH_INFO": unquote_to_bytes(self._prefix + raw_path).decode("latin-1"),
            "QUERY_STRING": query,
        }
        if body is None or isinstance(body, bytes):
            environ |= {"CONTENT_LENGTH": str(len(body or b"")), "wsgi.input": io.BytesIO(body or b"")}
        else:
            environ |= {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input": io.BufferedReader(_Chunks(body))}
        for name, value in headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        return environ


class _Chunks(io.RawIOBase):
    """An iterable of bytes as a readable file, for bodies that are sent while they are produced."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
