"""Hints over three nodes of RabbitMQ, one of which dies. Only in `make test-brokers`: each node takes some 5 s of CPU to
start.
"""

import contextlib
import os
import time

import pytest

from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import open_hints
from tests.clusters import RabbitCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rabbit,
    pytest.mark.skipif(
        not os.environ.get("MOORAGE_TEST_BROKERS"), reason="three nodes of RabbitMQ start only in make test-brokers"
    ),
]

PATIENCE_S = 60.0
#: A connection that breaks is replaced by one to the next host after 0.2 s; the machine may be busy.
WITHOUT_HINTS_S = 10.0


def hear(sending, woken):
    """Sends hints until five have arrived; returns the seconds. A new connection of the listener wakes once, too."""
    began = time.monotonic()
    for _ in range(5):
        woken.clear()
        while not woken.wait(0.05):
            assert time.monotonic() - began < PATIENCE_S
            sending.send("compute-1")
    return time.monotonic() - began


def test_hints_flow_after_the_death_of_each_node_of_a_cluster():
    """The sender is connected to the first node and the listener to the second one."""
    with RabbitCluster() as cluster, contextlib.ExitStack() as stack:
        ours, theirs = Wakeups(), Wakeups()
        woken = theirs.listen("compute-1")
        sending, listening = (
            stack.enter_context(contextlib.closing(open_hints(cluster.url(first), wakeups)))
            for first, wakeups in ((0, ours), (1, theirs))
        )
        assert listening.listening.wait(PATIENCE_S)
        hear(sending, woken)
        took = {}
        for node in cluster.nodes:
            node.kill()
            took[node.directory.name] = hear(sending, woken)
            cluster.start(node)
            hear(sending, woken)
        assert all(seconds < WITHOUT_HINTS_S for seconds in took.values()), took
