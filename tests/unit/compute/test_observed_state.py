"""The effect of the power state that a host reports on the state of the server."""

from types import SimpleNamespace

import pytest

from moorage.compute.model.observed_state import POWERS, power_change
from moorage.compute.model.servers import PowerState, TaskState, VmState


def server(vm_state, power=PowerState.RUNNING, task=None):
    return SimpleNamespace(vm_state=vm_state, task_state=task, power_state=power, host="metal-1")


@pytest.mark.parametrize("state", [VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED])
def test_a_server_whose_guest_shut_down_becomes_stopped(state):
    change = power_change(server(state), "shutoff")
    assert (change.vm_state, change.power, change.error) == (VmState.STOPPED, PowerState.SHUTDOWN, None)


@pytest.mark.parametrize(
    "state", [VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED, VmState.STOPPED, VmState.RESCUED, VmState.SHELVED]
)
def test_a_server_whose_domain_is_missing_is_in_error_with_the_name_of_the_host(state):
    change = power_change(server(state), "gone")
    assert change.vm_state is VmState.ERROR
    assert "its domain vanished from host metal-1" in change.error


@pytest.mark.parametrize("seen", POWERS)
@pytest.mark.parametrize("task", TaskState)
def test_a_server_with_a_task_is_not_changed(task, seen):
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
def test_a_server_in_a_state_without_its_own_domain_is_not_changed(state, seen):
    assert power_change(server(state), seen) is None


def test_a_rescued_server_whose_guest_shut_down_stays_rescued():
    change = power_change(server(VmState.RESCUED), "shutoff")
    assert (change.vm_state, change.power) == (VmState.RESCUED, PowerState.SHUTDOWN)


def test_a_server_whose_guest_was_paused_or_resumed_by_the_hypervisor_becomes_paused_or_active():
    """QEMU stops a guest that writes to a full disk; when there is space, an operator unpauses the server."""
    stopped = power_change(server(VmState.ACTIVE), "paused")
    assert (stopped.vm_state, stopped.power, stopped.error) == (VmState.PAUSED, PowerState.PAUSED, None)
    again = power_change(server(VmState.PAUSED, PowerState.PAUSED), "running")
    assert (again.vm_state, again.power) == (VmState.ACTIVE, PowerState.RUNNING)


def test_a_server_whose_power_state_agrees_is_not_changed():
    assert power_change(server(VmState.ACTIVE), "running") is None
    assert power_change(server(VmState.STOPPED, PowerState.SHUTDOWN), "shutoff") is None


def test_a_stopped_server_whose_guest_was_started_by_hand_changes_only_its_power_state():
    change = power_change(server(VmState.STOPPED, PowerState.SHUTDOWN), "running")
    assert (change.vm_state, change.power) == (VmState.STOPPED, PowerState.RUNNING)
