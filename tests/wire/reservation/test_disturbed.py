"""Kills a process, or lets another service fail, at every step and every request of each operation of a lease.

A run tries some points; with ``EXPLORE=1`` it tries all. Each case runs in a separate process, which forks the process
that dies.
"""

import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.wire.reservation import disturbed

pytestmark = pytest.mark.slow

OPERATIONS = ("create", "start", "starts", "update", "end", "delete", "heal")
MISHAPS = ("503", "409", "silence", "lost")
ALL = bool(os.environ.get("EXPLORE"))
#: Number of points of each operation that a run without ``EXPLORE=1`` tries.
SAMPLE = 2


@pytest.fixture(scope="module")
def case():
    """Runs a function of `disturbed` in a process without threads, because a fork could inherit a lock of a thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.wire.reservation.disturbed"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


@pytest.fixture(scope="module")
def known(case, tmp_path_factory):
    """{operation: `Outcome` of its undisturbed run}"""
    return {name: case(disturbed.undisturbed, name, str(tmp_path_factory.mktemp(name))) for name in OPERATIONS}


def chosen(operation, kind, points):
    return points if ALL else random.Random(f"{operation} {kind}").sample(points, min(SAMPLE, len(points)))


def in_order(wanted, found):
    """Whether the changes of the undisturbed run have its order; changes that undo others may occur between them."""
    return [each for each in found if each in wanted] == [each for each in wanted if each in found]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_sigkill_at_every_step_and_request(operation, case, known, tmp_path_factory):
    """E3, D7: a process is killed before and after each transaction and each request; two others continue."""
    for point in chosen(operation, "killed", known[operation].points):
        order = case(disturbed.killed, operation, str(tmp_path_factory.mktemp("killed")), point)
        assert in_order(known[operation].order, order), (point, order)


def changes_meanwhile(point):
    """Whether a 409 at this point means a concurrent change.

    Compute answers a POST with 409 if the object exists, so these points are excluded.
    """
    method, path = point.split()[2:4]
    return method == "DELETE" or (method in ("PUT", "POST") and path.startswith("placement/"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_other_services_fail_at_every_request(operation, case, known, tmp_path_factory):
    """E4, D8: each fault occurs once, or more times than a client repeats a request."""
    requests = [each for each in known[operation].points if each.startswith("before ")]
    cases = [
        (point, kind, times)
        for point in requests
        for kind in MISHAPS
        for times in (1, 6)
        if kind != "409" or changes_meanwhile(point)
    ]
    for point, kind, times in chosen(operation, "mishap", cases):
        order = case(disturbed.mishap, operation, str(tmp_path_factory.mktemp("mishap")), point, kind, times)
        assert in_order(known[operation].order, order), (point, kind, times, order)


def test_every_commit_and_every_request_is_a_point(known):
    """The points include the commits and the requests to both other services."""
    for operation, outcome in known.items():
        kinds = {point.split()[0] for point in outcome.points}
        assert kinds == {"begin", "commit", "before", "after"}, operation
        assert len(outcome.order) >= (1 if operation == "update" else 2), (operation, outcome.order)
