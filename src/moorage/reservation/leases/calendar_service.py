"""The use cases of the calendar and of calendar feeds.

In the calendar, a project sees its own leases by name, and all other leases as utilisation.

A feed is a URL with a secret, from which a calendar program reads the leases of a project. The URL is the only
credential, because calendar programs send no others. It shows the leases that its owner may see at the time of the
request. It stops working when it is revoked, the user is disabled, or the user has no role in the project any more.
"""

import hashlib
import hmac
import threading
from base64 import urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection

from moorage.core.caller import Caller
from moorage.core.errors import Invalid, NotFound, OverQuota, TooManyRequests
from moorage.db.session import in_transaction, read
from moorage.identity.policy import reader
from moorage.reservation.capacity.calendar import Utilisation, total_capacity, utilisation
from moorage.reservation.capacity.lease_update import When
from moorage.reservation.deps import BookingParts, ReservationDeps
from moorage.reservation.model.leases import Lease, floor_minute
from moorage.reservation.model.list_query import LeasePage, SortKey
from moorage.reservation.store import feed_store, lease_store
from moorage.reservation.store.feed_store import Feed

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


#: Feeds of a user, and entries of a list of the feeds of all users.
MAX_FEEDS, MAX_LISTED = 20, 1000

#: Octets of a secret.
SECRET_OCTETS = 32

#: Reads of a feed in a minute, per process. Calendar programs read every few minutes at most.
READS, PERIOD = 10, timedelta(minutes=1)

#: The number of feeds whose reads are counted; the feed that was read longest ago is forgotten first.
_COUNTED = 10_000

#: `Feed.read_at` is written at most this often.
_RECORDED = timedelta(minutes=10)


class Membership(Protocol):
    def caller_now(self, user_id: str, project_id: str) -> Caller | None:
        """The user with the present roles in the project. None: unknown or disabled, as is the project, or no role.

        Raises `Unavailable` if the identity service does not answer.
        """


class NoMembership:
    """Knows no user."""

    def caller_now(self, user_id: str, project_id: str) -> Caller | None:
        return None


class ReadLimit:
    """Counts the reads of each feed in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: OrderedDict[str, deque[datetime]] = OrderedDict()

    def check(self, feed_id: str, now: datetime) -> None:
        """Raises `TooManyRequests`."""
        with self._lock:
            mine = self._reads.setdefault(feed_id, deque(maxlen=READS))
            self._reads.move_to_end(feed_id)
            if len(mine) == READS and timedelta(0) <= now - mine[0] < PERIOD:
                wait_s = int((mine[0] + PERIOD - now).total_seconds()) + 1
                raise TooManyRequests(
                    f"this feed was read {READS} times within a minute; try again in {wait_s} s", retry_after_s=wait_s
                )
            mine.append(now)
            if len(self._reads) > _COUNTED:
                self._reads.popitem(last=False)


@dataclass(frozen=True)
class FeedService:
    deps: ReservationDeps
    calendar: CalendarService
    membership: Membership
    limit: ReadLimit = field(default_factory=ReadLimit)

    def create_feed(self, caller: Caller, name: str) -> tuple[Feed, str]:
        """(the feed, its secret, which cannot be read again). Raises `Invalid` for a caller without a project."""
        if not caller.project_id:
            raise Invalid("a calendar feed shows the leases of a project; use a token that is scoped to one")
        secret = urlsafe_b64encode(self.deps.random_bytes(SECRET_OCTETS)).decode().rstrip("=")
        now = self.deps.clock.now()
        feed = Feed(self.deps.ids.uuid(), name, caller.user_id, caller.project_id, _hash(secret), now, None)

        def write(connection: Connection) -> None:
            if (there := feed_store.count(connection, caller.user_id)) >= MAX_FEEDS:
                raise OverQuota(
                    f"a user may have {MAX_FEEDS} calendar feeds, and {there} exist; revoke one that is not used"
                )
            feed_store.insert_feed(connection, feed)

        in_transaction(self.deps.engine, write)
        return feed, secret

    def list_feeds(self, caller: Caller) -> Sequence[Feed]:
        """The caller's feeds, the newest first; administrators get those of all users."""
        with read(self.deps.engine) as connection:
            return feed_store.feeds(connection, None if caller.is_admin else caller.user_id, MAX_LISTED)

    def revoke_feed(self, caller: Caller, feed_id: str) -> None:
        """Raises `NotFound` also for another user's feed."""

        def delete(connection: Connection) -> None:
            feed = feed_store.find(connection, feed_id)
            if feed is None or not (caller.is_admin or feed.user_id == caller.user_id):
                raise _not_found()
            feed_store.delete_feed(connection, feed_id)

        in_transaction(self.deps.engine, delete)

    def read_leases(self, feed_id: str, secret: str) -> list[Lease]:
        """The leases that the feed's owner may see now.

        Raises `NotFound` with one message for a wrong secret, a revoked feed, and an owner without rights.
        """
        with read(self.deps.engine) as connection:
            feed = feed_store.find(connection, feed_id)
        # The secret is also compared if the feed is unknown, so that the duration does not reveal whether it exists.
        known = feed.secret_hash if feed is not None else _hash("")
        if not hmac.compare_digest(known, _hash(secret)) or feed is None:
            raise _not_found()
        now = self.deps.clock.now()
        self.limit.check(feed.id, now)
        owner = self.membership.caller_now(feed.user_id, feed.project_id)
        if owner is None or not reader(owner):
            raise _not_found()
        if feed.read_at is None or now - feed.read_at >= _RECORDED:
            in_transaction(self.deps.engine, lambda connection: feed_store.set_read(connection, feed.id, now))
        return self.calendar.feed(owner)


def _hash(secret: str) -> str:
    """A secret is random, so a plain hash cannot be reversed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _not_found() -> NotFound:
    return NotFound("there is no such calendar feed; it may have been revoked")
