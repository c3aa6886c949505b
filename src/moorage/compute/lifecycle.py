"""What may be done to a server in which state, what happens meanwhile, and how it ends. Pure; printed in the docs.

Spec: docs/specs/accelerator-attach.md (the operations' effect on accelerators)

Source of states, refusals and codes: the Compute API reference, and each cell tried on Nova 34.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from moorage.compute.model import Locker, PowerState, TaskState, VmState
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden
from moorage.core.states import table


class Accelerators(StrEnum):
    """What an operation does with the accelerators that are attached to the server."""

    ATTACHED = "attached"
    KEPT = "kept"
    RELEASED = "released"


@dataclass(frozen=True)
class Operation:
    """One operation that a host carries out."""

    name: str  #: in refusals and in ``os-instance-actions``
    kind: str  #: of the host's job
    event: str  #: in ``os-instance-actions``
    allowed: frozenset[VmState]
    task: TaskState
    ends: VmState
    power: int
    accelerators: Accelerators
    #: Task states that do not stand in its way; all others do.
    tolerates: frozenset[TaskState] = frozenset()
    #: Where a failure on the host leaves the server; None: where it was.
    fails: VmState | None = None


_ANY = frozenset(VmState) - {VmState.DELETED}
_REBOOTS = frozenset({TaskState.REBOOTING, TaskState.REBOOTING_HARD})

CREATE = Operation(
    "create", "build", "compute__do_build_and_run_instance",
    frozenset({VmState.BUILDING}), TaskState.SPAWNING, VmState.ACTIVE, PowerState.RUNNING,
    Accelerators.ATTACHED, fails=VmState.ERROR,
)  # fmt: skip
DELETE = Operation(
    "delete", "destroy", "compute_terminate_instance",
    _ANY, TaskState.DELETING, VmState.DELETED, PowerState.NONE,
    Accelerators.RELEASED, tolerates=frozenset(TaskState), fails=VmState.ERROR,
)  # fmt: skip
# A stopped server keeps its accelerators: what was attached is not attached again when it starts, and nobody
# else may get them meanwhile.
START = Operation(
    "start", "start", "compute_start_instance",
    frozenset({VmState.STOPPED}), TaskState.POWERING_ON, VmState.ACTIVE, PowerState.RUNNING, Accelerators.KEPT,
)  # fmt: skip
STOP = Operation(
    "stop", "stop", "compute_stop_instance",
    frozenset({VmState.ACTIVE, VmState.ERROR}), TaskState.POWERING_OFF, VmState.STOPPED, PowerState.SHUTDOWN,
    Accelerators.KEPT,
)  # fmt: skip
PAUSE = Operation(
    "pause", "pause", "compute_pause_instance",
    frozenset({VmState.ACTIVE}), TaskState.PAUSING, VmState.PAUSED, PowerState.PAUSED, Accelerators.KEPT,
)  # fmt: skip
UNPAUSE = Operation(
    "unpause", "unpause", "compute_unpause_instance",
    frozenset({VmState.PAUSED}), TaskState.UNPAUSING, VmState.ACTIVE, PowerState.RUNNING, Accelerators.KEPT,
)  # fmt: skip
REBOOT = Operation(
    "reboot", "reboot", "compute_reboot_instance",
    frozenset({VmState.ACTIVE}), TaskState.REBOOTING, VmState.ACTIVE, PowerState.RUNNING, Accelerators.KEPT,
)  # fmt: skip
REBOOT_HARD = Operation(
    "reboot", "reboot", "compute_reboot_instance",
    frozenset({VmState.ACTIVE, VmState.STOPPED, VmState.PAUSED, VmState.ERROR}),
    TaskState.REBOOTING_HARD, VmState.ACTIVE, PowerState.RUNNING, Accelerators.KEPT, tolerates=_REBOOTS,
)  # fmt: skip

OPERATIONS = (CREATE, DELETE, START, STOP, PAUSE, UNPAUSE, REBOOT, REBOOT_HARD)

#: The operation behind each task on a host.
BY_TASK: Mapping[TaskState, Operation] = {operation.task: operation for operation in OPERATIONS}

#: What the operations above, and an administrator's os-resetState, make of a server.
SERVER_STATES = table(
    "a server",
    {
        state: {operation.ends for operation in OPERATIONS if state in operation.allowed}
        | {operation.fails for operation in OPERATIONS if state in operation.allowed and operation.fails}
        | {VmState.ACTIVE, VmState.ERROR}
        for state in sorted(_ANY)
    },
)


@dataclass(frozen=True)
class Situation:
    """As much of a server as decides what may be done to it."""

    id: str
    vm_state: VmState
    task_state: TaskState | None
    host: str | None
    locked_by: Locker | None = None


@dataclass(frozen=True)
class Outcome:
    """The state after a report from the host. `power` None: as it was."""

    vm_state: VmState
    task_state: TaskState | None
    power: int | None


def check(operation: Operation, server: Situation, caller: Caller) -> None:
    """Raises `Conflict` when `operation` may not begin now."""
    if server.locked_by is not None and not caller.is_admin:
        raise Conflict(f"Instance {server.id} is locked")
    if server.vm_state not in operation.allowed:
        raise _wrong_state(operation.name, server.id, "vm_state", server.vm_state)
    if server.task_state is not None and server.task_state not in operation.tolerates:
        raise _wrong_state(operation.name, server.id, "task_state", server.task_state)
    if server.host is None and operation is not DELETE:
        raise Conflict(f"Instance {server.id} is not ready: it is on no host")


def check_unlock(server: Situation, caller: Caller, *, may_override: bool) -> None:
    """The owner does not undo an administrator's lock."""
    if server.locked_by is Locker.ADMIN and not may_override:
        raise Forbidden("Policy doesn't allow os_compute_api:os-lock-server:unlock:unlock_override to be performed.")


def after_report(operation: Operation, server: Situation, *, succeeded: bool) -> Outcome | None:
    """Where the report on `operation` leads; None: nowhere, something else has begun since.

    A report on anything but the destruction changes nothing while the server is being deleted: the job that
    destroys it comes next, and says how it ends. What is destroyed is gone, whatever was tried meanwhile.
    """
    if server.vm_state is VmState.DELETED:
        return None
    if succeeded and operation is DELETE:
        return Outcome(server.vm_state, TaskState.DELETING, None)  # DELETED when its allocation is given back
    if server.task_state is not operation.task:
        return None
    if succeeded:
        return Outcome(operation.ends, None, operation.power)
    return Outcome(operation.fails or server.vm_state, None, None)


def status(vm_state: VmState, task_state: TaskState | None) -> str:
    """The one word that the Compute API makes of both."""
    by_task = {TaskState.REBOOTING: "REBOOT", TaskState.REBOOTING_HARD: "HARD_REBOOT"}
    if vm_state is VmState.ACTIVE and task_state in by_task:
        return by_task[task_state]
    return STATUSES[vm_state]


STATUSES: Mapping[VmState, str] = {
    VmState.BUILDING: "BUILD",
    VmState.ACTIVE: "ACTIVE",
    VmState.PAUSED: "PAUSED",
    VmState.STOPPED: "SHUTOFF",
    VmState.ERROR: "ERROR",
    VmState.DELETED: "DELETED",
}


def _wrong_state(name: str, server_id: str, attribute: str, value: str) -> Conflict:
    return Conflict(
        f"Cannot '{name}' instance {server_id} while it is in {attribute} {value}", code="compute.wrong_state"
    )
