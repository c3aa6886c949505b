"""When a host that is down is dead."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from moorage.compute.agents.down_hosts import DeadHostsTask
from moorage.compute.deps import ComputeSettings
from moorage.compute.model.outages import OutageRecord, Outages
from moorage.core.clock import VirtualClock

START = datetime(2026, 3, 1, tzinfo=UTC)


class Watch(DeadHostsTask):
    """Checks one host, which is down from the start, and records when it was dead first."""

    def __init__(self):
        self.clock, self.outages = VirtualClock(START), Outages()
        deps = SimpleNamespace(clock=self.clock, outages=self.outages)
        hosts = SimpleNamespace(down_hosts=lambda: ["compute-1"])
        super().__init__(deps, ComputeSettings(up_window_s=60), hosts, None)
        self.dead_after = None

    def _end_open_jobs(self, host):
        if self.dead_after is None:
            self.dead_after = (self.clock.now() - START).total_seconds()

    def run(self, seconds, outage=None):
        """`outage`: (begin, end) in seconds after the start."""
        end = START + timedelta(seconds=seconds)
        while (now := self.clock.now()) < end:
            if outage is not None and (now - START).total_seconds() >= outage[1]:
                began, ended = (START + timedelta(seconds=each) for each in outage)
                self.outages.record = OutageRecord(now, ((began, ended),))
            self.clock.sleep((self.run_once() - now).total_seconds())
        return self.dead_after


def test_a_host_is_dead_if_it_was_down_for_a_while():
    assert Watch().run(300) == 60


@pytest.mark.parametrize(("outage", "least"), [((10, 50), 100), ((0, 200), 260), ((-50, 0), 60)])
def test_an_outage_of_compute_does_not_count(outage, least):
    """In an outage nobody checks; between two checks are 20 s."""
    watch = Watch()
    watch.run_once()
    watch.clock.sleep(max(0, outage[1]))
    assert least <= watch.run(400, outage) < least + 20
