"""One calendar over several regions: bookings on two real planes, beside the same bookings in the simulation of
`bench.region_booking`; then simulated regions in more places.
"""

import itertools
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.planes import connection
from bench.region_booking import (
    HOSTS,
    LAST_START,
    LENGTH_M,
    SLOT,
    Answers,
    Booking,
    Load,
    Outcome,
    Request,
    Step,
    book,
    simulate,
)  # fmt: skip
from bench.reservations import fill, register_hosts, reservation_database, reservation_plane
from bench.servers import Server
from bench.table import Figure
from bench.wire import Connection

Say = Callable[[Figure], None]

#: Round trips: on one machine, within a country, between continents.
NEAR_S, COUNTRY_S, WORLD_S = 0.0, 0.02, 0.1
#: Bookings of each check, and of each simulation.
CHECKED, SIMULATED = 64, 300


def figures(kind: str, say: Say) -> None:
    with ExitStack() as stack:
        planes = [_region(stack, kind) for _ in range(2)]
        begin = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=1)
        work_s = _work(planes[0], begin)
        note = ", ".join(f"{step.name.lower()} {seconds * 1000:.1f} ms" for step, seconds in work_s.items())
        say(Figure("one region, one client: work for each request", f"{sum(work_s.values()) * 1000:.0f} ms", note))
        for clients, round_trip_s, at_once in (
            (1, NEAR_S, True), (1, COUNTRY_S, True), (4, COUNTRY_S, True), (4, COUNTRY_S, False), (16, COUNTRY_S, True),
        ):  # fmt: skip
            # Each load in a part of the calendar that no other has used.
            begin += timedelta(days=30)
            load = Load(2, 2, clients, round_trip_s, CHECKED, at_once)
            real = _drive(planes, begin, load)
            _say_check(say, load, real, simulate(load, work_s))
    for regions, across, clients, round_trip_s, at_once in (
        (2, 2, 16, COUNTRY_S, True), (4, 2, 16, COUNTRY_S, True), (8, 2, 16, COUNTRY_S, True), (8, 4, 16, COUNTRY_S, True),
        (8, 8, 16, COUNTRY_S, True), (8, 8, 16, COUNTRY_S, False), (8, 2, 64, COUNTRY_S, True), (8, 2, 16, WORLD_S, True),
        (8, 8, 16, WORLD_S, True), (8, 8, 16, WORLD_S, False), (32, 2, 64, WORLD_S, True),
    ):  # fmt: skip
        _say_simulated(say, Load(regions, across, clients, round_trip_s, SIMULATED, at_once), work_s)


def _region(stack: ExitStack, kind: str) -> Server:
    database = stack.enter_context(reservation_database(kind))
    fill(database, HOSTS, 0)
    plane = stack.enter_context(reservation_plane(database))
    register_hosts(plane, HOSTS)
    return plane


def _named(load: Load) -> str:
    how = "held at once" if load.at_once else "held in order"
    return (
        f"{load.regions} regions, half of the leases in {load.across}, {load.clients} clients, "
        f"{load.round_trip_s * 1000:.0f} ms away, {how}"
    )


def _say_check(say: Say, load: Load, real: Outcome, simulated: Outcome) -> None:
    note = (
        f"simulated {simulated.median_s * 1000:.0f} ms; attempts {real.attempts:.2f}, simulated "
        f"{simulated.attempts:.2f}; bookings a second {real.per_second:.1f}, simulated {simulated.per_second:.1f}"
    )
    say(Figure(f"two planes: {_named(load)}: p50", f"{real.median_s * 1000:.0f} ms", note))


def _say_simulated(say: Say, load: Load, work_s: Mapping[Step, float]) -> None:
    found = simulate(load, work_s)
    slowest = statistics.quantiles((one.took_s for one in found.across), n=100)[98]
    released = sum(one.released for one in found.across) / len(found.across)
    note = (
        f"p99 {slowest * 1000:,.0f} ms; attempts {found.attempts:.2f}; holds released {released:.2f} for each lease; "
        f"{found.per_second:,.0f} bookings a second"
    )
    say(Figure(f"simulated: {_named(load)}: p50", f"{found.median_s * 1000:,.0f} ms", note))


# --- real planes ------------------------------------------------------------------------------------------------------


