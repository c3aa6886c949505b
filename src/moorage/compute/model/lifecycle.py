"""The life cycle of a server: the states in which each operation may begin, the task state during it, and the state at
its end.

`OPERATIONS` is the table; docs/reference/server-operations.md is generated from it.

Spec: docs/evidence/specs/accelerator-attach.md (the operations' effect on accelerators)

Source of states, refusals and codes: the Compute API reference, and each cell tried on Nova 34.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from moorage.compute.model.servers import Locker, PowerState, TaskState, VmState
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden
from moorage.core.states import transition_table
from moorage.jobs.contract import JobKind


class AcceleratorAction(StrEnum):
    """The effect of an operation on the accelerators attached to the server."""

    ATTACHED = "attached"
    KEPT = "kept"
    RELEASED = "released"
    REATTACHED = "released, then attached on the new host"
    REFUSED = "refused for a server with accelerators"


class HostDies(StrEnum):
    """The effect on an operation if its host dies before the end of the operation: see `down_hosts`, and for moves
    `migration_workflow`.
    """

    #: The host runs the server: the operation waits; the server can be evacuated, deleted, or have its state reset.
    WAITS = "waits for the host"
    ELSEWHERE = "retried on another host, else ERROR"
    AT_ONCE = "completed without the host"
    #: The state changes at once; the host does the rest when it is back, before any later job.
    RECORDED = "state changes at once; the host follows when it is back"
    MOVES = "see moves"
    NO_HOST = "needs no host"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation, carried out by a host or, for a move, as steps of several hosts (`migration_workflow`)."""

    name: str  #: in refusals and in ``os-instance-actions``
    key: str  #: the key in the body of the action, or the request
    kind: JobKind | None  #: unique kind of the host's job; None for a move, whose steps have kinds
    event: str  #: in ``os-instance-actions``
    allowed: frozenset[VmState]
    task: TaskState | None  #: task state meanwhile; None: none is shown, and the operation changes no state
    ends: VmState
    accelerators: AcceleratorAction
    code: int = 202  #: HTTP status of the answer
    #: States that remain unchanged instead of becoming `ends`.
    stays: frozenset[VmState] = frozenset()
    #: Task states during which it may begin; all others forbid it.
    tolerates: frozenset[TaskState] = frozenset()
    #: State after a failure on the host; None: unchanged.
    fails: VmState | None = None
    ignores_lock: bool = False
    needs_launch: bool = True  #: only for servers whose build has succeeded once
    needs_host: bool = True
    host_dies: HostDies = HostDies.WAITS
    #: The capability that the hypervisor needs: `moorage.agent.virt.driver.Capability`.
    capability: str | None = None
    refuses_device_ports: bool = False  #: for a server with a port that is a function of a network card

    @property
    def job_kind(self) -> JobKind:
        """Raises `TypeError` for a move."""
        if self.kind is None:
            raise TypeError(f"{self.name} has no job of its own: its steps have jobs")
        return self.kind

    def after(self, before: VmState) -> VmState:
        return before if before in self.stays else self.ends


_ACTIVE, _STOPPED, _PAUSED, _ERROR = VmState.ACTIVE, VmState.STOPPED, VmState.PAUSED, VmState.ERROR
_SUSPENDED, _RESCUED, _RESIZED = VmState.SUSPENDED, VmState.RESCUED, VmState.RESIZED
_ANY = frozenset(VmState) - {VmState.DELETED}
_WITH_A_DISK = frozenset({_ACTIVE, _STOPPED, _PAUSED, _SUSPENDED})
_WITH_A_GUEST = _WITH_A_DISK | {VmState.RESCUED}
_WITH_INTERFACES = frozenset({_ACTIVE, _STOPPED, _PAUSED})
_KEPT = AcceleratorAction.KEPT

