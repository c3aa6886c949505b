"""The allowed operations on a server, cell by cell of the table that was measured on Nova."""

import pytest

from moorage.compute.model import lifecycle
from moorage.compute.model.lifecycle import AcceleratorAction, OperationOutcome, ServerSituation
from moorage.compute.model.servers import Locker, TaskState, VmState
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden

OWNER = Caller("alice", "red", frozenset({"member"}))
ADMIN = Caller("root", "admin", frozenset({"admin"}))


def server(vm_state, task_state=None, **more):
    return ServerSituation("u", vm_state, task_state, **({"host": "compute-1"} | more))


_DISK = {"active", "stopped", "paused", "suspended"}
#: From reference/compute.md 4.3: operation -> states it may begin in.
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
def test_an_operation_begins_in_its_states_only(operation):
    for state in VmState:
        if state in ALLOWED[operation]:
            lifecycle.check(operation, server(state), OWNER)
        else:
            with pytest.raises(Conflict) as refusal:
                lifecycle.check(operation, server(state), OWNER)
            expected = f"Cannot '{operation.name}' instance u while it is in vm_state {state}"
            assert refusal.value.message == expected


def test_a_busy_server_refuses_all_but_deletion():
    busy = server(VmState.ACTIVE, TaskState.POWERING_OFF)
    with pytest.raises(Conflict, match="while it is in task_state powering-off"):
        lifecycle.check(lifecycle.PAUSE, busy, OWNER)
    lifecycle.check(lifecycle.DELETE, busy, OWNER)
    lifecycle.check(lifecycle.REBOOT_HARD, server(VmState.ACTIVE, TaskState.REBOOTING), OWNER)


def test_a_locked_server_is_for_administrators():
    locked = server(VmState.ACTIVE, locked_by=Locker.OWNER)
    with pytest.raises(Conflict, match="Instance u is locked"):
        lifecycle.check(lifecycle.STOP, locked, OWNER)
    lifecycle.check(lifecycle.STOP, locked, ADMIN)


def test_an_owner_does_not_undo_an_administrators_lock():
    locked = server(VmState.ACTIVE, locked_by=Locker.ADMIN)
    with pytest.raises(Forbidden):
        lifecycle.check_unlock(locked, OWNER, may_override=False)
    lifecycle.check_unlock(locked, ADMIN, may_override=True)
    lifecycle.check_unlock(server(VmState.ACTIVE, locked_by=Locker.OWNER), OWNER, may_override=False)


def test_without_a_host_only_deletion_works():
    with pytest.raises(Conflict, match="it is on no host"):
        lifecycle.check(lifecycle.STOP, server(VmState.ERROR, host=None), OWNER)
    lifecycle.check(lifecycle.DELETE, server(VmState.ERROR, host=None), OWNER)


def test_reports_lead_to_the_next_state():
    def after(operation, state, *, succeeded=True):
        return lifecycle.after_report(operation, server(state, operation.task), succeeded=succeeded)

    assert after(lifecycle.CREATE, VmState.BUILDING) == OperationOutcome(VmState.ACTIVE, None, 1)
    assert after(lifecycle.CREATE, VmState.BUILDING, succeeded=False) == OperationOutcome(VmState.ERROR, None, None)
    assert after(lifecycle.STOP, VmState.ACTIVE) == OperationOutcome(VmState.STOPPED, None, 4)
    assert after(lifecycle.STOP, VmState.ACTIVE, succeeded=False) == OperationOutcome(VmState.ACTIVE, None, None)
    assert after(lifecycle.DELETE, VmState.ACTIVE) == OperationOutcome(VmState.ACTIVE, TaskState.DELETING, None)
    assert after(lifecycle.DELETE, VmState.ACTIVE, succeeded=False) == OperationOutcome(VmState.ERROR, None, None)


