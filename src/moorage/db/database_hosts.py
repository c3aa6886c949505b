"""The hosts of a database URL that are tried in turn, and which of them can be written to.

    postgresql://USER@/NAME?host=db1:5432&host=db2:5432     as SQLAlchemy writes it
    mariadb://USER@/NAME?host=n1:3306&host=n2&host=[2001:db8::3]:3307

A new connection goes to the host that took the last one. If that host refuses, does not answer, is a standby or
read-only, or is a Galera node that is not synchronised, the others follow, and the host is tried last from then on. A
host that did not answer at all is left out for a while, so that others need not wait for it.

Not here: replication and election, which are the databases' own; the repetition of a request that lost its connection
(`moorage.db.session`).
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import URL

from moorage.core.errors import StartError

log = logging.getLogger(__name__)

#: (host, port); None: the default of the driver.
Host = tuple[str | None, int | None]

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")

#: MariaDB's error numbers: "not yet prepared node for application use", "running with --read-only".
NOT_SYNCHRONISED, READ_ONLY = 1047, 1290

#: That, InnoDB's read-only mode, and PostgreSQL's read_only_sql_transaction.
_READ_ONLY = {READ_ONLY, 1836, "25006"}

#: An attempt to connect that failed after this long got no answer; others were refused.
HUNG_S = 0.5
#: A host that gave no answer is left out for this long; then one thread tries it again.
LEFT_OUT_S = 5.0

#: Galera's number of the state in which a node has everything and serves clients.
_SYNCED = "4"


def hosts_of(url: URL) -> list[Host]:
    """(host, port) of each ``host`` in the query, in its order; empty if the URL has its host in front of the path.

    Raises `StartError` if they cannot be read, or if there is a host in both places.
    """
    given = url.query.get("host", ())
    texts = [given] if isinstance(given, str) else list(given)
    if texts and url.host:
        raise StartError(
            f"the database URL has the host {url.host} and host={texts[0]}: write all hosts in the query, as in "
            "postgresql://USER@/NAME?host=db1:5432&host=db2:5432"
        )
    return [_host(text) for text in texts]


def _host(text: str) -> Host:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < int(found["port"] or 1) < 1 << 16:
        raise StartError(f"the database URL has host={text}; write host=NAME or host=NAME:PORT")
    return found["v6"] or found["name"], int(found["port"]) if found["port"] else None


class HostOrder:
    """The order in which new connections try the hosts. Thread-safe."""

    def __init__(self, hosts: Sequence[Host], now: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._hosts = list(hosts)
        self._now = now
        #: {host that gave no answer: moment from which it is tried again}
        self._left_out_until: dict[Host, float] = {}

    def hosts(self) -> list[Host]:
        with self._lock:
            return list(self._hosts)

    def put_last(self, host: Host, reason: object) -> None:
        """Records that `host` cannot be used now."""
        with self._lock:
            if self._hosts[-1] == host:
                return
            self._hosts.remove(host)
            self._hosts.append(host)
            first = self._hosts[0]
        log.warning(
            "a database host cannot be used",
            extra={"database_host": host_text(host), "reason": str(reason), "next": host_text(first)},
        )

    def leave_out(self, host: Host) -> None:
        """Records that `host` gave no answer."""
        self.put_last(host, "no answer")
        with self._lock:
            self._left_out_until[host] = self._now() + LEFT_OUT_S

    def connect(self, connect_to: Callable[[Host | None], Any], errors: type[Exception]) -> tuple[Any, Host | None]:
        """The first connection that succeeds, and its host. Raises the last error if none does.

        Without hosts, `connect_to` gets None once.
        """
        hosts = self._hosts_to_try()
        if not hosts:
            return connect_to(None), None
        for number, host in enumerate(hosts, start=1):
            began = self._now()
            try:
                connection = connect_to(host)
            except errors as error:
                if self._now() - began >= HUNG_S:
                    self.leave_out(host)
                if number == len(hosts):
                    raise
                self.put_last(host, error)
            else:
                with self._lock:
                    self._left_out_until.pop(host, None)
                return connection, host
        raise AssertionError("unreachable")

    def _hosts_to_try(self) -> list[Host]:
        """In order, without those that are left out, unless all are. Only one caller gets a host whose time is over."""
        with self._lock:
            now = self._now()
            found = [host for host in self._hosts if self._left_out_until.get(host, now) <= now] or list(self._hosts)
            self._left_out_until |= {host: now + LEFT_OUT_S for host in found if host in self._left_out_until}
            return found


def host_text(host: Host) -> str:
    """As it is written in a URL."""
    name, port = host
    shown = f"[{name}]" if name and ":" in name else f"{name}"
    return shown if port is None else f"{shown}:{port}"


def refuses_writes(error: BaseException | None) -> bool:
    """Whether the driver's error says that this server is read-only, so that the transaction was not committed."""
    return bool(_codes(error) & _READ_ONLY)


def is_unwritable(error: BaseException | None) -> bool:
    """Whether the driver's error says that this server takes no writes now, while another one may."""
    return bool(_codes(error) & {*_READ_ONLY, NOT_SYNCHRONISED})


def _codes(error: BaseException | None) -> set[object]:
    return {getattr(error, "sqlstate", None), *getattr(error, "args", ())[:1]}


def require_writable_mariadb(connection: Any, refusal: Callable[[int, str], Exception]) -> None:
    """Raises `refusal`, with the error number that a statement would meet and the reason, if the server of this PyMySQL
    connection is read-only or a Galera node that is not synchronised.

    On a Galera node, reads of this connection wait for the commits of other nodes from then on, so that each read sees
    every commit that was acknowledged before it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES WHERE variable_name IN ('read_only', 'wsrep_on')")
        settings = dict(cursor.fetchall())
        if settings.get("wsrep_on") == "ON":
            cursor.execute("SHOW STATUS WHERE variable_name IN ('wsrep_ready', 'wsrep_local_state')")
            state = dict(cursor.fetchall())
            if (state.get("wsrep_ready"), state.get("wsrep_local_state")) != ("ON", _SYNCED):
                number = state.get("wsrep_local_state")
                raise refusal(NOT_SYNCHRONISED, f"the node is not synchronised (wsrep_local_state {number})")
            cursor.execute("SET SESSION wsrep_sync_wait = 1")
        if settings.get("read_only") not in ("OFF", "NO_LOCK", None):
            raise refusal(READ_ONLY, "the server is read-only")
