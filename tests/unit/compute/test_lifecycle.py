"""The states in which each operation on a server is allowed, compared with the table that was measured on Nova."""

import pytest

from moorage.compute.model import lifecycle
from moorage.compute.model.lifecycle import AcceleratorAction, OperationOutcome, ServerSituation
from moorage.compute.model.servers import Locker, PowerState, TaskState, VmState
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden

OWNER = Caller("alice", "red", frozenset({"member"}))
ADMIN = Caller("root", "admin", frozenset({"admin"}))


def server(vm_state, task_state=None, **more):
    return ServerSituation("u", vm_state, task_state, **({"host": "compute-1"} | more))


_DISK = {"active", "stopped", "paused", "suspended"}
#: Operation -> states in which it may begin. From reference/compute.md 4.3; those of interfaces from Nova 34.0.0.
ALLOWED = {
    lifecycle.START: {"stopped"},
    lifecycle.STOP: {"active", "error"},
    lifecycle.PAUSE: {"active"},
    lifecycle.UNPAUSE: {"paused"},
    lifecycle.SUSPEND: {"active"},
    lifecycle.RESUME: {"suspended"},
    lifecycle.REBOOT: {"active"},
    lifecycle.REBOOT_HARD: _DISK | {"error"},
    lifecycle.REBUILD: {"active", "stopped", "error"},
    lifecycle.RESCUE: {"active", "stopped", "error"},
    lifecycle.UNRESCUE: {"rescued"},
    lifecycle.CHANGE_PASSWORD: {"active"},
    lifecycle.CRASH_DUMP: {"active", "paused", "rescued", "resized", "error"},
    lifecycle.ATTACH_INTERFACE: {"active", "stopped", "paused"},
    lifecycle.DETACH_INTERFACE: {"active", "stopped", "paused"},
    lifecycle.SNAPSHOT: _DISK,
    lifecycle.BACKUP: _DISK,
    lifecycle.RESTORE: {"soft-delete"},
    lifecycle.SHELVE: _DISK,
    lifecycle.SHELVE_OFFLOAD: {"shelved"},
    lifecycle.UNSHELVE: {"shelved"},
    lifecycle.UNSHELVE_OFFLOADED: {"shelved_offloaded"},
    lifecycle.RESIZE: {"active", "stopped"},
    lifecycle.MIGRATE: {"active", "stopped"},
    lifecycle.CONFIRM_RESIZE: {"resized"},
    lifecycle.REVERT_RESIZE: {"resized"},
    lifecycle.LIVE_MIGRATE: {"active", "paused"},
    lifecycle.EVACUATE: {"active", "stopped", "error"},
    lifecycle.DELETE: {state.value for state in VmState} - {"deleted"},
}


@pytest.mark.parametrize("operation", ALLOWED, ids=lambda operation: f"{operation.name}-{operation.task}")
def test_an_operation_is_allowed_only_in_its_states(operation):
    for state in VmState:
        if state in ALLOWED[operation]:
            lifecycle.check(operation, server(state), OWNER)
        else:
            with pytest.raises(Conflict) as refusal:
                lifecycle.check(operation, server(state), OWNER)
            expected = f"Cannot '{operation.name}' instance u while it is in vm_state {state}"
            assert refusal.value.message == expected


def test_a_server_with_a_task_refuses_operations_except_deletion_and_a_repeated_hard_reboot():
    busy = server(VmState.ACTIVE, TaskState.POWERING_OFF)
    with pytest.raises(Conflict, match="while it is in task_state powering-off"):
        lifecycle.check(lifecycle.PAUSE, busy, OWNER)
    lifecycle.check(lifecycle.DELETE, busy, OWNER)
    lifecycle.check(lifecycle.REBOOT_HARD, server(VmState.ACTIVE, TaskState.REBOOTING), OWNER)


def test_only_administrators_may_operate_a_locked_server():
    locked = server(VmState.ACTIVE, locked_by=Locker.OWNER)
    with pytest.raises(Conflict, match="Instance u is locked"):
        lifecycle.check(lifecycle.STOP, locked, OWNER)
    lifecycle.check(lifecycle.STOP, locked, ADMIN)


