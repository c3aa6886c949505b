"""One calendar over several regions, each a plane of its own: how a lease in some of them is booked, and a simulation of
what that costs.

`book` is the protocol. It yields requests, and is sent their answers: by `simulate`, with the product's calendar and with
given times for the network and for the work of a region, or by `bench.regions`, from real planes.

A start is a minute after the begin of the calendar.
"""

import heapq
import itertools
import random
import statistics
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from bench.reservations import HOST
from moorage.reservation.capacity.calendar import Calendar, HostCapacity, HostUsage
from moorage.reservation.capacity.host_selection import CapacityRequest, Shortage, plan, usages
from moorage.reservation.capacity.next_slot import first_fit
from moorage.reservation.model.slot_demand import SlotDemand

DAYS = 60
LAST_START = DAYS * 1440
#: Of each lease.
LENGTH_M = 60
#: To hold the first start of one region.
MOST_ATTEMPTS = 100
#: A region has this many hosts, and a lease takes half of each.
HOSTS = 8
SLOT = {"VCPU": 32, "MEMORY_MB": 4096, "DISK_GB": 20}


class Step(Enum):
    OFFER = auto()  #: the first start from `start` on; answered with it
    #: a hold on the first start from `start` on; answered with it, or with None if others were faster
    HOLD_NEXT = auto()
    HOLD = auto()  #: a hold on `start` exactly; answered with it, or with None if it does not fit
    LEASE = auto()  #: makes a lease of the hold
    RELEASE = auto()  #: releases the hold


@dataclass(frozen=True, slots=True)
class Request:
    region: int
    step: Step
    start: int = 0


Answers = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Booking:
    regions: tuple[int, ...]
    start: int
    #: How often all regions were asked for a common start, and how often one was then held.
    searches: int
    attempts: int
    #: Holds that were released, because another region refused.
    released: int
    took_s: float = 0.0


def book(regions: tuple[int, ...], *, at_once: bool) -> Generator[Sequence[Request], Answers, Booking]:
    """Books the same hour in each of `regions`. `at_once`: holds it everywhere in one round trip, and not in order."""
    start, searches, released = 0, 0, 0
    if len(regions) == 1:
        for attempts in range(1, MOST_ATTEMPTS + 1):
            (found,) = yield [Request(regions[0], Step.HOLD_NEXT)]
            if found is not None:
                yield [Request(regions[0], Step.LEASE)]
                return Booking(regions, found, 0, attempts, 0)
        raise RuntimeError(f"a region refused {MOST_ATTEMPTS} holds")
    for attempts in itertools.count(1):
        agreed = False
        while not agreed:
            offers = [_there(each) for each in (yield [Request(region, Step.OFFER, start) for region in regions])]
            searches += 1
            start, agreed = max(offers), len({*offers}) == 1
        held: list[int] = []
        for together in [regions] if at_once else [(region,) for region in regions]:
            answers = yield [Request(region, Step.HOLD, start) for region in together]
            held += [region for region, answer in zip(together, answers, strict=True) if answer is not None]
            if None in answers:
                break
        else:
            yield [Request(region, Step.LEASE) for region in regions]
            return Booking(regions, start, searches, attempts, released)
        released += len(held)
        if held:
            yield [Request(region, Step.RELEASE) for region in held]
    raise AssertionError("unreachable")


def _there(start: int | None) -> int:
    if start is None:
        raise RuntimeError("the calendar is full: no start is left")
    return start


@dataclass(frozen=True)
class Load:
    """`regions`: their number. Half of the bookings are in `across` of them, the others in one. All want the first start.

    `round_trip_s`: between a client and any region.
    """

    regions: int
    across: int
    clients: int
    round_trip_s: float
    bookings: int
    at_once: bool = True

    def wishes(self, client: int) -> Iterator[tuple[int, ...]]:
        """The regions of the bookings of one client, without an end."""
        chance = random.Random(client)
        while True:
            across = self.across if chance.random() < 0.5 else 1
            yield tuple(sorted(chance.sample(range(self.regions), across)))


