"""The task that looks which hosts live, as compute says, and has the leases of those that failed healed.

Every process may run one: what one has found and mended, the others find mended.
"""

import logging
from datetime import datetime, timedelta

from sqlalchemy import Engine

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.db.transactions import in_transaction, read
from moorage.reservation.booking.admission import Admission
from moorage.reservation.hosts.healing import Healing
from moorage.reservation.store import host_store

log = logging.getLogger(__name__)


class HostWatch:
    name = "reservation.watch"

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        compute: ComputeClient,
        admission: Admission,
        healing: Healing,
        *,
        period_s: float,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._compute = compute
        self._admission = admission
        self._healing = healing
        self._period = timedelta(seconds=period_s)

    def run_once(self) -> datetime | None:
        self._look()
        return self._clock.now() + self._period

    def _look(self) -> None:
        with read(self._engine) as connection:
            hosts = [host for host in host_store.all_hosts(connection) if host.ready]
        if not hosts:
            return
        try:
            up = self._compute.hosts_up()
        except MoorageError as error:
            log.warning("compute does not say which hosts live", extra={"reason": error.message})
            return
        failed = {host.id: host.hypervisor_hostname for host in hosts if not up.get(host.service_name, False)}
        for host in hosts:
            if host.reservable == (host.id in failed):
                self._mark(host.id, host.hypervisor_hostname, reservable=host.id not in failed)
        self._healing.heal(failed)

    def _mark(self, host_id: int, name: str, *, reservable: bool) -> None:
        now = self._clock.now()
        in_transaction(self._engine, lambda connection: host_store.set_reservable(connection, host_id, reservable, now))
        self._admission.forget()
        log.warning("a host %s", "is back" if reservable else "has failed", extra={"host": name})
