"""Builds the reservation service from its parts. The use cases are in `leases` and `hosts`."""

import logging
from datetime import datetime

from moorage.core.errors import StartError, Unavailable
from moorage.reservation.booking.address_booking import AddressBooking
from moorage.reservation.booking.admission import Admission
from moorage.reservation.booking.capacity_requests import CapacityRequests
from moorage.reservation.booking.enforcement import Enforcement, Rules
from moorage.reservation.booking.external_enforcement import ExternalService
from moorage.reservation.booking.external_lookups import ExternalLookups
from moorage.reservation.booking.placement_capacity import PlacementCapacity
from moorage.reservation.deps import BookingParts, ReservationDeps, ReservationSettings
from moorage.reservation.events.event_executor import EventExecutor, ExecutorSettings
from moorage.reservation.events.event_runner import ReservationRunner
from moorage.reservation.hosts.floating_ip_service import FloatingIps
from moorage.reservation.hosts.healing import Healing
from moorage.reservation.hosts.host_monitor import HostMonitor
from moorage.reservation.hosts.host_service import HostService, ReservedHosts
from moorage.reservation.leases.availability import AvailabilityService, Maintenance
from moorage.reservation.leases.calendar_service import CalendarService, FeedService, Membership, NoMembership
from moorage.reservation.leases.lease_service import LeaseService
from moorage.reservation.leases.list_service import ListService
from moorage.reservation.steps.floating_ip_steps import FloatingIpSteps
from moorage.reservation.steps.fpga_steps import FpgaSteps
from moorage.reservation.steps.host_aggregate_steps import HostAggregateSteps
from moorage.reservation.steps.instance_steps import InstanceSteps, ServerGroupSteps
from moorage.reservation.steps.notification_steps import IncidentNotices, NotificationSteps, SnapshotSteps
from moorage.reservation.steps.plan_builder import PlanBuilder
from moorage.reservation.steps.slot_release import SlotReleaseSteps
from moorage.wire.microversion import Version, parse_version

log = logging.getLogger(__name__)

#: The oldest microversion whose candidates include inventories of nested providers. No newer one is used.
PLACEMENT_VERSION = Version(1, 29)


class ReservationService:
    """Builds the parts of the service. The handlers in `api` call its public attributes, and `runner` the executor.

    `membership`: for calendar feeds; without it, they show nothing.
    `worker`: the name of this process in claims, unique among all processes.
    """

    def __init__(
        self,
        deps: ReservationDeps,
        settings: ReservationSettings,
        *,
        rules: Rules | None = None,
        external: ExternalService | None = None,
        membership: Membership | None = None,
        worker: str | None = None,
    ) -> None:
        self._deps = deps
        engine, clock, ids = deps.engine, deps.clock, deps.ids
        self.enforcement = Enforcement(engine, clock, rules or Rules(), external)
        lookups = ExternalLookups(deps.placement, deps.compute, deps.accelerators, has_network=deps.network is not None)
        placement_capacity = PlacementCapacity(engine, deps.placement)
        self.booking = BookingParts(
            Admission(engine, clock, placement_capacity.refresh),
            AddressBooking(engine, clock, ids),
            self.enforcement,
            lookups,
            CapacityRequests(engine, lookups),
            placement_capacity,
        )
        self.executor = self._executor(settings, worker or ids.uuid())
        self.leases = LeaseService(deps, settings, self.booking, self.executor)
        self.lists = ListService(deps, settings)
        self._healing = Healing(
            deps,
            settings,
            self.booking,
            self.executor,
            self.leases,
            IncidentNotices(engine, settings.allowed, settings.mail),
        )
        self.availability = AvailabilityService(deps, settings, self.booking, self.leases)
        self.calendar = CalendarService(deps, self.booking)
        self.feeds = FeedService(deps, self.calendar, membership or NoMembership())
        self.maintenance = Maintenance(deps, self.leases)
        self.floating_ips = FloatingIps(deps)
        self.hosts = HostService(
            deps, ReservedHosts(deps.placement, deps.compute, settings.freepool), placement_capacity
        )

    def _executor(self, settings: ReservationSettings, worker: str) -> EventExecutor:
        deps = self._deps
        instances = InstanceSteps(deps.placement, deps.compute)
        steps = (
            instances,
            SlotReleaseSteps(deps.engine, deps.clock, deps.ids, deps.placement),
            ServerGroupSteps(deps.engine, deps.compute),
            HostAggregateSteps(deps.compute, settings.freepool),
            FpgaSteps(deps.placement, deps.accelerators),
            self.enforcement,
            SnapshotSteps(deps.engine, deps.compute, deps.images),
            NotificationSteps(deps.engine, settings.allowed, settings.mail),
            FloatingIpSteps(deps.engine, deps.network),
        )
        return EventExecutor(
            deps.engine,
            deps.clock,
            deps.ids,
            instances,
            {kind: action for each in steps for kind, action in each.actions.items()},
            PlanBuilder(self.enforcement.notifies_ends, settings.compat_server_groups, settings.before_end_of_hosts),
            ExecutorSettings(worker, settings.start_deadline_s, settings.requests_at_once),
        )

    def now(self) -> datetime:
        """The time against which handlers resolve dates in requests."""
        return self._deps.clock.now()

    def check_placement(self) -> None:
        """Raises `StartError` if Placement is too old to return candidates with nested providers (R36).

        Skips the check if Placement does not answer, because it may start later.
        """
        try:
            newest = self._deps.placement.newest_version()
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
        return ReservationRunner(self._deps.engine, self._deps.clock, self.executor, poll_s=poll_s)

    def host_monitor(self, *, period_s: float) -> HostMonitor:
        """The background task that detects failed and recovered hosts."""
        return HostMonitor(self._deps, self.booking, self._healing, period_s=period_s)