CREATE = Operation(
    name="create", key="POST /servers", kind=JobKind.BUILD, event="compute__do_build_and_run_instance",
    allowed=frozenset({VmState.BUILDING}), task=TaskState.SPAWNING, ends=_ACTIVE, fails=_ERROR,
    accelerators=AcceleratorAction.ATTACHED, needs_launch=False, needs_host=False,
    host_dies=HostDies.ELSEWHERE,
)  # fmt: skip
DELETE = Operation(
    name="delete", key="DELETE, forceDelete", kind=JobKind.DESTROY, event="compute_terminate_instance", code=204,
    allowed=_ANY, task=TaskState.DELETING, tolerates=frozenset(TaskState), ends=VmState.DELETED, fails=_ERROR,
    accelerators=AcceleratorAction.RELEASED, needs_launch=False, needs_host=False,
    host_dies=HostDies.AT_ONCE,
)  # fmt: skip
#: A deletion if the operator keeps deleted servers for a while. They keep their allocations, because a restored server
#: starts on its host. The accelerator specification's "restore" is `UNSHELVE` here.
SOFT_DELETE = Operation(
    name="delete", key="DELETE", kind=JobKind.SOFT_DELETE, event="compute_soft_delete_instance", code=204,
    allowed=_ANY - {VmState.SHELVED_OFFLOADED, _RESIZED}, task=TaskState.SOFT_DELETING, tolerates=frozenset(TaskState),
    ends=VmState.SOFT_DELETED, fails=_ERROR, accelerators=_KEPT,
    host_dies=HostDies.RECORDED,
)  # fmt: skip
RESTORE = Operation(
    name="restore", key="restore", kind=JobKind.RESTORE, event="compute_restore_instance",
    allowed=frozenset({VmState.SOFT_DELETED}), task=TaskState.RESTORING, ends=_ACTIVE, accelerators=_KEPT,
    host_dies=HostDies.RECORDED,
)  # fmt: skip
START = Operation(
    name="start", key="os-start", kind=JobKind.START, event="compute_start_instance",
    allowed=frozenset({_STOPPED}), task=TaskState.POWERING_ON, ends=_ACTIVE, accelerators=_KEPT,
)  # fmt: skip
STOP = Operation(
    name="stop", key="os-stop", kind=JobKind.STOP, event="compute_stop_instance",
    allowed=frozenset({_ACTIVE, _ERROR}), task=TaskState.POWERING_OFF, ends=_STOPPED, accelerators=_KEPT,
)  # fmt: skip
PAUSE = Operation(
    name="pause", key="pause", kind=JobKind.PAUSE, event="compute_pause_instance",
    allowed=frozenset({_ACTIVE}), task=TaskState.PAUSING, ends=_PAUSED, accelerators=_KEPT,
)  # fmt: skip
UNPAUSE = Operation(
    name="unpause", key="unpause", kind=JobKind.UNPAUSE, event="compute_unpause_instance",
    allowed=frozenset({_PAUSED}), task=TaskState.UNPAUSING, ends=_ACTIVE, accelerators=_KEPT,
)  # fmt: skip
# Nova refuses to suspend a server with accelerators; the specification requires them to stay attached.
SUSPEND = Operation(
    name="suspend", key="suspend", kind=JobKind.SUSPEND, event="compute_suspend_instance",
    allowed=frozenset({_ACTIVE}), task=TaskState.SUSPENDING, ends=_SUSPENDED, accelerators=_KEPT, capability="suspend",
    refuses_device_ports=True,
)  # fmt: skip
RESUME = Operation(
    name="resume", key="resume", kind=JobKind.RESUME, event="compute_resume_instance",
    allowed=frozenset({_SUSPENDED}), task=TaskState.RESUMING, ends=_ACTIVE, accelerators=_KEPT,
)  # fmt: skip
REBOOT = Operation(
    name="reboot", key="reboot SOFT", kind=JobKind.REBOOT, event="compute_reboot_instance",
    allowed=frozenset({_ACTIVE}), task=TaskState.REBOOTING, ends=_ACTIVE, accelerators=_KEPT,
)  # fmt: skip
REBOOT_HARD = Operation(
    name="reboot", key="reboot HARD", kind=JobKind.REBOOT_HARD, event="compute_reboot_instance",
    allowed=_WITH_A_DISK | {_ERROR}, task=TaskState.REBOOTING_HARD,
    tolerates=frozenset({TaskState.REBOOTING, TaskState.REBOOTING_HARD}), ends=_ACTIVE, accelerators=_KEPT,
)  # fmt: skip
REBUILD = Operation(
    name="rebuild", key="rebuild", kind=JobKind.REBUILD, event="compute_rebuild_instance",
    allowed=frozenset({_ACTIVE, _STOPPED, _ERROR}), task=TaskState.REBUILDING, ends=_ACTIVE,
    stays=frozenset({_STOPPED}), fails=_ERROR, accelerators=_KEPT,
)  # fmt: skip
RESCUE = Operation(
    name="rescue", key="rescue", kind=JobKind.RESCUE, event="compute_rescue_instance", code=200,
    allowed=frozenset({_ACTIVE, _STOPPED, _ERROR}), task=TaskState.RESCUING, ends=_RESCUED,
    accelerators=_KEPT, capability="rescue",
)  # fmt: skip
UNRESCUE = Operation(
    name="unrescue", key="unrescue", kind=JobKind.UNRESCUE, event="compute_unrescue_instance",
    allowed=frozenset({_RESCUED}), task=TaskState.UNRESCUING, ends=_ACTIVE, accelerators=_KEPT,
)  # fmt: skip
CHANGE_PASSWORD = Operation(
    name="changePassword", key="changePassword", kind=JobKind.SET_PASSWORD, event="compute_set_admin_password",
    allowed=frozenset({_ACTIVE}), task=TaskState.UPDATING_PASSWORD, ends=_ACTIVE,
    accelerators=_KEPT, capability="set-password",
)  # fmt: skip
CRASH_DUMP = Operation(
    name="trigger_crash_dump", key="trigger_crash_dump", kind=JobKind.CRASH_DUMP, event="compute_trigger_crash_dump",
    allowed=frozenset({_ACTIVE, _PAUSED, _RESCUED, _RESIZED, _ERROR}), task=None, ends=_ACTIVE, stays=_ANY,
    accelerators=_KEPT, capability="crash-dump",
)  # fmt: skip
# Nova attaches before it answers, and shows no task. Here the task keeps other operations away until the host has done
# it; further interfaces may be attached or detached meanwhile.
ATTACH_INTERFACE = Operation(
    name="attach_interface", key="POST os-interface", kind=JobKind.ATTACH_INTERFACE, event="compute_attach_interface",
    code=200, allowed=_WITH_INTERFACES, task=TaskState.NETWORKING, tolerates=frozenset({TaskState.NETWORKING}),
    ends=_ACTIVE, stays=_WITH_INTERFACES, accelerators=_KEPT, capability="attach-interface",
)  # fmt: skip
DETACH_INTERFACE = Operation(
    name="detach_interface", key="DELETE os-interface", kind=JobKind.DETACH_INTERFACE,
    event="compute_detach_interface",
    allowed=_WITH_INTERFACES, task=TaskState.NETWORKING, tolerates=frozenset({TaskState.NETWORKING}),
    ends=_ACTIVE, stays=_WITH_INTERFACES, accelerators=_KEPT, capability="attach-interface",
)  # fmt: skip
#: For a port that the network service does not have any more: the guest must lose it.
LOSE_INTERFACE = replace(DETACH_INTERFACE, allowed=_WITH_INTERFACES | {_ERROR, _RESCUED, _RESIZED}, ignores_lock=True)
#: In which a guest runs.
RUNNING_STATES = frozenset({_ACTIVE, _RESCUED, _RESIZED})
SNAPSHOT = Operation(
    name="createImage", key="createImage", kind=JobKind.SNAPSHOT, event="compute_snapshot_instance",
    allowed=_WITH_A_DISK, task=TaskState.IMAGE_SNAPSHOT, ends=_ACTIVE, stays=_WITH_A_DISK, ignores_lock=True,
    accelerators=_KEPT, capability="snapshot",
)  # fmt: skip
BACKUP = Operation(
    name="createBackup", key="createBackup", kind=JobKind.BACKUP, event="compute_backup_instance",
    allowed=_WITH_A_DISK, task=TaskState.IMAGE_BACKUP, ends=_ACTIVE, stays=_WITH_A_DISK, ignores_lock=True,
    accelerators=_KEPT, capability="snapshot",
)  # fmt: skip

