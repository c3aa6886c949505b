"""The proxy of serial consoles: websockets of people on one side, websockets of hosts' agents on the other.

    person --?token=T-->  redeem T, call the host  -->  wait  <--?session=ID--  agent
                          pump bytes both ways; check every `CHECK_S` seconds whether the person may still have it

It listens on a port of its own, because `moorage.wire.server` gives each request to a thread and a console would hold
it for hours (decision 0028). One thread runs all consoles of the process. A connection is refused before it becomes a
websocket: by its Origin, its token, or the number of connections.

A slow side slows the other one down: each holds back up to `MAX_MESSAGES` messages and `WRITE_BUFFER_BYTES`. A side
that takes nothing for `PING_TIMEOUT_S` does not answer pings either, which ends the console.

Not here: who may have a console (`moorage.compute.servers.console_service`).
"""

import asyncio
import hmac
import logging
import secrets
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from moorage.compute.servers.console_service import CHECK_S, HOST_TIMEOUT_S, ConsoleService, OpenConsole
from moorage.core.errors import MoorageError, StartError, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Maximum size of a message; the peer of a larger one is disconnected.
MAX_MESSAGE_BYTES = 1 << 16
#: Messages that were received and wait for the other side, and bytes that wait to be sent.
MAX_MESSAGES, WRITE_BUFFER_BYTES = 4, 1 << 16
PING_S, PING_TIMEOUT_S = 10.0, 20.0
#: Seconds for the TLS handshake and for the request of a new connection.
OPEN_TIMEOUT_S = 10.0
#: Maximum number of connections, those included that have sent nothing yet.
MAX_CONNECTIONS = 2_000
#: The identity service may fail to answer this often in a row before consoles end.
MAX_FAILED_CHECKS = 6
#: Nova's clients ask for it; the messages are the same without it.
SUBPROTOCOL = Subprotocol("binary")

#: Close codes: the console ended, and it could not be opened or the connection to the host was lost.
ENDED, FAILED = 1000, 4000
GOING_AWAY = 1001
_MAX_REASON_BYTES = 123
_START_TIMEOUT_S = 10.0
_BEARER = "Bearer "


@dataclass(frozen=True)
class ProxySettings:
    """`origins`: of the pages that may open consoles; a client without an Origin is not a browser and may, too."""

    origins: frozenset[str]
    idle_s: float  #: without input and output, a console ends after this time; 0: never
    host_url: Callable[[], str]  #: the URL of this very process for hosts' agents
    certificate: tuple[Path, Path] | None = None


@dataclass
class _WaitingConsole:
    """A console whose host has not connected yet. `host` is the agent's connection."""

    secret: str
    host: "asyncio.Future[ServerConnection]"


@dataclass
class _Activity:
    """When the last bytes passed, by the monotonic clock."""

    at: float = field(default_factory=time.monotonic)


