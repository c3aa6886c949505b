"""Hints: they wake the workers of a queue, in this process and in others, when it has a new job.

A hint only shortens a wait. The jobs table is the truth and is polled anyway, so a lost hint costs at most one
poll period, and nothing here raises or blocks because a database or a broker is away.

    hints = open_hints("amqp://...", wakeups)      # or postgresql://..., or None: this process only
    hints.send("compute-1")                        # after the commit of the job
    hints.close()

A URL may name several hosts, as that of a database: ``amqp://USER:PASSWORD@/VHOST?host=mq1:5672&host=mq2``. They are
tried in turn; of PostgreSQL's, the one that accepts writes is used.

Not here: the jobs (`moorage.jobs.store`) and the waiters (`moorage.jobs.background_tasks.Wakeups`).
"""

import contextlib
import importlib
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from moorage.core.backoff import Backoff
from moorage.core.errors import StartError, Unavailable
from moorage.jobs.background_tasks import Wakeups

if TYPE_CHECKING:
    from moorage.db.database_hosts import Host

log = logging.getLogger(__name__)

#: The channel of PostgreSQL and the exchange of RabbitMQ.
CHANNEL = "moorage_jobs"

#: Pauses between attempts to connect.
BACKOFF = Backoff(first_s=0.2, longest_s=10.0)

#: An attempt to connect that takes longer counts as failed.
CONNECT_TIMEOUT_S = 5

#: A thread that listens or waits checks this often whether it must stop.
ROUND_S = 0.5


class Hints(Protocol):
    def send(self, queue: str) -> None:
        """Wake the workers of `queue`. Returns at once; never raises."""
        ...

    def close(self) -> None: ...


#: Called with ``listener`` or ``sender`` each time a connection breaks or cannot be made.
Interrupted = Callable[[str], object]


def open_hints(
    url: str | None, wakeups: Wakeups, *, channel: str = CHANNEL, interrupted: Interrupted = lambda _role: None
) -> Hints:
    """Open the kind of hints that `url` names; None: within this process only.

    `channel` separates installations that share a database or a broker. Raises `StartError` for any other scheme, or
    hosts that cannot be read.
    """
    if url is None:
        return InProcessHints(wakeups)
    _hosts_apart(url)  # refuses a URL that no attempt could use
    scheme = urlsplit(url).scheme.partition("+")[0]
    if scheme in ("postgresql", "postgres"):
        return PostgresHints(url, wakeups, channel=channel, interrupted=interrupted)
    if scheme in ("amqp", "amqps"):
        return RabbitHints(url, wakeups, channel=channel, interrupted=interrupted)
    raise StartError(f"hints need a URL postgresql:// or amqp://, or none for one process; {scheme!r} is neither")


def try_link(url: str) -> None:
    """Connect once, as hints do, and send a hint for a queue without workers.

    Raises `Unavailable` with the reason, `StartError` for a URL or a missing library.
    """
    scheme = urlsplit(url).scheme.partition("+")[0]
    connect: Callable[[], _Link]
    if scheme in ("postgresql", "postgres"):
        _need("psycopg", "postgres")
        connect = partial(_PostgresLink, url, CHANNEL)
    elif scheme in ("amqp", "amqps"):
        _need("pika", "rabbit")
        connect = partial(_RabbitLink, url, CHANNEL)
    else:
        raise StartError(f"hints need a URL postgresql:// or amqp://; {scheme!r} is neither")
    try:
        with contextlib.closing(connect()) as link:
            link.send("moorage-doctor")
    except Exception as error:  # the two drivers' errors have no common base; raised again as ours
        trouble = " ".join(str(error).split()) or type(error).__name__
        raise Unavailable(f"the message bus does not answer: {trouble}") from error


class InProcessHints:
    """Hints within one process, as the all-in-one plane uses them."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups

    def send(self, queue: str) -> None:
        self._wakeups.wake(queue)

    def close(self) -> None:
        return


class _Link(Protocol):
    """One connection to the database or broker, used by one thread. Every method may raise the driver's errors."""

    def listen(self, queues: Iterable[str]) -> None:
        """From now on `hear` also returns hints for these queues. Only called on a listener's link."""
        ...

    def hear(self, seconds: float) -> Iterable[str]:
        """Queues that received a hint. Waits `seconds` at most, and keeps the connection alive."""
        ...

    def send(self, queue: str) -> None: ...

    def close(self) -> None: ...