@dataclass
class Outcome:
    """`lasted_s`: from the first request to the last answer."""

    bookings: list[Booking]
    lasted_s: float

    @property
    def across(self) -> list[Booking]:
        return [one for one in self.bookings if len(one.regions) > 1]

    @property
    def per_second(self) -> float:
        return len(self.bookings) / self.lasted_s

    @property
    def median_s(self) -> float:
        """Of the bookings in several regions."""
        return statistics.median(one.took_s for one in self.across)

    @property
    def attempts(self) -> float:
        return statistics.fmean(one.attempts for one in self.across)


# --- the simulation ---------------------------------------------------------------------------------------------------

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_ASK = CapacityRequest("r", SlotDemand(SLOT), HOSTS)


class _Region:
    """A plane that does one request after the other. Its calendar is the product's."""

    def __init__(self) -> None:
        self._calendar = Calendar([HostCapacity(host + 1, HOST) for host in range(HOSTS)], [])
        self._held: dict[int, list[HostUsage]] = {}
        self.free_at = 0.0

    def answer(self, client: int, request: Request) -> int | None:
        if request.step is Step.LEASE:
            del self._held[client]
            return 0
        if request.step is Step.RELEASE:
            self._calendar = self._calendar.with_usage([each.released() for each in self._held.pop(client)])
            return 0
        latest = request.start if request.step is Step.HOLD else LAST_START
        first, last = (_BEGIN + timedelta(minutes=minute) for minute in (request.start, latest))
        length = timedelta(minutes=LENGTH_M)
        start = first_fit(self._calendar, [_ASK], first, last, length)
        if start is None:
            return None
        if request.step is not Step.OFFER:
            planned = plan(self._calendar, [_ASK], start, start + length)
            assert not isinstance(planned, Shortage)
            self._held[client] = usages(planned["r"], start, start + length)
            self._calendar = self._calendar.with_usage(self._held[client])
        return int((start - _BEGIN).total_seconds()) // 60


@dataclass
class _Client:
    number: int
    wishes: Iterator[tuple[int, ...]]
    booking: Generator[Sequence[Request], Answers, Booking] = field(init=False)
    began: float = 0.0
    answers: list[int | None] = field(default_factory=list)
    missing: int = 0


@dataclass(order=True)
class _Event:
    """A request that arrives at its region, or an answer that arrives at its client."""

    at: float
    number: int
    client: _Client = field(compare=False)
    position: int = field(compare=False)
    request: Request | None = field(compare=False, default=None)
    answer: int | None = field(compare=False, default=None)


def simulate(load: Load, work_s: Mapping[Step, float]) -> Outcome:
    """`work_s`: how long a region works for a request. The same arguments give the same outcome."""
    regions = [_Region() for _ in range(load.regions)]
    events: list[_Event] = []
    numbers = itertools.count()
    made: list[Booking] = []

    def send(client: _Client, at: float, requests: Sequence[Request]) -> None:
        client.answers, client.missing = [None] * len(requests), len(requests)
        for position, request in enumerate(requests):
            heapq.heappush(events, _Event(at + load.round_trip_s / 2, next(numbers), client, position, request))

    def begin(client: _Client, at: float) -> None:
        client.booking, client.began = book(next(client.wishes), at_once=load.at_once), at
        send(client, at, next(client.booking))

    for number in range(load.clients):
        begin(_Client(number, load.wishes(number)), 0.0)
    now = 0.0
    while len(made) < load.bookings:
        event = heapq.heappop(events)
        now, client, request = event.at, event.client, event.request
        if request is not None:
            region = regions[request.region]
            answer = region.answer(client.number, request)
            region.free_at = max(now, region.free_at) + work_s[request.step]
            back = region.free_at + load.round_trip_s / 2
            heapq.heappush(events, _Event(back, next(numbers), client, event.position, answer=answer))
            continue
        client.answers[event.position] = event.answer
        client.missing -= 1
        if client.missing:
            continue
        try:
            send(client, now, client.booking.send(client.answers))
        except StopIteration as end:
            made.append(replace(end.value, took_s=now - client.began))
            begin(client, now)
    return Outcome(made, now)
