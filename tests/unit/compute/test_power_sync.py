"""The effect of a domain's state on its server."""

from types import SimpleNamespace

import pytest

from moorage.compute.model.power_sync import POWERS, power_change
from moorage.compute.model.servers import PowerState, TaskState, VmState


def server(vm_state, power=PowerState.RUNNING, task=None):
    return SimpleNamespace(vm_state=vm_state, task_state=task, power_state=power, host="metal-1")


@pytest.mark.parametrize("state", [VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED])
def test_a_guest_that_went_off_is_stopped(state):
    change = power_change(server(state), "shutoff")
    assert (change.vm_state, change.power, change.error) == (VmState.STOPPED, PowerState.SHUTDOWN, None)


@pytest.mark.parametrize(
    "state", [VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED, VmState.STOPPED, VmState.RESCUED, VmState.SHELVED]
)
def test_a_domain_that_vanished_is_an_error_with_its_host(state):
    change = power_change(server(state), "gone")
    assert change.vm_state is VmState.ERROR
    assert "its domain vanished from host metal-1" in change.error


@pytest.mark.parametrize("seen", POWERS)
@pytest.mark.parametrize("task", TaskState)
def test_nothing_is_said_of_a_server_that_something_is_done_to(task, seen):
    assert power_change(server(VmState.ACTIVE, task=task), seen) is None


@pytest.mark.parametrize("seen", POWERS)
@pytest.mark.parametrize(
    "state",
    [
        VmState.BUILDING,
        VmState.ERROR,
        VmState.DELETED,
        VmState.SOFT_DELETED,
        VmState.SHELVED_OFFLOADED,
        VmState.RESIZED,
    ],
)
def test_nothing_is_said_of_a_server_that_has_no_domain_of_its_own(state, seen):
    assert power_change(server(state), seen) is None


def test_a_server_in_rescue_stays_in_rescue_when_its_guest_goes_off():
    change = power_change(server(VmState.RESCUED), "shutoff")
    assert (change.vm_state, change.power) == (VmState.RESCUED, PowerState.SHUTDOWN)


def test_a_guest_that_its_hypervisor_stopped_is_paused_and_one_that_goes_on_is_active():
    """QEMU stops a guest that writes to a full disk; when there is space, an operator unpauses the server."""
    stopped = power_change(server(VmState.ACTIVE), "paused")
    assert (stopped.vm_state, stopped.power, stopped.error) == (VmState.PAUSED, PowerState.PAUSED, None)
    again = power_change(server(VmState.PAUSED, PowerState.PAUSED), "running")
    assert (again.vm_state, again.power) == (VmState.ACTIVE, PowerState.RUNNING)


def test_what_is_as_it_should_be_changes_nothing():
    assert power_change(server(VmState.ACTIVE), "running") is None
    assert power_change(server(VmState.STOPPED, PowerState.SHUTDOWN), "shutoff") is None


def test_a_guest_that_somebody_started_by_hand_shows_its_power_only():
    change = power_change(server(VmState.STOPPED, PowerState.SHUTDOWN), "running")
    assert (change.vm_state, change.power) == (VmState.STOPPED, PowerState.RUNNING)
