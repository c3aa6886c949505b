"""The wait of a guest for its ports, with an imitated compute service."""

import pytest

from moorage.agent.jobs.plugged_ports import PluggedPorts
from moorage.agent.virt.driver import VirtError
from moorage.compute.client.values import ServerHere
from moorage.core.errors import Unavailable

SERVER = "aaaaaaaa-0000-4000-8000-000000000000"


class Compute:
    """Says that the port is plugged after `event_s`, and if it is asked to refresh after `refreshed_s`; None: never."""

    def __init__(self, clock, *, event_s=None, refreshed_s=None, error=None, is_here=True):
        self.clock, self.begin = clock, clock.now()
        self.event_s, self.refreshed_s, self.error, self.is_here = event_s, refreshed_s, error, is_here
        self.refreshes = []

    def server_here(self, host, server_id, *, refresh=False):
        assert (host, server_id) == ("metal-1", SERVER)
        elapsed_s = (self.clock.now() - self.begin).total_seconds()
        if refresh:
            self.refreshes.append(elapsed_s)
        if self.error is not None:
            raise self.error
        if not self.is_here:
            return None
        moments = (self.event_s, self.refreshed_s if refresh else None)
        is_plugged = any(moment is not None and elapsed_s >= moment for moment in moments)
        return ServerHere("web", "BUILD", () if is_plugged else ("port-1",))


def wait(clock, compute, timeout_s=300):
    begin = clock.now()
    PluggedPorts("metal-1", compute, clock, timeout_s).wait(SERVER)
    return (clock.now() - begin).total_seconds()


def test_a_guest_waits_until_neutron_has_said_that_its_ports_are_plugged(clock):
    compute = Compute(clock, event_s=3)
    assert (wait(clock, compute), compute.refreshes) == (3, [])


def test_neutron_is_asked_every_five_seconds_in_case_an_event_was_lost(clock):
    compute = Compute(clock, refreshed_s=12)
    assert (wait(clock, compute), compute.refreshes) == (15, [5, 10, 15])


def test_a_wait_ends_with_the_ports_and_the_remedy(clock):
    with pytest.raises(VirtError, match=r"has not plugged port-1 within 20 s; see the log of its agent on this host"):
        wait(clock, Compute(clock), 20)


@pytest.mark.parametrize("timeout_s", [0, 300])
def test_no_wait_for_a_server_of_another_host_or_without_a_timeout(clock, timeout_s):
    assert wait(clock, Compute(clock, is_here=timeout_s == 0), timeout_s) == 0


def test_a_compute_service_that_does_not_answer_is_asked_again_until_the_end(clock):
    with pytest.raises(VirtError, match="as far as compute says"):
        wait(clock, Compute(clock, error=Unavailable("compute does not answer")), 10)