class _Region:
    """A client's connection to one plane, `round_trip_s` away."""

    def __init__(self, plane: Server, begin: datetime, round_trip_s: float) -> None:
        self._wire: Connection = connection(plane, "reservation", "1.1")
        self._begin, self._round_trip_s = begin, round_trip_s
        #: of the lease that it makes
        self.name = "work"
        self._hold = ""

    def answer(self, request: Request) -> int | None:
        time.sleep(self._round_trip_s)
        if request.step is Step.LEASE:
            self._ask("POST", "/v1/leases", {"name": self.name, "hold_id": self._hold, "events": []})
            return 0
        if request.step is Step.RELEASE:
            self._ask("DELETE", f"/v1/holds/{self._hold}")
            return 0
        if request.step is Step.OFFER:
            return self._minute(self._ask("POST", "/v1/offers", self._search(request.start, LAST_START))["offers"][0])
        latest = request.start if request.step is Step.HOLD else LAST_START
        found = self._ask("POST", "/v1/holds", self._search(request.start, latest), refused=409)
        if not found:
            return None
        self._hold = found["hold"]["id"]
        return self._minute(found["hold"])

    def _ask(self, method: str, path: str, body: object = None, refused: int = 0) -> dict[str, Any]:
        status, content = self._wire.request(method, path, body)
        if status == refused:
            return {}
        if not 200 <= status < 300:
            raise SystemExit(f"error: {method} {path} was answered {status}: {content.decode()}")
        found: dict[str, Any] = json.loads(content or b"{}")
        return found

    def _search(self, earliest: int, latest: int) -> dict[str, Any]:
        first, last = (f"{self._begin + timedelta(minutes=each):%Y-%m-%d %H:%M}" for each in (earliest, latest))
        slot = {
            "resource_type": "virtual:instance", "vcpus": SLOT["VCPU"], "memory_mb": SLOT["MEMORY_MB"],
            "disk_gb": SLOT["DISK_GB"], "amount": HOSTS, "affinity": None, "resource_properties": "",
        }  # fmt: skip
        dates = {"duration_minutes": LENGTH_M, "earliest_start": first, "latest_start": last}
        return {**dates, "reservations": [slot]}

    def _minute(self, period: Mapping[str, str]) -> int:
        start = datetime.strptime(period["start_date"][:16], "%Y-%m-%dT%H:%M").replace(tzinfo=UTC)
        return int((start - self._begin).total_seconds()) // 60


def _carry_out(
    regions: Mapping[int, _Region], pool: ThreadPoolExecutor, wish: tuple[int, ...], *, at_once: bool
) -> Booking:
    began = time.perf_counter()
    booking = book(wish, at_once=at_once)
    requests = next(booking)
    while True:
        answers: Answers = list(pool.map(lambda each: regions[each.region].answer(each), requests))
        try:
            requests = booking.send(answers)
        except StopIteration as end:
            done: Booking = end.value
            return replace(done, took_s=time.perf_counter() - began)


def _work(plane: Server, begin: datetime) -> dict[Step, float]:
    """How long a plane works for each request of a single client."""
    region, found = _Region(plane, begin, 0.0), dict[Step, list[float]]()
    start = 0
    for _ in range(20):
        for step in (Step.OFFER, Step.HOLD_NEXT, Step.LEASE, Step.OFFER, Step.HOLD, Step.RELEASE):
            began = time.perf_counter()
            answer = region.answer(Request(0, step, start if step is Step.HOLD else 0))
            found.setdefault(step, []).append(time.perf_counter() - began)
            start = answer or 0
    return {step: statistics.median(took) for step, took in found.items()}


def _drive(planes: Sequence[Server], begin: datetime, load: Load) -> Outcome:
    context = multiprocessing.get_context("fork")
    results, ready = context.Queue(), context.Barrier(load.clients + 1)
    clients = [
        context.Process(target=_client, args=(planes, begin, load, number, ready, results))
        for number in range(load.clients)
    ]
    for client in clients:
        client.start()
    ready.wait(60)
    began = time.perf_counter()
    found = list(itertools.chain.from_iterable(results.get(timeout=90) for _ in clients))
    lasted_s = time.perf_counter() - began
    for client in clients:
        client.join()
    _check(planes, begin)
    return Outcome(found, lasted_s)


def _client(planes: Sequence[Server], begin: datetime, load: Load, number: int, ready: Any, results: Any) -> None:
    regions = {of: _Region(plane, begin, load.round_trip_s) for of, plane in enumerate(planes)}
    made = []
    with ThreadPoolExecutor(len(planes)) as pool:
        ready.wait(60)
        for count, wish in enumerate(itertools.islice(load.wishes(number), load.bookings // load.clients)):
            for region in regions.values():
                region.name = f"{number}-{count} in {len(wish)}"
            made.append(_carry_out(regions, pool, wish, at_once=load.at_once))
    results.put(made)


def _check(planes: Sequence[Server], begin: datetime) -> None:
    """Raises `SystemExit` unless each lease in two regions is in both, at the same time, and no hold is left."""
    leases = [dict(_leases(plane, begin)) for plane in planes]
    for name, start in itertools.chain.from_iterable(each.items() for each in leases):
        if name.endswith("in 2") and any(each.get(name) != start for each in leases):
            raise SystemExit(f"error: the lease {name!r} is not in both regions at {start}")
    for plane in planes:
        _, content = connection(plane, "reservation", "1.1").request("GET", "/v1/holds")
        if holds := json.loads(content)["holds"]:
            raise SystemExit(f"error: holds are left: {holds}")


def _leases(plane: Server, begin: datetime) -> Iterator[tuple[str, str]]:
    """(name, start) of those from `begin` on."""
    _, content = connection(plane, "reservation", "1.0").request("GET", "/v1/leases")
    for lease in json.loads(content)["leases"]:
        if lease["start_date"] >= f"{begin:%Y-%m-%dT%H:%M}":
            yield lease["name"], lease["start_date"]
