"""The reservation service: its parts put together. The use cases are in `lease_service` and `host_service`."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from sqlalchemy import Engine

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import StartError, Unavailable
from moorage.core.ids import Ids
from moorage.images.client import ImageLookup
from moorage.jobs.background_tasks import Wakeups
from moorage.network.client import NetworkClient
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.booking.address_booking import AddressBooking
from moorage.reservation.booking.admission import Admission
from moorage.reservation.booking.capacity_requests import CapacityRequests
from moorage.reservation.booking.enforcement import Enforcement, Rules
from moorage.reservation.booking.external_enforcement import ExternalService
from moorage.reservation.booking.external_lookups import AcceleratorLookup, ExternalLookups
from moorage.reservation.events.batch_executor import BatchExecutor
from moorage.reservation.events.event_executor import EventExecutor
from moorage.reservation.events.event_runner import TOPIC, ReservationRunner
from moorage.reservation.hosts.floating_ip_service import FloatingIps
from moorage.reservation.hosts.healing import Healing, HostMonitor
from moorage.reservation.hosts.host_service import HostService, ReservedHosts
from moorage.reservation.leases.availability import AvailabilityService
from moorage.reservation.leases.calendar_service import CalendarService
from moorage.reservation.leases.lease_service import LeaseService
from moorage.reservation.leases.list_service import ListService
from moorage.reservation.leases.maintenance import Maintenance
from moorage.reservation.model.before_end_actions import Allowed
from moorage.reservation.steps.floating_ip_steps import FloatingIpSteps
from moorage.reservation.steps.fpga_steps import AcceleratorPrograms, FpgaSteps
from moorage.reservation.steps.host_aggregate_steps import HostAggregateSteps
from moorage.reservation.steps.instance_steps import InstanceSteps, ServerGroupSteps
from moorage.reservation.steps.notification_steps import MailServer, NotificationSteps, SnapshotSteps
from moorage.reservation.steps.plan_builder import PlanBuilder
from moorage.reservation.steps.step_registry import StepRegistry
from moorage.wire.microversion import Version, parse_version

log = logging.getLogger(__name__)

#: The oldest Placement that finds the inventories of nested providers; nothing newer is asked of it.
PLACEMENT_VERSION = Version(1, 29)


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    freepool: str = "freepool"  #: the aggregate that registered hosts join
    minutes_before_end: int = 60  #: when before_end_lease is due, where a lease gives no time
    cleaning_time_s: int = 0  #: a host stays taken for so long after each lease
    start_deadline_s: int = 3600  #: a start that fails is repeated for so long, and never beyond the lease's end
    healing_interval_s: int = 3600  #: leases that start within it are moved off a host that failed
    hold_s: int = 600  #: a hold lasts so long
    max_holds: int = 10  #: of one project, at one time
    compat_server_groups: bool = (
        False  #: reservations with affinity or anti-affinity get a server group, see `server_group_steps`
    )
    before_end_of_hosts: str = ""  #: what before_end ``default`` means where whole hosts are lent: this or ``snapshot``
    allowed: Allowed = field(default_factory=Allowed)  #: what leases may ask for before their end
    mail: MailServer | None = None
    requests_at_once: int = 1  #: of leases that start together; one after the other keeps the same order every time


class AcceleratorServiceApi(AcceleratorLookup, AcceleratorPrograms, Protocol):
    """What reservations need of the accelerator service."""


class ReservationService:
    """`lease_service`, `list_service`, `availability` and `hosts` are what the API offers; `event_executor` is what the runner works with."""

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
        rules: Rules | None = None,
        external: ExternalService | None = None,
        worker: str | None = None,
        accelerators: AcceleratorServiceApi | None = None,
        images: ImageLookup | None = None,
        network: NetworkClient | None = None,
    ) -> None:
        """`worker` names this process in claims; it must differ from every other's. `accelerators`: None in a cloud
        without any, where nobody can name a device profile or a bitstream. `images`: see `SnapshotSteps`.
        `network`: None where no network service is known, and floating IPs cannot be reserved.
        """
        settings = settings or ReservationSettings()
        self._placement = placement
        self._engine = engine
        self._clock = clock
        self._admission = Admission(engine, clock)
        self._addresses = AddressBooking(engine, clock, ids)
        self._compute = compute
        self._network = network
        self.enforcement = Enforcement(engine, rules or Rules(), external)
        self._images = images
        self.executor, self._batch_executor = self._executors(settings, ids, worker, accelerators)

        lookups = ExternalLookups(placement, compute, accelerators, has_network=network is not None)
        capacity_requests = CapacityRequests(engine, lookups)

        def wake_runner() -> None:
            wakeups.wake(TOPIC)

        self.leases = self._leases(settings, ids, lookups, capacity_requests, wake_runner)
        self.lists = ListService(engine)
        self._healing = Healing(
            engine,
            clock,
            self._admission,
            self.executor,
            self.leases,
            capacity_requests,
            ahead_s=settings.healing_interval_s,
            on_change=wake_runner,
        )
        self.availability = self._availability(settings, ids)
        self.calendar = CalendarService(engine, clock, self._admission, capacity_requests)
        self.maintenance = Maintenance(engine, clock, self.leases)
        self.floating_ips = FloatingIps(engine, clock, ids, network)
        self.hosts = HostService(engine, clock, ids, ReservedHosts(placement, compute, settings.freepool))

    def _leases(
        self,
        settings: ReservationSettings,
        ids: Ids,
        lookups: ExternalLookups,
        capacity_requests: CapacityRequests,
        on_change: Callable[[], None],
    ) -> LeaseService:
        return LeaseService(
            self._engine,
            self._clock,
            ids,
            self._admission,
            self._addresses,
            self.executor,
            self.enforcement,
            lookups,
            capacity_requests,
            allowed=settings.allowed,
            minutes_before_end=settings.minutes_before_end,
            cleaning_time_s=settings.cleaning_time_s,
            on_change=on_change,
        )

    def _availability(self, settings: ReservationSettings, ids: Ids) -> AvailabilityService:
        return AvailabilityService(
            self._engine,
            self._clock,
            ids,
            self._admission,
            self._addresses,
            self.leases,
            self.enforcement,
            cleaning_time_s=settings.cleaning_time_s,
            hold_s=settings.hold_s,
            max_holds=settings.max_holds,
        )

    def _executors(
        self, settings: ReservationSettings, ids: Ids, worker: str | None, accelerators: AcceleratorServiceApi | None
    ) -> tuple[EventExecutor, BatchExecutor]:
        instances = InstanceSteps(self._placement, self._compute)
        steps = (
            instances,
            ServerGroupSteps(self._engine, self._compute),
            HostAggregateSteps(self._compute, settings.freepool),
            FpgaSteps(self._placement, accelerators),
            self.enforcement,
            SnapshotSteps(self._engine, self._compute, self._images),
            NotificationSteps(self._engine, settings.allowed, settings.mail),
            FloatingIpSteps(self._engine, self._network),
        )
        step_registry = StepRegistry([each.actions for each in steps], instances.joint_actions)
        executor = EventExecutor(
            self._engine,
            self._clock,
            ids,
            step_registry,
            PlanBuilder(self.enforcement.notifies_ends, settings.compat_server_groups, settings.before_end_of_hosts),
            instances.generation,
            worker=worker or ids.uuid(),
            start_deadline_s=settings.start_deadline_s,
        )
        return executor, BatchExecutor(
            self._engine, self._clock, step_registry, executor, requests_at_once=settings.requests_at_once
        )

    def now(self) -> datetime:
        """For what requests say of time."""
        return self._clock.now()

    def check_placement(self) -> None:
        """Raises `StartError` when Placement is too old for nested providers in candidates (R36).

        One that does not answer yet may do so later: nothing is said of it then.
        """
        try:
            newest = self._placement.newest_version()
        except Unavailable as error:
            log.warning("Placement was not asked for its version", extra={"reason": error.message})
            return
        if parse_version(newest) < PLACEMENT_VERSION:
            raise StartError(
                f"Placement speaks {newest} at most, and reservations need {PLACEMENT_VERSION}: upgrade Placement first"
            )

    def runner(self, *, poll_s: float | None = None) -> ReservationRunner:
        """The task that belongs to this service, see `ReservationRunner` for `poll_s`."""
        return ReservationRunner(self._engine, self._clock, self.executor, self._batch_executor, poll_s=poll_s)

    def host_monitor(self, *, period_s: float) -> HostMonitor:
        """The task that notices when hosts fail and when they are back."""
        return HostMonitor(self._engine, self._clock, self._compute, self._admission, self._healing, period_s=period_s)