class ConsoleListener:
    """The proxy's address; `port` 0: any free one."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._wanted_port = port
        self.socket: socket.socket | None = None

    def open(self) -> None:
        """Raises `StartError`."""
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        try:
            self.socket = socket.create_server((self._address, self._wanted_port), family=family)
            # Of the connections, too: the kernel would hold megabytes for a client that is slower than a guest, and
            # its pings would wait behind them.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER_BYTES)
        except OSError as error:
            raise StartError(
                f"the proxy of consoles cannot listen on {self._address} port {self._wanted_port}: {error.strerror}; "
                "change [compute] console_port, or end the process that has the port"
            ) from error

    @property
    def port(self) -> int:
        """Raises `Unavailable` before `open`."""
        if self.socket is None:
            raise Unavailable("the proxy of consoles has not started")
        port: int = self.socket.getsockname()[1]
        return port


class ConsoleProxy:
    """Call `start` once, then `stop`. `reload` reads the certificate again."""

    def __init__(self, service: ConsoleService, settings: ProxySettings, listener: ConsoleListener) -> None:
        self._service = service
        self._settings = settings
        self._listener = listener
        self._waiting: dict[str, _WaitingConsole] = {}
        #: {connection: who it is}, from its request until its handler begins
        self._admitted: weakref.WeakKeyDictionary[ServerConnection, OpenConsole | _WaitingConsole]
        self._admitted = weakref.WeakKeyDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        self._tls: ssl.SSLContext | None = None

    def start(self) -> None:
        """Returns when it accepts connections. Raises `StartError`."""
        self._listener.open()
        if self._settings.certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.reload()
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), name="consoles", daemon=True)
        self._thread.start()
        if not ready.wait(_START_TIMEOUT_S):
            raise StartError("the proxy of consoles did not start; see the log")

    def reload(self) -> None:
        if self._tls is not None and self._settings.certificate is not None:
            self._tls.load_cert_chain(*self._settings.certificate)

    def stop(self) -> None:
        """Ends all consoles; their people see why."""
        if self._loop is None or self._server is None or self._thread is None or not self._thread.is_alive():
            return
        reason = "the service stops; open the console again in a moment"
        self._loop.call_soon_threadsafe(lambda server: server.close(code=GOING_AWAY, reason=reason), self._server)
        self._thread.join(timeout=5.0)

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        handshake: dict[str, Any] = {} if self._tls is None else {"ssl_handshake_timeout": OPEN_TIMEOUT_S}
        async with serve(
            self._serve,
            sock=self._listener.socket,
            ssl=self._tls,
            process_request=self._admit,
            select_subprotocol=lambda _connection, offered: SUBPROTOCOL if SUBPROTOCOL in offered else None,
            create_connection=_BoundedConnection,
            compression=None,
            server_header=None,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=MAX_MESSAGES,
            write_limit=WRITE_BUFFER_BYTES,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=2.0,
            ping_interval=PING_S,
            ping_timeout=PING_TIMEOUT_S,
            logger=_library_log(),
            **handshake,
        ) as self._server:
            ready.set()
            await self._server.wait_closed()

    # ---------------------------------------------------------------------------------- before the websocket

    async def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuses a request that may not become a websocket; a token is used up only if all else is right."""
        origins = request.headers.get_all("Origin")
        if origins and (len(origins) > 1 or origins[0] not in self._settings.origins):
            return connection.respond(
                403,
                f"Pages of {origins[0]} may not open consoles: only those of the dashboard, at "
                f"{', '.join(sorted(self._settings.origins))}. [server] cors_origins adds others.\n",
            )
        query = parse_qs(urlsplit(request.path).query)
        if tokens := query.get("token"):
            return await self._admit_person(connection, tokens[-1])
        if sessions := query.get("session"):
            return self._admit_host(connection, sessions[-1], request.headers.get("Authorization", ""))
        return connection.respond(404, "This is the proxy of serial consoles: openstack console url show --serial\n")

    async def _admit_person(self, connection: ServerConnection, token: str) -> Response | None:
        try:
            console = await _in_thread(lambda: self._service.open_console(token))
        except Unavailable as error:
            return connection.respond(503, f"{error.message}\n")
        except MoorageError as error:
            return connection.respond(403, f"{error.message}\n")
        self._admitted[connection] = console
        return None

    def _admit_host(self, connection: ServerConnection, session: str, authorization: str) -> Response | None:
        waiting = self._waiting.get(session)
        given = authorization.removeprefix(_BEARER)
        if waiting is None or waiting.host.done() or not hmac.compare_digest(given.encode(), waiting.secret.encode()):
            return connection.respond(403, "no person waits here for this console\n")
        self._admitted[connection] = waiting
        return None

    # ------------------------------------------------------------------------------------------ the console

    async def _serve(self, connection: ServerConnection) -> None:
        admitted = self._admitted.pop(connection)
        if isinstance(admitted, OpenConsole):
            try:
                await self._serve_person(connection, admitted)
            except Exception:  # the top of a console: its person was told by a close code, the log gets the traceback
                log.exception("a console failed", extra={"server": admitted.server_id})
        elif admitted.host.done():
            await connection.close(FAILED, "another connection was faster")
        else:
            admitted.host.set_result(connection)
            await connection.wait_closed()  # `_serve_person` does the rest

    async def _serve_person(self, person: ServerConnection, console: OpenConsole) -> None:
        peer = str(person.remote_address[0]) if person.remote_address else ""
        about = {"server": console.server_id, "user": console.user_id, "host": console.host, "address": peer}
        log.info("a person opens a console", extra=about)
        error: str | None = None
        code, reason = FAILED, "the proxy failed; see its log"
        try:
            host = await self._reach_host(person, console)
            if _announces_host(person):
                await person.send(b"")
            code, reason = await self._connect(person, host, console)
            await host.close(ENDED, _close_reason(reason))
        except Unavailable as failed:
            error = reason = failed.message
        finally:
            await person.close(code, _close_reason(reason))
            log.info("a console ended", extra=about | {"why": reason})
            await _in_thread(lambda: self._service.end_console(console, error))

    async def _reach_host(self, person: ServerConnection, console: OpenConsole) -> ServerConnection:
        """Calls the host's agent and waits for its connection. Raises `Unavailable`, also if the person leaves."""
        waiting = _WaitingConsole(secrets.token_urlsafe(32), asyncio.get_running_loop().create_future())
        self._waiting[console.id] = waiting
        try:
            url = self._settings.host_url()
            await _in_thread(lambda: self._service.call_host(console, url, waiting.secret))
            left = asyncio.ensure_future(person.wait_closed())
            left.add_done_callback(lambda _: waiting.host.cancel())
            try:
                return await asyncio.wait_for(waiting.host, HOST_TIMEOUT_S)
            finally:
                left.cancel()
        except TimeoutError as error:
            raise Unavailable(
                f"host {console.host} did not connect within {HOST_TIMEOUT_S:.0f} s; try again"
            ) from error
        except asyncio.CancelledError as error:
            if person.close_code is None:
                raise  # the process stops
            raise Unavailable("the person left before the host connected") from error
        except MoorageError as error:
            raise Unavailable(error.message) from error
        finally:
            del self._waiting[console.id]

    async def _connect(self, person: ServerConnection, host: ServerConnection, console: OpenConsole) -> tuple[int, str]:
        """Passes bytes on until the console ends; returns code and reason for the person."""
        activity = _Activity()
        watch = asyncio.create_task(self._watch(console, activity))
        pumps = [asyncio.create_task(_pump(*ways, activity)) for ways in ((person, host), (host, person))]
        tasks = [watch, *pumps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                return ENDED, watch.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if host.close_code in (ENDED, FAILED):
            return host.close_code, host.close_reason or "the console ended"
        if person.close_code is not None:
            is_stopping = person.close_code == host.close_code == GOING_AWAY
            return ENDED, "the service stops" if is_stopping else "the person closed it"
        return FAILED, f"the connection to host {console.host} was lost: its agent ended or does not answer"

    async def _watch(self, console: OpenConsole, activity: _Activity) -> str:
        """Returns why the console must end."""
        failed = 0
        while True:
            await asyncio.sleep(min(CHECK_S, self._settings.idle_s or CHECK_S))
            if self._settings.idle_s and time.monotonic() - activity.at >= self._settings.idle_s:
                return f"nobody typed and nothing was printed for {self._settings.idle_s:.0f} s"
            try:
                why = await _in_thread(lambda: self._service.objection(console.id))
            except MoorageError as error:
                failed += 1
                log.warning("a console could not be checked", extra={"why": error.message})
                why = error.message if failed >= MAX_FAILED_CHECKS else None
            else:
                failed = 0
            if why is not None:
                return why


class _BoundedConnection(ServerConnection):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.server.handler_tasks) > MAX_CONNECTIONS and isinstance(transport, asyncio.Transport):
            transport.abort()


def _library_log() -> logging.Logger:
    """The library logs each request with its token, and an error for each malformed one, of which anybody can send
    many. Our own messages have the rest.
    """
    logger = logging.getLogger(f"{__name__}.websocket")
    logger.setLevel(logging.CRITICAL)
    return logger


async def _pump(source: ServerConnection, target: ServerConnection, activity: _Activity) -> None:
    """Passes messages on until a side is closed."""
    try:
        async for message in source:
            activity.at = time.monotonic()
            await target.send(message.encode() if isinstance(message, str) else message)
            activity.at = time.monotonic()
    except ConnectionClosed:
        return


def _announces_host(person: ServerConnection) -> bool:
    """Whether the person's client asked for an empty message once the host has connected. A guest may print nothing."""
    return person.request is not None and "announce" in parse_qs(urlsplit(person.request.path).query)


async def _in_thread(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


def _close_reason(text: str) -> str:
    """`text`, shortened to what a close frame can carry."""
    return text.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
