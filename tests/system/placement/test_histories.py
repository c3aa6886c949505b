"""Up to four processes on one database, eight clients: one order explains all answers, and every committed state is
valid.

``MOORAGE_HISTORIES_SEEDS`` is the number of seeds (default 1), ``MOORAGE_HISTORIES_SEED`` the first of them.
"""

import contextlib
import os
import time
from collections import Counter
from functools import partial
from itertools import chain

import pytest

from moorage.db.engine import open_engine
from moorage.placement.sync.committer import GROUPS_AFTER_MISS
from tests.conftest import DATABASES
from tests.servers import temporary_database
from tests.system.placement import committed
from tests.system.placement.calls import about_consumers, about_provider, consumer_step, place_step, provider_step
from tests.system.placement.concurrent_clients import (
    CHANCES_OF_FLEETS,
    CHILD,
    CONSUMERS,
    FLEETS,
    LARGE,
    MOVED,
    PROVIDERS,
    ROOTS,
    run_clients,
)
from tests.system.placement.guessing import guessing_servers
from tests.system.placement.linearizable import violation
from tests.system.placement.processes import Process
from tests.system.planes import PLACEMENT

pytestmark = pytest.mark.slow

FIRST_SEED = int(os.environ.get("MOORAGE_HISTORIES_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("MOORAGE_HISTORIES_SEEDS", "1")))

#: The minimum number of accepted calls of each kind; a test in which nothing happens shows nothing.
LEAST = {"claim": 30, "release": 3, "offer": 10, "reshape": 1, "move": 10, "create": 1, "delete": 1}

#: All allowed refusals; the peer sends no other 409 or 400 for these calls.
REASONS = (
    "consumer generation conflict",
    "resource provider generation conflict",
    "would exceed the capacity",
    "' invalid.",
    "in use",
    "that does not exist",
    "Conflicting resource provider",
    "has allocations",
    "No allocations for consumer",
    "No resource provider with uuid",
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("database", DATABASES)
def test_one_order_explains_all_answers_of_four_processes(database, seed, tmp_path):
    """Two of the processes decide writes early even after another process was first."""
    with _delayed_servers(database, [GROUPS_AFTER_MISS, GROUPS_AFTER_MISS, 0, 0], tmp_path) as (servers, check):
        calls = run_clients([server.url for server in servers], seed=seed)
        check(calls, f"again with: MOORAGE_HISTORIES_SEED={seed}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("database", DATABASES[1:])
def test_one_order_explains_all_answers_with_large_claims(database, processes, seed, tmp_path):
    """Optimistic writes fail if a consumer exists already, and almost always if another process was first."""
    with _delayed_servers(database, [0] * processes, tmp_path) as (servers, check):
        calls = run_clients([server.url for server in servers], seed=seed, chances=CHANCES_OF_FLEETS)
        check(calls, f"again with: MOORAGE_HISTORIES_SEED={seed}, perhaps", least={"claim": 50})
    refusals = [call.refusal for call in calls if len(call.wishes) >= LARGE]
    assert any("exceed the capacity" in refusal for refusal in refusals)
    assert any("consumer generation conflict" in refusal for refusal in refusals)


@contextlib.contextmanager
def _delayed_servers(database, wary, directory):
    """(servers, a function that checks the calls made through them)"""
    with temporary_database(database, PLACEMENT) as url, guessing_servers(url, wary, directory) as servers:
        yield servers, lambda calls, again, least=LEAST: _check(calls, _committed_faults(url), again, least)


@pytest.mark.parametrize("database", DATABASES[1:])
def test_one_order_explains_all_answers_while_processes_start_and_stop(database, tmp_path):
    """One process is stopped, another one hangs and is killed."""
    with temporary_database(database, PLACEMENT) as url, contextlib.ExitStack() as stack:
        serving = []

        def start(name):
            process = Process(tmp_path / name, url)
            stack.enter_context(process).start()
            serving.append(process.url)
            return process

        def leave(process):
            serving.remove(process.url)
            time.sleep(2.0)  # for the requests that it is still answering

        def come_and_go():
            second = start("second")
            time.sleep(1.0)
            leave(first)
            first.stop()
            start("third")
            time.sleep(1.0)
            with second.stopped():
                time.sleep(1.5)
            leave(second)
            second.kill()
            time.sleep(1.0)

        first = start("first")
        calls = run_clients(serving, seed=FIRST_SEED, clients=6, pause_s=0.03, meanwhile=come_and_go)
        faults = _committed_faults(url)
    _check(calls, faults, f"again with: MOORAGE_HISTORIES_SEED={FIRST_SEED}, if at all")


def _committed_faults(url):
    engine = open_engine(url)
    faults = list(committed.faults(engine))
    engine.dispose()
    return faults


def _check(calls, faults, again, least=LEAST):
    assert [call for call in calls if call.status >= 500] == [], again
    assert [call for call in calls if not call.accepted and not any(one in call.refusal for one in REASONS)] == [], (
        again
    )
    assert faults == [], again
    seen_by = about_consumers(calls)
    lives = {uuid: seen_by[uuid] for uuid in (*CONSUMERS, *chain.from_iterable(FLEETS))}
    for uuid in PROVIDERS:
        seen = about_provider(uuid, calls)
        assert (found := violation(seen, None, partial(provider_step, uuid))) is None, f"{uuid}: {found}\n{again}"
    for uuid, seen in lives.items():
        assert (found := violation(seen, None, partial(consumer_step, uuid))) is None, f"{uuid}: {found}\n{again}"
    for call in calls:
        assert _refusal_is_explained(call, lives), f"{call}\n{again}"
    step = partial(_place, MOVED, CHILD)
    assert (found := violation(calls, ROOTS[0], step)) is None, f"{found}\n{again}"
    _check_that_much_happened(calls, least)


def _place(moved, child, root, call):
    return place_step(moved, child, root, call)


def _refusal_is_explained(call, lives):
    """A claim of several consumers may be refused only if at least one of them has another generation."""
    if len(call.wishes) < 2 or "consumer generation conflict" not in call.refusal:
        return True  # `consumer_step` has checked this for a single consumer
    steps = {uuid: partial(consumer_step, uuid, accused=call) for uuid in call.wishes}
    return any(violation(lives[uuid], None, step) is None for uuid, step in steps.items())


def _check_that_much_happened(calls, least):
    """A test shows nothing if every call is refused, or if no call conflicts with another."""
    accepted = Counter(call.kind for call in calls if call.accepted)
    assert {kind: accepted[kind] for kind, times in least.items() if accepted[kind] < times} == {}
    assert sum("generation conflict" in call.refusal for call in calls) >= 3