def test_an_owner_may_not_remove_the_lock_of_an_administrator():
    locked = server(VmState.ACTIVE, locked_by=Locker.ADMIN)
    with pytest.raises(Forbidden):
        lifecycle.check_unlock(locked, OWNER, may_override=False)
    lifecycle.check_unlock(locked, ADMIN, may_override=True)
    lifecycle.check_unlock(server(VmState.ACTIVE, locked_by=Locker.OWNER), OWNER, may_override=False)


def test_a_server_without_a_host_can_only_be_deleted():
    with pytest.raises(Conflict, match="it is on no host"):
        lifecycle.check(lifecycle.STOP, server(VmState.ERROR, host=None), OWNER)
    lifecycle.check(lifecycle.DELETE, server(VmState.ERROR, host=None), OWNER)


def test_the_report_of_an_operation_leads_to_its_next_state():
    def after(operation, state, *, succeeded=True):
        return lifecycle.after_report(operation, server(state, operation.task), succeeded=succeeded)

    assert after(lifecycle.CREATE, VmState.BUILDING) == OperationOutcome(VmState.ACTIVE, None, 1)
    assert after(lifecycle.CREATE, VmState.BUILDING, succeeded=False) == OperationOutcome(VmState.ERROR, None, None)
    assert after(lifecycle.STOP, VmState.ACTIVE) == OperationOutcome(VmState.STOPPED, None, 4)
    assert after(lifecycle.STOP, VmState.ACTIVE, succeeded=False) == OperationOutcome(VmState.ACTIVE, None, None)
    assert after(lifecycle.DELETE, VmState.ACTIVE) == OperationOutcome(VmState.ACTIVE, TaskState.DELETING, None)
    assert after(lifecycle.DELETE, VmState.ACTIVE, succeeded=False) == OperationOutcome(VmState.ERROR, None, None)


@pytest.mark.parametrize("state", [VmState.ACTIVE, VmState.STOPPED, VmState.PAUSED, VmState.RESCUED, VmState.SHELVED])
def test_a_server_whose_guest_is_gone_is_in_error(state):
    """A shelved one has none that matters: unshelving can be tried again."""

    def after(operation, **report):
        return lifecycle.after_report(operation, server(state, operation.task), **report)

    lost = OperationOutcome(VmState.ERROR, None, 0)
    unchanged = OperationOutcome(state, None, None)
    is_shelved = state is VmState.SHELVED
    assert after(lifecycle.REBOOT_HARD, succeeded=False, left=PowerState.NONE) == (unchanged if is_shelved else lost)
    assert after(lifecycle.REBOOT_HARD, succeeded=False) == unchanged


def test_a_server_that_could_not_be_shelved_or_started_again_is_in_error():
    running = server(VmState.ACTIVE, TaskState.SHELVING)
    failed = lifecycle.after_report(lifecycle.SHELVE, running, succeeded=False, left=PowerState.SHUTDOWN)
    assert failed == OperationOutcome(VmState.ERROR, None, 4)


def test_the_late_report_of_an_operation_changes_nothing():
    deleting = server(VmState.BUILDING, TaskState.DELETING)
    assert lifecycle.after_report(lifecycle.CREATE, deleting, succeeded=True) is None
    assert lifecycle.after_report(lifecycle.DELETE, server(VmState.DELETED), succeeded=True) is None


@pytest.mark.parametrize("state", [VmState.ACTIVE, VmState.ERROR])
def test_a_server_that_was_reset_keeps_its_state_unless_the_operation_has_broken_it(state):
    def after(operation, *, succeeded):
        return lifecycle.after_report(operation, server(state), succeeded=succeeded)

    assert after(lifecycle.CREATE, succeeded=True) == OperationOutcome(state, None, 1)
    assert after(lifecycle.CREATE, succeeded=False) == OperationOutcome(VmState.ERROR, None, None)
    assert after(lifecycle.REBUILD, succeeded=False) == OperationOutcome(VmState.ERROR, None, None)
    assert after(lifecycle.STOP, succeeded=True) is None
    assert after(lifecycle.STOP, succeeded=False) == OperationOutcome(state, None, None)