class _RemoteHints:
    """Two threads with a link each: one listens, one sends. Each reconnects by itself.

    Waiters of this process are woken directly. When the listener has (re)connected it wakes all waiters once, because
    hints that were sent while it was away are lost. The sender keeps the hints that it could not send, one per queue,
    and connects only when it has one to send; so a process that only listens has one connection.
    """

    def __init__(self, name: str, wakeups: Wakeups, connect: Callable[[], _Link], interrupted: Interrupted) -> None:
        #: Set while the listener is connected.
        self.listening = threading.Event()
        self._name = name
        self._wakeups = wakeups
        self._connect = connect
        self._interrupted = interrupted
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._pending: dict[str, None] = {}  # queues whose hints are not sent yet, in order
        self._threads = [
            threading.Thread(target=self._listen, name=f"hints-{name}-listen", daemon=True),
            threading.Thread(target=self._publish, name=f"hints-{name}-send", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, queue: str) -> None:
        self._wakeups.wake(queue)
        with self._changed:
            self._pending[queue] = None
            self._changed.notify()

    def close(self) -> None:
        """Hints that are not sent yet are dropped."""
        self._stopping.set()
        with self._changed:
            self._changed.notify()
        for thread in self._threads:
            thread.join(CONNECT_TIMEOUT_S + 2 * ROUND_S)

    def _listen(self) -> None:
        def hear_until_lost(link: _Link) -> None:
            known: frozenset[str] = frozenset()
            link.listen(known)  # even with no queue yet: only then does `hear` notice a lost link
            try:
                while not self._stopping.is_set():
                    if new := self._wakeups.queues() - known:
                        link.listen(new)
                        known |= new
                        for queue in new:
                            self._wakeups.wake(queue)
                    self.listening.set()
                    for queue in link.hear(ROUND_S):
                        self._wakeups.wake(queue)
            finally:
                self.listening.clear()

        self._keep("listener", hear_until_lost)

    def _publish(self) -> None:
        def send_until_lost(link: _Link) -> None:
            while not self._stopping.is_set():
                while (queue := self._next_pending()) is not None:
                    try:
                        link.send(queue)
                    except Exception:  # raised again; after any failure, the hint was not sent
                        self._put_back(queue)
                        raise
                link.hear(0)
                self._wait_for_pending()

        self._keep("sender", send_until_lost, wanted=self._wait_for_pending)

    def _wait_for_pending(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._stopping.is_set(), ROUND_S)
            return bool(self._pending)

    def _next_pending(self) -> str | None:
        # Removed before it is sent: another hint for this queue during the sending is a new one.
        with self._changed:
            queue = next(iter(self._pending), None)
            if queue is not None:
                del self._pending[queue]
            return queue

    def _put_back(self, queue: str) -> None:
        with self._changed:
            self._pending[queue] = None

    def _keep(self, role: str, use: Callable[[_Link], None], wanted: Callable[[], bool] = lambda: True) -> None:
        """Connect when `wanted` says so and `use` the link; after a failure, again after a growing pause."""
        failures = 0
        while not self._stopping.is_set():
            if not wanted():
                continue
            try:
                with contextlib.closing(self._connect()) as link:
                    failures = 0
                    use(link)
            except Exception as error:  # noqa: BLE001 - the top of a thread; a lost hint is worth a log line, no more
                failures += 1
                pause_s = BACKOFF.pause_s(failures)
                if not self._stopping.is_set():
                    self._interrupted(role)
                    trouble = str(error) or type(error).__name__
                    log.warning(
                        "hints are not available; polling continues",
                        extra={"hints": self._name, "role": role, "trouble": trouble, "pause_s": pause_s},
                    )
                self._stopping.wait(pause_s)


class PostgresHints(_RemoteHints):
    """Hints by NOTIFY and LISTEN. Every process receives every hint, which suits tens of hosts; use RabbitMQ for more.

    Behind PgBouncer this needs session pooling.
    """

    def __init__(
        self, url: str, wakeups: Wakeups, *, channel: str = CHANNEL, interrupted: Interrupted = lambda _role: None
    ) -> None:
        _need("psycopg", "postgres")
        super().__init__("postgresql", wakeups, lambda: _PostgresLink(url, channel), interrupted)


class RabbitHints(_RemoteHints):
    """Hints by a direct exchange. Each process has an exclusive queue, bound to the job queues that it waits for."""

    def __init__(
        self, url: str, wakeups: Wakeups, *, channel: str = CHANNEL, interrupted: Interrupted = lambda _role: None
    ) -> None:
        _need("pika", "rabbit")
        super().__init__("rabbitmq", wakeups, lambda: _RabbitLink(url, channel), interrupted)


def _hosts_apart(url: str) -> "tuple[str, list[Host]]":
    """The URL without the hosts in its query, and these hosts; none if its only host is in front of the path.

    Raises `StartError`.
    """
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    if all(name != "host" for name, _ in options):
        return url, []
    from sqlalchemy import make_url

    from moorage.db.database_hosts import hosts_of

    hosts = hosts_of(make_url(url))
    others = urlencode([(name, value) for name, value in options if name != "host"])
    return parts._replace(query=others).geturl(), hosts


class _PostgresLink:
    def __init__(self, url: str, channel: str) -> None:
        import psycopg

        url, hosts = _hosts_apart(url)
        several: dict[str, Any] = {}
        if hosts:
            several["host"] = ",".join(name or "" for name, _ in hosts)
            several["port"] = ",".join("" if port is None else str(port) for _, port in hosts)
            several["target_session_attrs"] = "read-write"
        scheme, _, rest = url.partition("://")
        self._channel = channel
        self._listens = False
        self._connection = psycopg.connect(
            f"{scheme.partition('+')[0]}://{rest}",
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="moorage hints",
            # Notice a server that vanished without closing the connection after about half a minute.
            keepalives_idle=15,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
            **several,
        )

    def listen(self, queues: Iterable[str]) -> None:
        """One channel carries the hints of all queues. Run no query on this connection after LISTEN: psycopg hung."""
        from psycopg import sql

        if not self._listens:
            self._connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            self._listens = True

    def hear(self, seconds: float) -> Iterable[str]:
        if not self._listens:
            return []
        return [notify.payload for notify in self._connection.notifies(timeout=seconds, stop_after=1)]

    def send(self, queue: str) -> None:
        self._connection.execute("SELECT pg_notify(%s, %s)", (self._channel, queue))

    def close(self) -> None:
        self._connection.close()


class _RabbitLink:
    def __init__(self, url: str, channel: str) -> None:
        import pika

        url, hosts = _hosts_apart(url)
        ways = []
        for name, port in hosts or [(None, None)]:
            parameters = pika.URLParameters(url)
            if name is not None:
                parameters.host = name
            if port is not None:
                parameters.port = port
            parameters.heartbeat = 15
            parameters.connection_attempts = 1
            # `blocked_connection_timeout`: a broker that is out of memory or disk blocks publishers instead of refusing
            # them.
            parameters.socket_timeout = parameters.stack_timeout = CONNECT_TIMEOUT_S
            parameters.blocked_connection_timeout = CONNECT_TIMEOUT_S
            ways.append(parameters)
        self._exchange = channel
        self._heard: list[str] = []
        self._own_queue = ""
        self._connection: Any = pika.BlockingConnection(ways)
        self._channel: Any = self._connection.channel()
        self._channel.exchange_declare(self._exchange, exchange_type="direct")

    def listen(self, queues: Iterable[str]) -> None:
        if not self._own_queue:
            self._own_queue = self._channel.queue_declare("", exclusive=True).method.queue
            self._channel.add_on_cancel_callback(self._on_cancel)
            self._channel.basic_consume(self._own_queue, self._on_message, auto_ack=True)
        for queue in sorted(queues):
            self._channel.queue_bind(self._own_queue, self._exchange, routing_key=queue)

    def hear(self, seconds: float) -> Iterable[str]:
        self._connection.process_data_events(time_limit=seconds)
        heard, self._heard = self._heard, []
        return heard

    def send(self, queue: str) -> None:
        self._channel.basic_publish(self._exchange, routing_key=queue, body=b"")

    def close(self) -> None:
        if self._connection.is_open:
            self._connection.close()

    def _on_message(self, _channel: object, method: Any, _properties: object, _body: bytes) -> None:
        self._heard.append(method.routing_key)

    def _on_cancel(self, _frame: object) -> None:
        raise ConnectionError("the broker deleted our queue")


def _need(module: str, extra: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise StartError(f"these hints need {module}: pip install 'moorage[{extra}]'") from error
