"""Disturbs every operation of a lease at one point: kills its process there, or lets its request fail there.

A point is a name that `Line` counts: ``commit 3`` is before the third commit of the reservation service's database,
``begin 4`` before its fourth transaction, ``before 7 PUT /placement/...`` before its seventh request to another
service, and ``after 7 ...`` after that request, before its answer is known. Then other processes continue. Afterwards
`check` must hold, the other services must agree with the database, and their changes must have the order of an
undisturbed run.
"""

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import event

from moorage.core.caller import Caller
from moorage.core.errors import MoorageError, Unavailable
from moorage.db.session import read
from moorage.reservation.api.schemas.lease import decode_create, decode_update
from moorage.reservation.store import event_store, host_store
from moorage.wire.transports import ClientResponse
from tests.plane import Request, Send
from tests.wire.reservation.plane import Plane, class_of, instance, lease
from tests.wire.reservation.processes import Process

STARTS, ENDS = datetime(2026, 3, 1, 10, tzinfo=UTC), datetime(2026, 3, 6, 10, tzinfo=UTC)
PERIOD = {"start": "2026-03-01 10:00", "end": "2026-03-06 10:00"}
MEMBER = Caller("user", "demo", frozenset({"member"}))
HOSTS = ("compute-1", "compute-2")
_UUID = re.compile(r"[0-9a-fA-F]{8}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{12}")


class Line:
    """All statements and requests of a service; `reached` is called at each point with its name."""

    def __init__(self, reached: Callable[[str], str | None] = lambda point: None, trace: Path | None = None) -> None:
        """`reached` may return the kind of a fault to inject, see `_mishap`. Appends completed changes to `trace`."""
        self._reached = reached
        self._trace = trace
        self._counts: dict[str, int] = {}

    def process(self, plane: Plane, name: str) -> Process:
        process = plane.new_process(name)
        for what in ("begin", "commit"):
            event.listen(process.plane.engine("reservation"), what, lambda _, what=what: self._point(what))
        for service in ("placement", "compute"):
            process.plane.ways[service].around = partial(self._send, service)
        return process

    def _send(self, service: str, request: Request, send: Send) -> ClientResponse:
        where = f"{request.method} {service}{request.resource}"
        mishap = self._point("before", where)
        if mishap in ("503", "409", "silence"):
            return _mishap(mishap)
        answer = send()
        if self._trace is not None and request.method != "GET" and answer.status < 300:
            body = re.sub(r"\s", "", (request.body or b"").decode()) if "/action" in where else ""
            with self._trace.open("a") as out:
                print(where, body, file=out)
        lost = self._point("after", where)
        if "lost" in (mishap, lost):
            raise Unavailable(f"{where}: the answer was lost")
        return answer

    def _point(self, what: str, where: str = "") -> str | None:
        self._counts[what] = self._counts.get(what, 0) + 1
        return self._reached(f"{what} {self._counts[what]} {where}".rstrip())


def _mishap(kind: str) -> ClientResponse:
    if kind == "silence":
        raise Unavailable("nobody answers in time")
    if kind == "503":
        return ClientResponse(503, {"content-type": "application/json"}, b'{"error": "overloaded"}')
    errors = [
        {"status": 409, "title": "Conflict", "detail": "changed meanwhile", "code": "placement.concurrent_update"}
    ]
    return ClientResponse(409, {"content-type": "application/json"}, json.dumps({"errors": errors}).encode())


@dataclass(frozen=True)
class Scenario:
    """`prepare` returns the lease that `act` changes; `act` may raise the error that a client would get."""

    name: str
    prepare: Callable[[Plane], Any]
    act: Callable[[Plane, Any, Any], None]
    #: Checks at the end; `again` is an undisturbed process.
    check: Callable[[Plane, Any, Any], None]
    #: Whether all changes have one order. With several leases, each lease has its own order.
    ordered: bool = True

    def order_of(self, trace: Path) -> list[str]:
        return order_of(trace) if self.ordered else sorted(order_of(trace))


def new_plane(folder: Path) -> Plane:
    plane = Plane(folder)
    for name in HOSTS:
        plane.add_host(name)
        plane.register(name)
    plane.stop_runner()
    return plane


#: Seconds between rounds: the claim of a dead process expires after 60; a failed step is retried after at most 60.
PAUSES_S = (5, 5, 55, 5, 5, 10, 20, 40, 60, 10, 60, 60, 10)


def go_on(plane: Plane, *processes: Process, pauses_s: Sequence[int] = PAUSES_S) -> None:
    """Advances the clock by each pause; before each, the runners of the processes run the due events in turn."""
    for pause_s in pauses_s:
        for process in processes:
            process.runner.run_once()
        plane.settle()
        plane.clock.sleep(pause_s)


# --- operations ---------------------------------------------------------------------------------------------


def _create(plane: Plane, amount: int = 4) -> Any:
    return plane.ask("POST", "/v1/leases", lease(instance(amount), **PERIOD), status=201)["lease"]


