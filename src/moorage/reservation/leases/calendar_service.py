"""The use cases of the calendar. A project sees its own leases by name, and all other leases as utilisation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.core.caller import Caller
from moorage.core.errors import Invalid
from moorage.db.session import read
from moorage.reservation.capacity.calendar import Utilisation, total_capacity, utilisation
from moorage.reservation.capacity.lease_update import When
from moorage.reservation.deps import BookingParts, ReservationDeps
from moorage.reservation.model.leases import Lease, floor_minute
from moorage.reservation.model.list_query import LeasePage, SortKey
from moorage.reservation.store import lease_store

#: Maximum number of steps of a calendar.
MAX_STEPS = 2000

#: The feed includes leases that ended at most this long ago, and all later ones.
_PAST = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class CalendarView:
    start: datetime
    end: datetime
    capacity: Mapping[str, int]
    busy: Sequence[Utilisation]
    leases: Sequence[Lease]  #: the project's own


@dataclass(frozen=True)
class CalendarService:
    deps: ReservationDeps
    booking: BookingParts

    def view(
        self, caller: Caller, start: When, end: datetime | None, step: timedelta, properties: str = ""
    ) -> CalendarView:
        """The utilisation of the hosts that match the query `properties`, per `step`. Raises `Invalid`.

        `end` defaults to 7 days after `start`.
        """
        begin = floor_minute(self.deps.clock.now()) if start == "now" else start
        try:
            finish = begin + timedelta(days=7) if end is None else end
        except OverflowError:
            raise Invalid("start_date is too late: the end would exceed the latest possible date") from None
        if not timedelta(0) < finish - begin <= MAX_STEPS * step:
            raise Invalid(f"end_date must be after start_date, by at most {MAX_STEPS} times step_minutes")
        calendar = self.booking.admission.calendar()
        wanted = LeasePage(
            project_id=caller.project_id, ends_after=begin, starts_before=finish, sort_key=SortKey.START_DATE
        )
        with read(self.deps.engine) as connection:
            own, _ = lease_store.find_page(connection, wanted)
        hosts = self.booking.capacity_requests.eligible([properties])
        return CalendarView(
            begin, finish, total_capacity(calendar, hosts), utilisation(calendar, begin, finish, step, hosts), own
        )

    def feed(self, caller: Caller) -> list[Lease]:
        """The project's current, future and recently ended leases; at most one page."""
        wanted = LeasePage(
            project_id=caller.project_id, ends_after=self.deps.clock.now() - _PAST, sort_key=SortKey.END_DATE
        )
        with read(self.deps.engine) as connection:
            return lease_store.find_page(connection, wanted)[0]