# The specification releases accelerators at shelve; as in Nova, a shelved server keeps them until it is offloaded.
SHELVE = Operation(
    name="shelve", key="shelve", kind=JobKind.SHELVE, event="compute_shelve_instance",
    allowed=_WITH_A_DISK, task=TaskState.SHELVING, ends=VmState.SHELVED, accelerators=_KEPT, capability="snapshot",
)  # fmt: skip
SHELVE_OFFLOAD = Operation(
    name="shelveOffload", key="shelveOffload", kind=JobKind.OFFLOAD, event="compute_shelve_offload_instance",
    allowed=frozenset({VmState.SHELVED}), task=TaskState.SHELVING_OFFLOADING, ends=VmState.SHELVED_OFFLOADED,
    accelerators=AcceleratorAction.RELEASED,
    host_dies=HostDies.AT_ONCE,
)  # fmt: skip
UNSHELVE = Operation(
    name="unshelve", key="unshelve (on its host)", kind=JobKind.UNSHELVE, event="compute_unshelve_instance",
    allowed=frozenset({VmState.SHELVED}), task=TaskState.UNSHELVING, ends=_ACTIVE, accelerators=_KEPT,
)  # fmt: skip
UNSHELVE_OFFLOADED = Operation(
    name="unshelve", key="unshelve (offloaded)", kind=None, event="compute_unshelve_instance",
    allowed=frozenset({VmState.SHELVED_OFFLOADED}), task=TaskState.UNSHELVING, ends=_ACTIVE,
    accelerators=AcceleratorAction.ATTACHED, needs_host=False,
    host_dies=HostDies.MOVES,
)  # fmt: skip
RESIZE = Operation(
    name="resize", key="resize", kind=None, event="compute_prep_resize",
    allowed=frozenset({_ACTIVE, _STOPPED}), task=TaskState.RESIZE_PREP, ends=_RESIZED,
    accelerators=AcceleratorAction.REATTACHED, capability="snapshot",
    host_dies=HostDies.MOVES,
)  # fmt: skip
MIGRATE = Operation(
    name="migrate", key="migrate", kind=None, event="compute_prep_resize",
    allowed=frozenset({_ACTIVE, _STOPPED}), task=TaskState.RESIZE_PREP, ends=_RESIZED,
    accelerators=AcceleratorAction.REATTACHED, capability="snapshot",
    host_dies=HostDies.MOVES,
)  # fmt: skip
CONFIRM_RESIZE = Operation(
    name="confirmResize", key="confirmResize", kind=None, event="compute_confirm_resize", code=204,
    allowed=frozenset({_RESIZED}), task=None, ends=_ACTIVE, accelerators=_KEPT,
    host_dies=HostDies.NO_HOST,
)  # fmt: skip
REVERT_RESIZE = Operation(
    name="revertResize", key="revertResize", kind=None, event="compute_revert_resize",
    allowed=frozenset({_RESIZED}), task=TaskState.RESIZE_REVERTING, ends=_ACTIVE,
    accelerators=AcceleratorAction.REATTACHED,
    host_dies=HostDies.MOVES,
)  # fmt: skip
EVACUATE = Operation(
    name="evacuate", key="evacuate", kind=None, event="compute_rebuild_instance", code=200,
    allowed=frozenset({_ACTIVE, _STOPPED, _ERROR}), task=TaskState.REBUILDING, tolerates=frozenset(TaskState),
    ends=_STOPPED, fails=_ERROR, accelerators=AcceleratorAction.REATTACHED,
    host_dies=HostDies.MOVES,
)  # fmt: skip
LIVE_MIGRATE = Operation(
    name="os-migrateLive", key="os-migrateLive", kind=None, event="compute_live_migration",
    allowed=frozenset({_ACTIVE, _PAUSED}), task=TaskState.MIGRATING, ends=_ACTIVE, stays=frozenset({_PAUSED}),
    accelerators=AcceleratorAction.REFUSED, capability="live-migration",
    host_dies=HostDies.MOVES,
)  # fmt: skip

