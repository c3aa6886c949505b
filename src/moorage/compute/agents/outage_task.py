"""The background task that notices when compute's database could not be written.

While the database stands still, or every compute process, no heartbeat is recorded. Each host would count as down
afterwards: leases would be moved off it, and new ones refused. So each process writes the time regularly, and time in
which none of them wrote does not count as silence of hosts (`moorage.compute.model.outages`).
"""

from datetime import datetime, timedelta

from sqlalchemy import Engine

from moorage.compute.model.outages import Outages
from moorage.compute.store import outage_store
from moorage.core.clock import Clock
from moorage.db.session import in_transaction

#: Between two writes.
PERIOD = timedelta(seconds=2)


class OutageTask:
    """Run it once before anything else asks which hosts are up."""

    name = "compute.outages"

    def __init__(self, engine: Engine, clock: Clock, outages: Outages) -> None:
        self._engine = engine
        self._clock = clock
        self._outages = outages

    def run_once(self) -> datetime:
        self._outages.record = in_transaction(
            self._engine, lambda connection: outage_store.record_write(connection, self._clock.now())
        )
        return self._clock.now() + PERIOD