def _active(plane: Plane, *, servers: int = 0) -> Any:
    made = _create(plane)
    plane.clock.advance_to(STARTS)
    plane.runner.run_once()
    for number in range(servers):
        plane.boot(f"s{number}", made["reservations"][0]["id"])
    return plane.lease(made["id"])


def _leases(plane: Plane) -> list[Any]:
    return plane.ask("GET", "/v1/leases")["leases"]


def _check_created(plane: Plane, _: Any, again: Any) -> None:
    found = _leases(plane)
    assert [each["status"] for each in found] in ([], ["PENDING"]), found
    if not found:
        again.leases.create_lease(MEMBER, decode_create(lease(instance(12), **PERIOD)))


def _check_started(plane: Plane, made: Any, _: Any) -> None:
    assert _state(plane, made) == (
        "ACTIVE",
        {"start_lease": "DONE", "before_end_lease": "UNDONE", "end_lease": "UNDONE"},
    )


def _due_together(plane: Plane) -> list[Any]:
    """Three leases on two hosts that start at the same moment; one of them has slots on both hosts."""
    made = [_create(plane) for _ in range(3)]
    plane.clock.advance_to(STARTS)
    return made


def _check_all_started(plane: Plane, made: Any, again: Any) -> None:
    for each in made:
        _check_started(plane, each, again)


def _grow(plane: Plane, process: Process, made: Any) -> None:
    body = {"reservations": [{"id": made["reservations"][0]["id"], "amount": 12}]}
    process.leases.update_lease(MEMBER, made["id"], decode_update(body))


def _check_grown(plane: Plane, made: Any, again: Any) -> None:
    """The update is applied completely or not at all; it can be repeated."""
    shown = plane.lease(made["id"])
    assert shown["status"] == "ACTIVE"
    assert shown["reservations"][0]["amount"] in (4, 12)
    assert sum(_slots(plane, made).values()) == shown["reservations"][0]["amount"]
    _grow(plane, again, made)
    assert sum(_slots(plane, made).values()) == 12


def _prepare_end(plane: Plane) -> Any:
    made = _active(plane, servers=1)
    plane.clock.advance_to(ENDS)
    return made


def _end(plane: Plane, process: Process, made: Any) -> None:
    for _ in range(3):
        process.runner.run_once()
        plane.settle()
        plane.clock.sleep(10)


def _check_ended(plane: Plane, made: Any, _: Any) -> None:
    done = {"start_lease": "DONE", "before_end_lease": "DONE", "end_lease": "DONE"}
    assert _state(plane, made) == ("TERMINATED", done)
    assert _slots(plane, made) == {}


def _delete(plane: Plane, process: Process, made: Any) -> None:
    process.leases.delete_lease(MEMBER, made["id"])
    _end(plane, process, made)


def _check_deleted(plane: Plane, _: Any, again: Any) -> None:
    for each in _leases(plane):  # the process died before it recorded the deletion
        assert each["status"] == "ACTIVE"
        _delete(plane, again, each)
    assert _leases(plane) == []


def _prepare_heal(plane: Plane) -> Any:
    made = _active(plane, servers=1)
    body = {"host": "compute-1", "binary": "nova-compute"}
    plane.ask("PUT", "/v2.1/os-services/disable", body, service="compute")
    return made


def _heal(plane: Plane, process: Process, made: Any) -> None:
    process.watch.run_once()


def _check_healed(plane: Plane, made: Any, again: Any) -> None:
    _heal(plane, again, made)
    go_on(plane, again, pauses_s=(5, 5))
    shown = plane.lease(made["id"])
    (reservation,) = shown["reservations"]
    assert (shown["status"], shown["degraded"], reservation["resources_changed"]) == ("ACTIVE", True, True)
    assert _slots(plane, made) == {"compute-2": 4}


def _make(process: Process) -> None:
    process.leases.create_lease(MEMBER, decode_create(lease(instance(12), **PERIOD)))


def _due(plane: Plane) -> Any:
    made = _create(plane, 12)
    plane.clock.advance_to(STARTS)
    return made


def _tick(process: Process) -> None:
    process.runner.run_once()


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("create", lambda plane: None, lambda plane, process, made: _make(process), _check_created),
        Scenario("start", _due, lambda plane, process, made: _tick(process), _check_started),
        Scenario(
            "starts",
            _due_together,
            lambda plane, process, made: _tick(process),
            _check_all_started,
            ordered=False,
        ),
        Scenario("update", _active, _grow, _check_grown),
        Scenario("end", _prepare_end, _end, _check_ended),
        Scenario("delete", lambda plane: _active(plane, servers=1), _delete, _check_deleted),
        Scenario("heal", _prepare_heal, _heal, _check_healed),
    )
}


# --- state afterwards ---------------------------------------------------------------------------------------


def _state(plane: Plane, made: Any) -> tuple[str, dict[str, str]]:
    shown = plane.lease(made["id"])
    return shown["status"], {each["event_type"]: each["status"] for each in shown["events"]}


def _slots(plane: Plane, made: Any) -> dict[str, int]:
    with read(plane.engine) as connection:
        rows = host_store.allocations_of(connection, [made["reservations"][0]["id"]])
    return {
        name: count for number, name in enumerate(HOSTS, 1) if (count := sum(row.host_id == number for row in rows))
    }