OPERATIONS = (
    CREATE, DELETE, SOFT_DELETE, RESTORE, START, STOP, PAUSE, UNPAUSE, SUSPEND, RESUME, REBOOT, REBOOT_HARD, REBUILD,
    RESCUE, UNRESCUE, CHANGE_PASSWORD, CRASH_DUMP, ATTACH_INTERFACE, DETACH_INTERFACE,
    SNAPSHOT, BACKUP, SHELVE, SHELVE_OFFLOAD, UNSHELVE,
    UNSHELVE_OFFLOADED, RESIZE, MIGRATE, CONFIRM_RESIZE, REVERT_RESIZE, EVACUATE, LIVE_MIGRATE,
)  # fmt: skip

#: The operation of each kind of host job.
BY_KIND: Mapping[JobKind, Operation] = {operation.kind: operation for operation in OPERATIONS if operation.kind}

#: The transitions by the operations above and by an administrator's os-resetState.
SERVER_STATES = transition_table(
    "a server",
    {
        state: {operation.after(state) for operation in OPERATIONS if state in operation.allowed}
        | {operation.fails for operation in OPERATIONS if state in operation.allowed and operation.fails}
        | {VmState.ACTIVE, VmState.ERROR}
        for state in sorted(_ANY)
    },
)

POWER_STATES: Mapping[VmState, int] = {
    VmState.BUILDING: PowerState.NONE,
    VmState.ACTIVE: PowerState.RUNNING,
    VmState.PAUSED: PowerState.PAUSED,
    VmState.SUSPENDED: PowerState.SUSPENDED,
    VmState.STOPPED: PowerState.SHUTDOWN,
    VmState.RESCUED: PowerState.RUNNING,
    VmState.RESIZED: PowerState.RUNNING,
    VmState.SHELVED: PowerState.SHUTDOWN,
    VmState.SHELVED_OFFLOADED: PowerState.SHUTDOWN,
    VmState.SOFT_DELETED: PowerState.SHUTDOWN,
    VmState.DELETED: PowerState.NONE,
}


