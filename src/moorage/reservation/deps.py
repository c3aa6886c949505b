"""The dependencies of reservation's use cases: database, clock, ids, other services' clients, `booking`, settings."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from sqlalchemy import Engine

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.images.client import ImageLookup
from moorage.jobs.background_tasks import Wakeups
from moorage.network.client.neutron_client import NetworkClient
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.booking.address_booking import AddressBooking
from moorage.reservation.booking.admission import Admission
from moorage.reservation.booking.capacity_requests import CapacityRequests
from moorage.reservation.booking.enforcement import Enforcement
from moorage.reservation.booking.external_lookups import AcceleratorLookup, ExternalLookups
from moorage.reservation.booking.placement_capacity import PlacementCapacity
from moorage.reservation.events.event_runner import TOPIC
from moorage.reservation.model.before_end_actions import Allowed
from moorage.reservation.steps.fpga_steps import AcceleratorPrograms
from moorage.reservation.steps.notification_steps import MailServer


class AcceleratorServiceApi(AcceleratorLookup, AcceleratorPrograms, Protocol):
    """The methods of the accelerator service that reservations use."""


@dataclass(frozen=True)
class ReservationDeps:
    """`accelerators` None: the cloud has no accelerator service; then no request may name a device profile or a
    bitstream. `images`: see `SnapshotSteps`. `network` None: no network service is configured; then floating IPs cannot
    be reserved.
    """

    engine: Engine
    clock: Clock
    ids: Ids
    placement: PlacementClient
    compute: ComputeClient
    wakeups: Wakeups
    accelerators: AcceleratorServiceApi | None = None
    images: ImageLookup | None = None
    network: NetworkClient | None = None
    random_bytes: Callable[[int], bytes] = secrets.token_bytes  #: for secrets

    def wake_runner(self) -> None:
        """To be called when an event was written that may not have been finished here."""
        self.wakeups.wake(TOPIC)


@dataclass(frozen=True)
class BookingParts:
    admission: Admission
    addresses: AddressBooking
    enforcement: Enforcement
    lookups: ExternalLookups
    capacity_requests: CapacityRequests
    placement_capacity: PlacementCapacity


@dataclass(frozen=True)
class ReservationSettings:
    freepool: str = "freepool"  #: the aggregate that registered hosts join
    minutes_before_end: int = 60  #: default time of the before_end event, before the end of the lease
    cleaning_time_s: int = 0  #: allocations of hosts end this long after their lease
    start_deadline_s: int = 3600  #: a failing start is retried this long, but not beyond the end of the lease
    healing_interval_s: int = 3600  #: leases that start within this time are moved off failed hosts
    hold_s: int = 600  #: time until a hold expires
    keep_deleted_days: int = 90  #: for which a deleted lease can be read
    compat_server_groups: bool = False  #: create a server group for each affinity policy, see `ServerGroupSteps`
    before_end_of_hosts: str = ""  #: meaning of before_end ``default`` for physical:host: empty or ``snapshot``
    allowed: Allowed = field(default_factory=Allowed)  #: before_end actions that leases may request
    mail: MailServer | None = None
    requests_at_once: int = 1  #: parallel requests of a batch of starts; 1 keeps their order

    @property
    def cleaning_time(self) -> timedelta:
        return timedelta(seconds=self.cleaning_time_s)

    @property
    def hold(self) -> timedelta:
        return timedelta(seconds=self.hold_s)

    @property
    def keep_deleted(self) -> timedelta:
        return timedelta(days=self.keep_deleted_days)

    @property
    def healing_interval(self) -> timedelta:
        return timedelta(seconds=self.healing_interval_s)
