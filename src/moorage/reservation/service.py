"""The reservation service: its parts put together. The use cases are in `leases` and `host`."""

import logging
from dataclasses import dataclass

from sqlalchemy import Engine

from moorage.compute.client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import StartError, Unavailable
from moorage.core.ids import Ids
from moorage.jobs.duties import Wakeups
from moorage.placement.client import PlacementClient
from moorage.reservation.admission import Admission
from moorage.reservation.host import Hosts, ReservedHosts
from moorage.reservation.instance import InstanceSteps
from moorage.reservation.leases import Leases
from moorage.reservation.operations import Operations
from moorage.reservation.runner import TOPIC, ReservationRunner
from moorage.wire.microversion import Version, parse

log = logging.getLogger(__name__)

#: The oldest Placement that finds the inventories of nested providers; nothing newer is asked of it.
PLACEMENT_VERSION = Version(1, 29)


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    freepool: str = "freepool"  #: the aggregate that registered hosts join
    minutes_before_end: int = 60  #: when before_end_lease is due, where a lease gives no time
    cleaning_time_s: int = 0  #: a host stays taken for so long after each lease
    start_deadline_s: int = 3600  #: a start that fails is repeated for so long, and never beyond the lease's end


class ReservationService:
    """`leases` and `hosts` are what the API offers; `operations` is what the runner works with."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        placement: PlacementClient,
        compute: ComputeClient,
        wakeups: Wakeups,
        *,
        settings: ReservationSettings | None = None,
        worker: str | None = None,
    ) -> None:
        """`worker` names this process in claims; it must differ from every other's."""
        settings = settings or ReservationSettings()
        self._placement = placement
        self._engine = engine
        self._clock = clock
        self._admission = Admission(engine, clock)
        self.operations = Operations(
            engine,
            clock,
            ids,
            InstanceSteps(placement, compute),
            worker=worker or ids.uuid(),
            start_deadline_s=settings.start_deadline_s,
        )
        self.leases = Leases(
            engine,
            clock,
            ids,
            self._admission,
            self.operations,
            minutes_before_end=settings.minutes_before_end,
            cleaning_time_s=settings.cleaning_time_s,
            on_change=lambda: wakeups.wake(TOPIC),
        )
        self.hosts = Hosts(
            engine,
            clock,
            ids,
            ReservedHosts(placement, compute, settings.freepool),
            on_change=self._admission.forget,
        )

    def check_placement(self) -> None:
        """Raises `StartError` when Placement is too old for nested providers in candidates (R36).

        One that does not answer yet may do so later: nothing is said of it then.
        """
        try:
            newest = self._placement.newest_version()
        except Unavailable as error:
            log.warning("Placement was not asked for its version", extra={"reason": error.message})
            return
        if parse(newest) < PLACEMENT_VERSION:
            raise StartError(
                f"Placement speaks {newest} at most, and reservations need {PLACEMENT_VERSION}: upgrade Placement first"
            )

    def runner(self, *, poll_s: float | None = None) -> ReservationRunner:
        """The duty that belongs to this service, see `ReservationRunner` for `poll_s`."""
        return ReservationRunner(self._engine, self._clock, self.operations, poll_s=poll_s)