def check_agreement(plane: Plane) -> None:
    """Classes, flavors, access and inventories in Placement and compute match the reservation database."""
    classes = set()
    for made in _leases(plane):
        (reservation,) = made["reservations"]
        if made["status"] == "TERMINATED":
            continue
        classes.add(class_of(reservation))
        assert plane.flavor(reservation["id"]) is not None
        active = made["status"] == "ACTIVE"
        assert plane.access(reservation["id"]) == (["demo"] if active else [])
        wanted = _slots(plane, made) if active else {}
        with read(plane.engine) as connection:
            retired = event_store.retired_hosts(connection, made["id"]).get(reservation["id"], set())
        for name in HOSTS:
            found = plane.inventory(name, class_of(reservation))
            held = 1 if name in retired else None  # the remaining server still uses this unit
            assert (found.total if found else None) == wanted.get(name, held), name
    there = plane.ask("GET", "/resource_classes", service="placement")["resource_classes"]
    assert {each["name"] for each in there if each["name"].startswith("CUSTOM_RESERVATION_")} == classes
    flavors = plane.ask("GET", "/v2.1/flavors?is_public=None", service="compute")["flavors"]
    assert len(flavors) == len(classes)


def order_of(trace: Path) -> list[str]:
    """The changes without repetitions, in the order of their first occurrence; ids are replaced by numbers."""
    names: dict[str, str] = {}
    seen: dict[str, None] = {}
    for line in trace.read_text().splitlines() if trace.exists() else []:
        key = _UUID.sub(lambda found: names.setdefault(found[0].lower().replace("_", "-"), f"<{len(names)}>"), line)
        seen[key] = None
    return list(seen)


# --- disturbances -----------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    points: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)


def undisturbed(name: str, folder: str) -> Outcome:
    """Runs an operation without a disturbance; returns its points and the order of its changes."""
    scenario, plane, trace = SCENARIOS[name], new_plane(Path(folder)), Path(folder) / "trace"
    made = scenario.prepare(plane)
    outcome = Outcome()
    points: list[str] = []
    process = Line(points.append, trace).process(plane, "first")
    scenario.act(plane, process, made)
    outcome.points = list(points)
    go_on(plane, process, pauses_s=(5, 5))
    outcome.order = scenario.order_of(trace)
    scenario.check(plane, made, process)
    check_agreement(plane)
    plane.close()
    return outcome


def killed(name: str, folder: str, point: str) -> list[str]:
    """Kills a process at `point`; two others continue.

    Returns the order of the changes, [] if the operation never began.
    """
    scenario, plane, trace = SCENARIOS[name], new_plane(Path(folder)), Path(folder) / "trace"
    made = scenario.prepare(plane)
    pid = os.fork()
    if pid == 0:
        _die(scenario, plane, made, trace, point)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"{point} was never reached"
    assert os.WTERMSIG(status) == signal.SIGKILL
    others = [Line(trace=trace).process(plane, name) for name in ("second", "third")]
    go_on(plane, *others)
    return _settled(scenario, plane, made, trace, others[0])


def _die(scenario: Scenario, plane: Plane, made: Any, trace: Path, point: str) -> None:
    def reached(here: str) -> None:
        if _same(here, point):
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()

    try:
        plane.ids.__init__(99)  # the parent continues with its own seed, and the ids must differ
        for each in plane.cloud.cloud.planes:
            for engine in each.plane.engines.values():
                engine.dispose(close=False)  # these connections belong to the parent
        scenario.act(plane, Line(reached, trace).process(plane, "doomed"), made)
    finally:
        os._exit(1)


def _same(point: str, other: str) -> bool:
    """Whether two points have the same kind and number; ids in paths differ between runs."""
    return point.split()[:2] == other.split()[:2]


def mishap(name: str, folder: str, point: str, kind: str, times: int) -> list[str]:
    """Fails `times` requests, starting at `point`; then this process and another one continue."""
    scenario, plane, trace = SCENARIOS[name], new_plane(Path(folder)), Path(folder) / "trace"
    made = scenario.prepare(plane)
    left = [times]
    begun: list[str] = []

    def reached(here: str) -> str | None:
        if _same(here, point):
            begun.append(here)
        method = here.split()[2] if len(here.split()) > 2 else ""
        is_write = method == "DELETE" or (method in ("PUT", "POST") and " placement/" in here)
        fitting = here.startswith("before ") and (kind != "409" or is_write)
        if not begun or not left[0] or not fitting:
            return None
        left[0] -= 1
        return kind

    first = Line(reached, trace).process(plane, "first")
    with contextlib.suppress(MoorageError):  # a client would get this error
        scenario.act(plane, first, made)
    second = Line(trace=trace).process(plane, "second")
    go_on(plane, first, second)
    return _settled(scenario, plane, made, trace, second)


def _settled(scenario: Scenario, plane: Plane, made: Any, trace: Path, again: Any) -> list[str]:
    check_agreement(plane)
    scenario.check(plane, made, again)
    check_agreement(plane)
    plane.close()
    return scenario.order_of(trace)