@dataclass(frozen=True)
class ServerSituation:
    """The values of a server that determine which operations may begin."""

    id: str
    vm_state: VmState
    task_state: TaskState | None
    host: str | None
    locked_by: Locker | None = None
    is_launched: bool = True
    has_accelerators: bool = False
    has_device_ports: bool = False


@dataclass(frozen=True)
class OperationOutcome:
    """The state after a report from the host. `power` None: unchanged."""

    vm_state: VmState
    task_state: TaskState | None
    power: int | None


def check(operation: Operation, server: ServerSituation, caller: Caller) -> None:
    """Raises `Conflict` if `operation` may not begin now, `Forbidden` if it never may."""
    check_lock(operation, server, caller)
    if server.vm_state not in operation.allowed:
        raise _wrong_state(operation.name, server.id, "vm_state", server.vm_state)
    if server.task_state is not None and server.task_state not in operation.tolerates:
        raise _wrong_state(operation.name, server.id, "task_state", server.task_state)
    if server.host is None and operation.needs_host:
        raise Conflict(f"Instance {server.id} is not ready: it is on no host")
    if not server.is_launched and operation.needs_launch:
        raise _wrong_state(operation.name, server.id, "launched_at", "None")
    if server.has_accelerators and operation.accelerators is AcceleratorAction.REFUSED:
        raise Forbidden(
            f"Cannot '{operation.name}' instance {server.id}: it has accelerators, whose state cannot be migrated. "
            "Migrate it cold.",
            code="compute.has_accelerators",
        )
    if server.has_device_ports and operation.refuses_device_ports:
        raise Forbidden(
            f"Cannot '{operation.name}' instance {server.id}: it has a port with a device profile, and the state of "
            "the network card cannot be saved. Stop it.",
            code="compute.has_accelerators",
        )


def check_lock(operation: Operation, server: ServerSituation, caller: Caller) -> None:
    if server.locked_by is not None and not caller.is_admin and not operation.ignores_lock:
        raise Conflict(f"Instance {server.id} is locked")