def test_a_report_that_comes_too_late_changes_nothing():
    deleting = server(VmState.BUILDING, TaskState.DELETING)
    assert lifecycle.after_report(lifecycle.CREATE, deleting, succeeded=True) is None
    assert lifecycle.after_report(lifecycle.DELETE, server(VmState.DELETED), succeeded=True) is None


def test_status_is_one_word_of_both_states():
    assert lifecycle.status(VmState.ACTIVE, TaskState.REBOOTING_HARD) == "HARD_REBOOT"
    assert lifecycle.status(VmState.STOPPED, TaskState.POWERING_ON) == "SHUTOFF"
    assert lifecycle.status(VmState.RESIZED, TaskState.RESIZE_REVERTING) == "REVERT_RESIZE"
    assert lifecycle.status(VmState.ERROR, TaskState.REBUILDING) == "REBUILD"
    assert {lifecycle.status(state, None) for state in VmState} == {
        "BUILD", "ACTIVE", "PAUSED", "SUSPENDED", "SHUTOFF", "RESCUE", "VERIFY_RESIZE", "SHELVED", "SHELVED_OFFLOADED",
        "SOFT_DELETED", "ERROR", "DELETED",
    }  # fmt: skip


def test_locked_its_disk_can_still_be_copied():
    locked = server(VmState.ACTIVE, locked_by=Locker.OWNER)
    lifecycle.check(lifecycle.SNAPSHOT, locked, OWNER)
    lifecycle.check(lifecycle.BACKUP, locked, OWNER)


def test_what_was_never_built_can_only_be_deleted():
    failed = server(VmState.ERROR, is_launched=False)
    with pytest.raises(Conflict, match="Cannot 'rebuild' instance u while it is in launched_at None"):
        lifecycle.check(lifecycle.REBUILD, failed, OWNER)
    lifecycle.check(lifecycle.DELETE, failed, OWNER)


def test_some_operations_end_where_they_began():
    assert lifecycle.REBUILD.after(VmState.STOPPED) is VmState.STOPPED
    assert lifecycle.REBUILD.after(VmState.ERROR) is VmState.ACTIVE
    assert lifecycle.SNAPSHOT.after(VmState.PAUSED) is VmState.PAUSED


def test_a_crash_dump_changes_nothing():
    """R48, A6 (accelerator-attach): devices are not affected, and nothing waits for them."""
    assert lifecycle.CRASH_DUMP.accelerators is AcceleratorAction.KEPT
    assert lifecycle.after_report(lifecycle.CRASH_DUMP, server(VmState.ACTIVE), succeeded=False) is None


def test_with_accelerators_it_does_not_go_live():
    """R50 (accelerator-attach)."""
    with pytest.raises(Forbidden, match="whose state cannot be migrated"):
        lifecycle.check(lifecycle.LIVE_MIGRATE, server(VmState.ACTIVE, has_accelerators=True), ADMIN)
    lifecycle.check(lifecycle.MIGRATE, server(VmState.ACTIVE, has_accelerators=True), ADMIN)


def test_each_kind_of_job_is_of_one_operation():
    assert len(lifecycle.BY_KIND) == sum(operation.kind is not None for operation in lifecycle.OPERATIONS)


def test_accelerators_come_with_the_build_and_go_with_the_deletion_only():
    """R33, R34, R35, R36, R37, R42, R43 (accelerator-attach): kept by every operation that leaves the server on its
    host.
    """
    by_effect = {effect: set() for effect in AcceleratorAction}
    for operation in lifecycle.OPERATIONS:
        by_effect[operation.accelerators].add(operation.kind)
    assert by_effect[AcceleratorAction.ATTACHED] == {"build", None}  # a move has no kind: unshelve
    assert by_effect[AcceleratorAction.RELEASED] == {"destroy", "offload"}
    assert {"start", "stop", "pause", "unpause", "suspend", "resume", "reboot", "reboot-hard", "rebuild"} <= by_effect[
        AcceleratorAction.KEPT
    ]