def test_the_status_follows_from_vm_state_and_task_state():
    assert lifecycle.status(VmState.ACTIVE, TaskState.REBOOTING_HARD) == "HARD_REBOOT"
    assert lifecycle.status(VmState.STOPPED, TaskState.POWERING_ON) == "SHUTOFF"
    assert lifecycle.status(VmState.RESIZED, TaskState.RESIZE_REVERTING) == "REVERT_RESIZE"
    assert lifecycle.status(VmState.ERROR, TaskState.REBUILDING) == "REBUILD"
    assert {lifecycle.status(state, None) for state in VmState} == {
        "BUILD", "ACTIVE", "PAUSED", "SUSPENDED", "SHUTOFF", "RESCUE", "VERIFY_RESIZE", "SHELVED", "SHELVED_OFFLOADED",
        "SOFT_DELETED", "ERROR", "DELETED",
    }  # fmt: skip


def test_a_locked_server_can_be_snapshotted_and_backed_up():
    locked = server(VmState.ACTIVE, locked_by=Locker.OWNER)
    lifecycle.check(lifecycle.SNAPSHOT, locked, OWNER)
    lifecycle.check(lifecycle.BACKUP, locked, OWNER)


def test_a_server_that_was_never_built_can_only_be_deleted():
    failed = server(VmState.ERROR, is_launched=False)
    with pytest.raises(Conflict, match="Cannot 'rebuild' instance u while it is in launched_at None"):
        lifecycle.check(lifecycle.REBUILD, failed, OWNER)
    lifecycle.check(lifecycle.DELETE, failed, OWNER)


def test_rebuild_and_snapshot_end_in_the_state_in_which_they_began():
    assert lifecycle.REBUILD.after(VmState.STOPPED) is VmState.STOPPED
    assert lifecycle.REBUILD.after(VmState.ERROR) is VmState.ACTIVE
    assert lifecycle.SNAPSHOT.after(VmState.PAUSED) is VmState.PAUSED


def test_a_crash_dump_changes_neither_state_nor_devices():
    """R48, A6 (accelerator-attach)."""
    assert lifecycle.CRASH_DUMP.accelerators is AcceleratorAction.KEPT
    assert lifecycle.after_report(lifecycle.CRASH_DUMP, server(VmState.ACTIVE), succeeded=False) is None


@pytest.mark.parametrize(
    "operation",
    [one for one in lifecycle.OPERATIONS if one is not lifecycle.LIVE_MIGRATE],
    ids=lambda operation: operation.key,
)
def test_no_other_operation_is_refused_for_a_server_with_accelerators(operation):
    """R34, R35, R44, R50 (accelerator-attach)."""
    for state in operation.allowed:
        lifecycle.check(operation, server(state, has_accelerators=True), ADMIN)


def test_a_server_with_accelerators_cannot_be_live_migrated():
    """R50 (accelerator-attach)."""
    with pytest.raises(Forbidden, match="whose state cannot be migrated"):
        lifecycle.check(lifecycle.LIVE_MIGRATE, server(VmState.ACTIVE, has_accelerators=True), ADMIN)
    lifecycle.check(lifecycle.MIGRATE, server(VmState.ACTIVE, has_accelerators=True), ADMIN)


def test_each_kind_of_job_belongs_to_one_operation():
    assert len(lifecycle.BY_KIND) == sum(operation.kind is not None for operation in lifecycle.OPERATIONS)


def test_the_effect_of_each_operation_on_devices():
    """R33, R34, R35, R36, R37, R39, R40, R41, R42, R43, R44, R45, R46, R47, R48, R49, R51, A6 (accelerator-attach)."""
    by_effect = {effect: set() for effect in AcceleratorAction}
    for operation in lifecycle.OPERATIONS:
        by_effect[operation.accelerators].add(operation.key)
    assert by_effect == {
        AcceleratorAction.ATTACHED: {"POST /servers", "unshelve (offloaded)"},
        AcceleratorAction.RELEASED: {"DELETE, forceDelete", "shelveOffload"},
        AcceleratorAction.REATTACHED: {"resize", "migrate", "revertResize", "evacuate"},
        AcceleratorAction.REFUSED: {"os-migrateLive"},
        AcceleratorAction.KEPT: {
            "DELETE", "restore", "os-start", "os-stop", "pause", "unpause", "suspend", "resume", "reboot SOFT",
            "reboot HARD", "rebuild", "rescue", "unrescue", "changePassword", "trigger_crash_dump", "POST os-interface",
            "DELETE os-interface", "createImage", "createBackup", "shelve", "unshelve (on its host)", "confirmResize",
        },
    }  # fmt: skip
