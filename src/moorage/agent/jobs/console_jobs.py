"""Connects serial consoles of guests to the compute service's proxy, which connects them to people.

    guest -- driver -- GuestConsole -- ConsoleSession -- websocket --> moorage.compute.console_proxy <-- person

An agent accepts no connections, so it opens the websocket itself, when a job says so. The job ends when the connection
stands; the session then runs in two threads of its own until one of its sides ends. It ends with the agent: the state
of a terminal cannot be continued by another process.

Nothing is kept that a side does not take: while the proxy takes nothing, the session reads nothing from the guest.
"""

import logging
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from moorage.agent.jobs.keep_alive import KeepAlive
from moorage.agent.virt.driver import GuestConsole, VirtDriver
from moorage.core.clock import Clock
from moorage.core.errors import Gone, MoorageError, OverQuota, Unavailable
from moorage.jobs.contract import ConsoleJob, EmptyResult

log = logging.getLogger(__name__)

#: Maximum number of consoles of a host at the same time; each has two threads and up to 100 KiB of memory.
MAX_SESSIONS = 64
#: Seconds to connect to the proxy.
CONNECT_S = 5.0
#: The proxy counts as gone if it does not answer a ping, sent this often, within this time.
PING_S, PING_TIMEOUT_S = 5.0, 10.0
#: Maximum size of a message from the proxy, and number of messages that wait for the guest.
MAX_MESSAGE_BYTES, MAX_MESSAGES = 1 << 16, 4

#: Close codes of a console that ended by itself, and of one that could not be opened (private use, RFC 6455).
ENDED, FAILED = 1000, 4000
#: RFC 6455 leaves this many bytes for the reason of a close.
MAX_REASON_BYTES = 123


class ConsoleJobs:
    """`ca_file`: additional authorities for proxies with TLS."""

    def __init__(self, driver: VirtDriver, clock: Clock, *, ca_file: Path | None = None) -> None:
        self._driver = driver
        self._clock = clock
        self._ca_file = ca_file
        self._lock = threading.Lock()
        #: {server: its session}
        self._sessions: dict[str, ConsoleSession] = {}

    def run_job(self, job: ConsoleJob, _keep_alive: KeepAlive) -> EmptyResult:
        """Raises `MoorageError`, whose message goes into the report. The person sees it, too, if the proxy answers."""
        if self._clock.now() > datetime.fromisoformat(job.expires_at):
            raise Gone(f"this request expired at {job.expires_at}; open it again", code="agent.expired_job")
        with ExitStack() as stack:
            connection = self._connect(job, stack)
            try:
                console = self._open(job.server_id)
            except MoorageError as error:
                connection.close(FAILED, close_reason(error.message))
                raise
            session = ConsoleSession(connection, console, stack.pop_all())
        with self._lock:
            self._sessions[job.server_id] = session
        session.start(lambda: self._forget(job.server_id, session))
        log.info("a console was opened", extra={"server": job.server_id, "session": job.session_id})
        return EmptyResult()

    def _open(self, server_id: str) -> GuestConsole:
        """Ends the console of the server that is open now."""
        with self._lock:
            before = self._sessions.pop(server_id, None)
            if len(self._sessions) >= MAX_SESSIONS:
                raise OverQuota(f"this host has {MAX_SESSIONS} consoles already, the maximum; close another one")
        if before is not None:
            before.end("another console of this server was opened")
        return self._driver.open_console(server_id)

    def close(self) -> None:
        """Ends all sessions; call it when the agent stops."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.end("the agent of this host stops; open the console again")

    def _forget(self, server_id: str, session: "ConsoleSession") -> None:
        with self._lock:
            if self._sessions.get(server_id) is session:
                del self._sessions[server_id]

    def _connect(self, job: ConsoleJob, stack: ExitStack) -> ClientConnection:
        context = ssl.create_default_context(cafile=self._ca_file) if job.url.startswith("wss:") else None
        if context is not None and self._ca_file is not None:
            context.load_default_certs()
        try:
            return stack.enter_context(
                connect(
                    f"{job.url}?session={job.session_id}",
                    additional_headers={"Authorization": f"Bearer {job.secret}"},
                    ssl=context,
                    compression=None,
                    proxy=None,
                    open_timeout=CONNECT_S,
                    close_timeout=CONNECT_S,
                    ping_interval=PING_S,
                    ping_timeout=PING_TIMEOUT_S,
                    max_size=MAX_MESSAGE_BYTES,
                    max_queue=MAX_MESSAGES,
                    logger=_library_log(),
                )
            )
        except (OSError, WebSocketException, ValueError) as error:
            raise Unavailable(
                f"the console proxy at {job.url} cannot be reached from this host: {error}; check [compute] "
                "console_host_url of the compute service, and the firewall",
                code="agent.console_proxy",
            ) from error


class ConsoleSession:
    """One console, between a guest and the proxy. `start` it once."""

    def __init__(self, connection: ClientConnection, console: GuestConsole, stack: ExitStack) -> None:
        """`stack`: what to close at the end."""
        self._connection = connection
        self._console = console
        self._stack = stack
        self._reason = "the console ended: the server was stopped, restarted, moved or deleted"

    def start(self, ended: Callable[[], object]) -> None:
        """`ended` is called when the session is over."""
        threads = (("output", lambda: self._send_output(ended)), ("input", self._type_input))
        for what, run in threads:
            threading.Thread(target=run, name=f"console {what}", daemon=True).start()

    def end(self, reason: str) -> None:
        self._reason = reason
        self._console.close()

    def _send_output(self, ended: Callable[[], object]) -> None:
        try:
            while output := self._console.read():
                self._connection.send(output)
            self._connection.close(ENDED, close_reason(self._reason))
        except ConnectionClosed:
            log.debug("the other side of a console has gone")
        finally:
            self._console.close()
            self._stack.close()
            ended()

    def _type_input(self) -> None:
        try:
            for message in self._connection:
                self._console.write(message.encode() if isinstance(message, str) else message)
        except ConnectionClosed:
            log.debug("the proxy of a console has gone")
        finally:
            self._console.close()  # ends the other thread


def _library_log() -> logging.Logger:
    """The library logs each request with its secret. Our own messages have what else it says."""
    logger = logging.getLogger(f"{__name__}.websocket")
    logger.setLevel(logging.CRITICAL)
    return logger


def close_reason(text: str) -> str:
    """`text`, shortened to what a close frame can carry."""
    return text.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
