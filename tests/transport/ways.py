"""The channels for hints: within a process, or between two processes over a connection that tests can cut.

Each test has its own channel (an exchange of RabbitMQ), so that all tests may use one database and one virtual host.
"""

import contextlib
import secrets
import time

import pika

from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import open_hints
from tests.transport.proxy import Line

#: Time limit for events that should happen at once, generous for a loaded machine.
PATIENCE_S = 20


class Near:
    """Everything in one process, without a connection to cut."""

    def __init__(self):
        self.ours = self.theirs = Wakeups()
        self.hints = open_hints(None, self.ours)

    def wait_until_listening(self):
        return

    def cut(self):
        return

    def mend(self):
        return

    def close(self):
        self.hints.close()


class Far:
    """Two sides that are connected as two processes: `ours` sends through `hints`, `theirs` has its own connection."""

    def __init__(self, url):
        channel = f"moorage_test_{secrets.token_hex(4)}"
        self._url, self._channel = url, channel
        self.lines = [Line(url), Line(url)]
        self.ours, self.theirs = Wakeups(), Wakeups()
        self.hints = open_hints(self.lines[0].url, self.ours, channel=channel)
        self.listener = open_hints(self.lines[1].url, self.theirs, channel=channel)

    def wait_until_listening(self):
        assert self.listener.listening.wait(PATIENCE_S)

    def cut(self):
        """Cuts both connections; returns when the listener has noticed."""
        for line in self.lines:
            line.cut()
        deadline = time.monotonic() + PATIENCE_S
        while self.listener.listening.is_set():
            assert time.monotonic() < deadline
            self.listener._stopping.wait(0.01)

    def mend(self):
        for line in self.lines:
            line.mend()

    def close(self):
        self.hints.close()
        self.listener.close()
        for line in self.lines:
            line.close()
        if self._url.startswith("amqp"):
            with contextlib.closing(pika.BlockingConnection(pika.URLParameters(self._url))) as connection:
                connection.channel().exchange_delete(self._channel)
