"""Signs of life of hosts, written together: a thousand hosts that beat each ten seconds cost one statement a few times.

A host whose facts are as they were is only noted in memory; the first sign after `TOGETHER` writes all that were noted
since, with the moment of the oldest. So the database lags by `TOGETHER`, or by the pause until anybody beats again; a
process that is killed loses as much, and a host counts as down after a multiple of both. Where hosts are few, each is
written at once: nobody else's sign would come soon enough.
"""

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.compute.model.servers import HostReport
from moorage.compute.store import host_store
from moorage.core.clock import Clock
from moorage.db.transactions import in_transaction

TOGETHER = timedelta(seconds=3)

#: So many hosts are few.
FEW = 30

#: So often a host's facts are written although they are as this process knows them: another one may have been told
#: something else meanwhile.
FACTS_EACH = timedelta(minutes=10)


class Heartbeats:
    """Of one process; thread-safe."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        #: {host: its facts and when they were written}
        self._known: dict[str, tuple[HostReport, datetime]] = {}
        #: {host: when it beat}, not written yet
        self._noted: dict[str, datetime] = {}
        self._written_at = clock.now()

    def remember(self, report: HostReport) -> None:
        """The facts were written now, and its heartbeat with them."""
        with self._lock:
            self._known[report.name] = (report, self._clock.now())

    def knows(self, report: HostReport) -> bool:
        """Whether nothing but the heartbeat need be written."""
        known = self._known.get(report.name)
        return known is not None and known[0] == report and self._clock.now() - known[1] < FACTS_EACH

    def heard(self, host: str) -> bool:
        """Note that it lives. False: it is not known here, nothing was noted."""
        now = self._clock.now()
        with self._lock:
            if host not in self._known:
                return False
            self._noted[host] = now
            if len(self._known) > FEW and now - self._written_at < TOGETHER:
                return True
            noted, self._noted = self._noted, {}
            before, self._written_at = self._written_at, now
        try:
            self._write(noted)
        except BaseException:
            with self._lock:
                self._noted, self._written_at = noted | self._noted, before
            raise
        return host in self._known

    def _write(self, noted: Mapping[str, datetime]) -> None:
        def work(connection: Connection) -> int:
            return host_store.beat(connection, sorted(noted), min(noted.values()))

        if in_transaction(self._engine, work) < len(noted):
            # One of them was forgotten (its service deleted): whichever it is, its agent registers it again.
            with self._lock:
                for host in noted:
                    self._known.pop(host, None)
