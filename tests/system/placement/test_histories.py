"""Four processes on one database, eight clients: one order explains all answers, and no state was ever wrong.

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
from tests.system.placement.guessing import guessing_servers
from tests.system.placement.linearizable import violation
from tests.system.placement.processes import Process
from tests.system.placement.rush import (
    CHANCES_OF_FLEETS,
    CHILD,
    CONSUMERS,
    FLEETS,
    LARGE,
    MOVED,
    PROVIDERS,
    ROOTS,
    rush,
)
from tests.system.planes import PLACEMENT

pytestmark = pytest.mark.slow

FIRST_SEED = int(os.environ.get("MOORAGE_HISTORIES_SEED", "1"))
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("MOORAGE_HISTORIES_SEEDS", "1")))

#: Accepted calls of each kind, at least: a rush in which nothing is shows nothing.
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
def test_whatever_clients_see_is_explained_by_one_order(database, seed, tmp_path):
    """Two of the processes decide early even after another one was first."""
    with _guessing(database, [GROUPS_AFTER_MISS, GROUPS_AFTER_MISS, 0, 0], tmp_path) as (servers, check):
        calls = rush([server.url for server in servers], seed=seed)
        check(calls, f"again with: MOORAGE_HISTORIES_SEED={seed}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("database", DATABASES[1:])
def test_so_it_is_with_large_claims(database, processes, seed, tmp_path):
    """Guesses are wrong where what one takes for new is there; and where another process was quicker, nearly always."""
    with _guessing(database, [0] * processes, tmp_path) as (servers, check):
        calls = rush([server.url for server in servers], seed=seed, chances=CHANCES_OF_FLEETS)
        check(calls, f"again with: MOORAGE_HISTORIES_SEED={seed}, perhaps", least={"claim": 50})
    refusals = [call.refusal for call in calls if len(call.wishes) >= LARGE]
    assert any("exceed the capacity" in refusal for refusal in refusals)
    assert any("consumer generation conflict" in refusal for refusal in refusals)


@contextlib.contextmanager
def _guessing(database, wary, directory):
    """(servers, the check of the calls that were made through them)"""
    with temporary_database(database, PLACEMENT) as url, guessing_servers(url, wary, directory) as servers:
        yield servers, lambda calls, again, least=LEAST: _check(calls, _committed_faults(url), again, least)


@pytest.mark.parametrize("database", DATABASES[1:])
def test_so_it_is_while_processes_come_and_go(database, tmp_path):
    """Each leaves in another way: one ends, one hangs and is killed."""
    with temporary_database(database, PLACEMENT) as url, contextlib.ExitStack() as stack:
        serving = []

        def start(name):
            process = Process(tmp_path / name, url)
            stack.enter_context(process).start()
            serving.append(process.url)
            return process

        def leave(process):
            serving.remove(process.url)
            time.sleep(2.0)  # whoever is being answered by it

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
        calls = rush(serving, seed=FIRST_SEED, clients=6, pause_s=0.03, meanwhile=come_and_go)
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
        assert _somebody_is_to_blame(call, lives), f"{call}\n{again}"
    step = partial(_place, MOVED, CHILD)
    assert (found := violation(calls, ROOTS[0], step)) is None, f"{found}\n{again}"
    _check_that_much_happened(calls, least)


def _place(moved, child, root, call):
    return place_step(moved, child, root, call)


def _somebody_is_to_blame(call, lives):
    """If a claim of several consumers is refused, at least one of them had another generation."""
    if len(call.wishes) < 2 or "consumer generation conflict" not in call.refusal:
        return True  # for one consumer, `consumer_step` has checked it
    steps = {uuid: partial(consumer_step, uuid, accused=call) for uuid in call.wishes}
    return any(violation(lives[uuid], None, step) is None for uuid, step in steps.items())


def _check_that_much_happened(calls, least):
    """A rush shows nothing if every call is refused, or if no call conflicts with another."""
    accepted = Counter(call.kind for call in calls if call.accepted)
    assert {kind: accepted[kind] for kind, times in least.items() if accepted[kind] < times} == {}
    assert sum("generation conflict" in call.refusal for call in calls) >= 3
