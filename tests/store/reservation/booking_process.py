"""For `test_booking_processes`: the requests of one of several processes that book the same few hosts."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.core.clock import VirtualClock
from moorage.db.engine import open_engine
from moorage.reservation.booking.admission import Admission, NotEnoughHostsAvailable
from tests.store.reservation.test_admission import admit
from tests.store.reservation.worlds import NOW

HOURS = 72


@dataclass(frozen=True)
class Request:
    vcpus: int
    amount: int
    affinity: bool | None
    start: datetime
    end: datetime


def requests(seed: int, count: int) -> list[Request]:
    """Requests for periods of whole hours within three days, so that many begin when another ends."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        begin, length = chance.randrange(HOURS), chance.randint(1, 12)
        start = NOW + timedelta(hours=1 + begin)
        affinity = chance.choice([None, None, True, False])
        end = start + timedelta(hours=length)
        found.append(Request(chance.randint(1, 5), chance.randint(1, 3), affinity, start, end))
    return found


def book(url: str, seed: int, count: int) -> tuple[int, list[Request]]:
    """Makes `count` requests; returns the number of accepted ones, and the refused ones."""
    engine = open_engine(url)
    admission = Admission(engine, VirtualClock(NOW))
    got, refused = 0, []
    for number, each in enumerate(requests(seed, count)):
        try:
            admit(
                engine, admission, seed * 1_000_000 + number, each.amount, vcpus=each.vcpus, affinity=each.affinity,
                start=each.start, end=each.end,
            )  # fmt: skip
            got += 1
        except NotEnoughHostsAvailable:
            refused.append(each)
    engine.dispose()
    return got, refused
