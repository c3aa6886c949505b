"""Builds the reservation service from its parts. The use cases are in `leases` and `hosts`."""

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
from moorage.wire.microversion import Version, parse_version

log = logging.getLogger(__name__)

#: The oldest microversion whose candidates include inventories of nested providers. No newer one is used.
PLACEMENT_VERSION = Version(1, 29)


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    freepool: str = "freepool"  #: the aggregate that registered hosts join
    minutes_before_end: int = 60  #: default time of the before_end event, before the end of the lease
    cleaning_time_s: int = 0  #: allocations of hosts end this long after their lease
    start_deadline_s: int = 3600  #: a failing start is retried this long, but not beyond the end of the lease
    healing_interval_s: int = 3600  #: leases that start within this time are moved off failed hosts
    hold_s: int = 600  #: time until a hold expires
    max_holds: int = 10  #: per project at any one time
    compat_server_groups: bool = False  #: create a server group for each affinity policy, see `ServerGroupSteps`
    before_end_of_hosts: str = ""  #: meaning of before_end ``default`` for physical:host: empty or ``snapshot``
    allowed: Allowed = field(default_factory=Allowed)  #: before_end actions that leases may request
    mail: MailServer | None = None
    requests_at_once: int = 1  #: parallel requests of a batch of starts; 1 keeps their order


class AcceleratorServiceApi(AcceleratorLookup, AcceleratorPrograms, Protocol):
    """The methods of the accelerator service that reservations use."""


class ReservationService:
    """Builds the parts of the service. The handlers in `api` call its public attributes, and `runner` the executor."""

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
        """`worker`: the name of this process in claims, unique among all processes. `accelerators`: None if the cloud
        has no accelerator service; then no request may name a device profile or a bitstream. `images`: see
        `SnapshotSteps`. `network`: None if no network service is configured; then floating IPs cannot be reserved.
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
        self.executor = self._executor(settings, ids, worker, accelerators)

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

    def _executor(
        self, settings: ReservationSettings, ids: Ids, worker: str | None, accelerators: AcceleratorServiceApi | None
    ) -> EventExecutor:
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
        return EventExecutor(
            self._engine,
            self._clock,
            ids,
            instances,
            {kind: action for each in steps for kind, action in each.actions.items()},
            PlanBuilder(self.enforcement.notifies_ends, settings.compat_server_groups, settings.before_end_of_hosts),
            worker=worker or ids.uuid(),
            start_deadline_s=settings.start_deadline_s,
            requests_at_once=settings.requests_at_once,
        )

    def now(self) -> datetime:
        """The time against which handlers resolve dates in requests."""
        return self._clock.now()

    def check_placement(self) -> None:
        """Raises `StartError` if Placement is too old to return candidates with nested providers (R36).

        Skips the check if Placement does not answer, because it may start later.
        """
        try:
            newest = self._placement.newest_version()
        except Unavailable as error:
            log.warning(
                "skipped the check of Placement's version: Placement does not answer", extra={"reason": error.message}
            )
            return
        if parse_version(newest) < PLACEMENT_VERSION:
            raise StartError(
                f"Placement supports microversions up to {newest}, but reservations need {PLACEMENT_VERSION}; "
                "upgrade Placement"
            )

    def runner(self, *, poll_s: float | None = None) -> ReservationRunner:
        """The background task that runs events. `poll_s`: see `ReservationRunner`."""
        return ReservationRunner(self._engine, self._clock, self.executor, poll_s=poll_s)

    def host_monitor(self, *, period_s: float) -> HostMonitor:
        """The background task that detects failed and recovered hosts."""
        return HostMonitor(self._engine, self._clock, self._compute, self._admission, self._healing, period_s=period_s)
