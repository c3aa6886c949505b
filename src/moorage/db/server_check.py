"""Whether a database server that a statement waits for still lives.

A statement may take long although its server is well, so its duration says nothing. A server that is suspended, cut
off or lost opens no connections; keepalive and ``tcp_user_timeout`` do not tell, because the kernel of a machine whose
server is stopped still acknowledges bytes.

Callers: the connections of `moorage.db.timeouts`.
"""

import select
import threading
import time
from collections.abc import Callable
from typing import Any

from moorage.db.database_hosts import HUNG_S

#: A server is asked when a statement has waited for this long, and then again and again.
ASK_AFTER_S = 1.0


class ServerCheck:
    """Asks one server whether it lives, by opening another connection to it.

    Threads that wait for the server at the same time share a check.
    """

    def __init__(self, connect: Callable[[], Any], errors: type[Exception]) -> None:
        self._connect = connect
        self._errors = errors
        self._lock = threading.Lock()
        self._began = float("-inf")
        self._lives = True

    def lives(self, since: float) -> bool:
        """Whether the server answered, according to a check that began after the monotonic time `since`.

        A refusal is an answer, for instance that there are too many connections.
        """
        with self._lock:
            if self._began < since:
                self._began = time.monotonic()
                try:
                    self._connect().close()
                    self._lives = True
                except self._errors:
                    self._lives = time.monotonic() - self._began < HUNG_S
            return self._lives


class AnswerWait:
    """One wait for an answer on the socket of a connection. `check`: None while the connection is opened."""

    def __init__(self, socket: int, check: ServerCheck | None, for_what: int = select.POLLIN) -> None:
        self._check = check
        self._poll = select.poll()
        self._poll.register(socket, for_what)
        self._began = self._asked_at = time.monotonic()

    def is_hopeless(self) -> bool:
        """Whether the server does not live and has not answered meanwhile. Asks it if it is time to do so."""
        since = self._asked_at
        if self._check is None or time.monotonic() - since < ASK_AFTER_S:
            return False
        self._asked_at = time.monotonic()
        return not self._check.lives(since) and not self._poll.poll(0)

    def wait(self, timeout_s: float) -> bool:
        """Whether there was an answer, or the end of the connection."""
        while not self.is_hopeless():
            now = time.monotonic()
            left_s = self._began + timeout_s - now
            if self._poll.poll(max(0.0, min(left_s, self._asked_at + ASK_AFTER_S - now)) * 1000):
                return True
            if left_s <= 0:
                return False
        return False