def check_unlock(server: ServerSituation, caller: Caller, *, may_override: bool) -> None:
    """An owner cannot remove an administrator's lock."""
    if server.locked_by is Locker.ADMIN and not may_override:
        raise Forbidden("Policy doesn't allow os_compute_api:os-lock-server:unlock:unlock_override to be performed.")


def after_report(
    operation: Operation, server: ServerSituation, *, succeeded: bool, left: int | None = None
) -> OperationOutcome | None:
    """The outcome of a report on `operation`; None: no change, because another operation has begun since.

    `left`: the power state in which a failed operation has left the guest: NONE if there is none, SHUTDOWN if it could
    not be started again; None: as it was.

    While a server is being deleted, only the report on its destruction changes anything: that job comes next and
    decides. A destroyed server is gone, and an offloaded one has no guest on its host, even if another operation was
    tried meanwhile. A server without a task has been reset by an administrator during the operation: it keeps its new
    state, unless the operation has broken it.
    """
    if server.vm_state is VmState.DELETED or operation.task is None:
        return None
    if succeeded and operation is DELETE:
        return OperationOutcome(server.vm_state, TaskState.DELETING, None)  # DELETED once its allocation is released
    was_reset = server.task_state is None and (operation is CREATE or not succeeded)
    is_being_deleted = server.task_state in (DELETE.task, SOFT_DELETE.task)
    has_left = succeeded and operation is SHELVE_OFFLOAD and not is_being_deleted
    if server.task_state is not operation.task and not was_reset and not has_left:
        return None
    if not succeeded and left is not None and server.vm_state in _WITH_A_GUEST:
        return OperationOutcome(VmState.ERROR, None, left)
    if not succeeded:
        return OperationOutcome(operation.fails or server.vm_state, None, None)
    after = operation.after(server.vm_state)
    return OperationOutcome(server.vm_state if was_reset else after, None, POWER_STATES.get(after))


def status(vm_state: VmState, task_state: TaskState | None) -> str:
    """The status that the Compute API derives from both states."""
    return (task_state and _BUSY.get((vm_state, task_state))) or STATUSES[vm_state]


STATUSES: Mapping[VmState, str] = {
    VmState.BUILDING: "BUILD",
    VmState.ACTIVE: "ACTIVE",
    VmState.PAUSED: "PAUSED",
    VmState.SUSPENDED: "SUSPENDED",
    VmState.STOPPED: "SHUTOFF",
    VmState.RESCUED: "RESCUE",
    VmState.RESIZED: "VERIFY_RESIZE",
    VmState.SHELVED: "SHELVED",
    VmState.SHELVED_OFFLOADED: "SHELVED_OFFLOADED",
    VmState.SOFT_DELETED: "SOFT_DELETED",
    VmState.ERROR: "ERROR",
    VmState.DELETED: "DELETED",
}

#: (status, task states, vm_states in which these task states show this status)
_WORDS: tuple[tuple[str, tuple[TaskState, ...], tuple[VmState, ...]], ...] = (
    ("REBOOT", (TaskState.REBOOTING,), (_ACTIVE,)),
    ("HARD_REBOOT", (TaskState.REBOOTING_HARD,), (_ACTIVE,)),
    ("PASSWORD", (TaskState.UPDATING_PASSWORD,), (_ACTIVE,)),
    ("REBUILD", (TaskState.REBUILDING, TaskState.REBUILD_SPAWNING), (_ACTIVE, _STOPPED, _ERROR)),
    ("RESIZE", (TaskState.RESIZE_PREP, TaskState.RESIZE_MIGRATING, TaskState.RESIZE_FINISH), (_ACTIVE, _STOPPED)),
    ("REVERT_RESIZE", (TaskState.RESIZE_REVERTING,), (_RESIZED,)),
    ("MIGRATING", (TaskState.MIGRATING,), (_ACTIVE, _PAUSED)),
)
_BUSY = {(state, task): word for word, tasks, states in _WORDS for task in tasks for state in states}


def _wrong_state(name: str, server_id: str, attribute: str, value: str) -> Conflict:
    return Conflict(
        f"Cannot '{name}' instance {server_id} while it is in {attribute} {value}", code="compute.wrong_state"
    )
