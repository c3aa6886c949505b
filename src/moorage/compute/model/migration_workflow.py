"""The workflow of moves between hosts: the steps of each kind, their order, and where each leads.

    resize, migration   prep -> migrate -> finish ............ then the server waits for confirm or revert
                        (confirmed) confirm -> complete
                        (reverted)  revert -> revert allocations -> finish revert -> complete
    resize in place     prep -> migrate -> finish ............ the same on one host; the image in transit keeps the disk
                        (confirmed) complete
                        (reverted)  revert -> revert allocations -> finish revert -> complete
    live-migration      prep -> pre live -> live -> post live -> complete
    evacuation          prep -> rebuild ...................... when the old host is back: confirm -> complete
    unshelve            prep -> rebuild -> complete
    deletion            keep allocations ..................... of a server on a host that is down; when it is back:
                                                               confirm -> complete

While a move lasts, it is a consumer in Placement itself: it holds the server's allocations on the old host, and the
server holds those on the new one. A step that fails leads back; `ROLLBACK_ALLOCATIONS` returns the move's allocations
to the server.

Spec: docs/evidence/specs/accelerator-attach.md, R44 to R46
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from moorage.compute.model.servers import Flavor, Placed, TaskState, VmState
from moorage.jobs.contract import JobKind


class MoveKind(StrEnum):
    """The kinds in ``os-migrations``, which does not show the last three."""

    RESIZE = "resize"
    MIGRATION = "migration"
    LIVE = "live-migration"
    EVACUATION = "evacuation"
    UNSHELVE = "unshelve"
    DELETION = "deletion"
    #: A build failed on a host, which could not delete the unfinished server; the server is on another host or on none.
    FAILED_BUILD = "failed-build"


#: Kinds of moves that leave something on a host that is down; the host deletes it before it does anything else.
KINDS_WITH_LEFTOVERS = frozenset({MoveKind.EVACUATION, MoveKind.DELETION})


class Where(StrEnum):
    """The side that runs a step."""

    SOURCE = "source"
    DESTINATION = "destination"
    ELSEWHERE = "elsewhere"  #: source or destination, whichever does not have the server
    HERE = "here"  #: the compute service itself (`migration_worker`), which talks to Placement


class StepName:
    """The steps' kinds of jobs under Nova's names for the steps; the values are stored in moves, too."""

    PREP = JobKind.PLACE  #: select and claim a destination
    MIGRATE = JobKind.MOVE_OUT  #: source: stop the guest, upload its disk
    FINISH = JobKind.MOVE_IN  #: destination: build the guest from that disk
    ROLLBACK = JobKind.MOVE_BACK  #: source: start the guest again after a failed `FINISH`
    ROLLBACK_ALLOCATIONS = JobKind.GIVE_BACK  #: return the allocations from the move to the server
    CONFIRM = JobKind.CLEAN  #: source: delete the remains of the server
    COMPLETE = JobKind.SETTLE  #: release the move's allocations; the move is over
    CLEAN_UP = JobKind.DROP  #: the host that no longer has the server: delete its remains during a deletion
    REVERT = JobKind.UNMAKE  #: destination: delete the guest
    REVERT_ALLOCATIONS = JobKind.SWAP  #: give the server back its allocations on the source
    FINISH_REVERT = JobKind.GO_BACK  #: source: start the guest again
    FINISH_IN_PLACE = JobKind.REMAKE  #: these four replace FINISH, ROLLBACK, REVERT and FINISH_REVERT ...
    ROLLBACK_IN_PLACE = JobKind.REMAKE_BACK
    REVERT_IN_PLACE = JobKind.STRIP
    FINISH_REVERT_IN_PLACE = JobKind.RETURN  #: ... if source and destination are one host
    PRE_LIVE = JobKind.RECEIVE  #: destination: prepare to receive the guest
    LIVE = JobKind.HAND_OVER  #: source: migrate the running guest
    POST_LIVE = JobKind.TAKE_OVER  #: destination: the guest is here now
    REBUILD = JobKind.BUILD_AGAIN  #: destination: build the guest of an evacuation or unshelve
    KEEP_ALLOCATIONS = JobKind.KEEP  #: transfer the server's allocations on a host that is down to the move


@dataclass(frozen=True)
class Move:
    id: str  #: also its consumer uuid in Placement
    number: int
    server_id: str
    kind: MoveKind
    status: str  #: as Nova names it
    step: JobKind | None  #: the current step; None: none in progress
    is_open: bool  #: something of the server may be left on a host or in Placement
    source_host: str
    dest_host: str | None
    wanted_host: str | None
    old_state: VmState
    old_flavor: Flavor
    new_flavor: Flavor
    old_placed: Placed | None
    new_placed: Placed | None
    #: action_id, request_id; image_properties; transit_image_id; target; ends: the state of an evacuated server;
    #: may_stay: whether the old host is allowed; abandoned: see `AFTER_ABANDONING`; died: destinations that died, see
    #: `retried_elsewhere`; is_left_off: the old host has stopped the server and could not start it again
    details: Mapping[str, Any]
    user_id: str
    project_id: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class MigrationStep:
    name: JobKind  #: see `StepName`; the kind of the step's job
    where: Where
    status: str
    then: JobKind | None
    otherwise: JobKind | None  #: after a failure; None: the server goes to ERROR, and the move ends when it is deleted
    task: TaskState | None = None  #: of the server; None: unchanged
    #: The step that replaces this one if its host died and the server is on another host; leftovers are recorded. None:
    #: the server is on that host, so it waits for the host or is evacuated.
    without_host: JobKind | None = None


_PREP, _MIGRATING, _FINISHING, _REVERTING = (
    TaskState.RESIZE_PREP,
    TaskState.RESIZE_MIGRATING,
    TaskState.RESIZE_FINISH,
    TaskState.RESIZE_REVERTING,
)
_ROLLBACK = MigrationStep(StepName.ROLLBACK_ALLOCATIONS, Where.HERE, "error", None, None)
_COMPLETE = MigrationStep(StepName.COMPLETE, Where.HERE, "", None, None)
#: Of a server that is deleted during a move.
_CLEAN_UP = MigrationStep(
    StepName.CLEAN_UP, Where.ELSEWHERE, "error", StepName.COMPLETE, StepName.CLEAN_UP, without_host=StepName.COMPLETE
)

_COLD = (
    MigrationStep(StepName.PREP, Where.HERE, "pre-migrating", StepName.MIGRATE, StepName.ROLLBACK_ALLOCATIONS, _PREP),
    MigrationStep(
        StepName.MIGRATE, Where.SOURCE, "migrating", StepName.FINISH, StepName.ROLLBACK_ALLOCATIONS, _MIGRATING
    ),
    MigrationStep(
        StepName.FINISH,
        Where.DESTINATION,
        "post-migrating",
        None,
        StepName.ROLLBACK,
        _FINISHING,
        without_host=StepName.ROLLBACK,
    ),
    MigrationStep(StepName.ROLLBACK, Where.SOURCE, "post-migrating", StepName.ROLLBACK_ALLOCATIONS, None, _FINISHING),
    _ROLLBACK,
    MigrationStep(StepName.CONFIRM, Where.SOURCE, "confirming", StepName.COMPLETE, StepName.CONFIRM),
    _COMPLETE,
    _CLEAN_UP,
    MigrationStep(
        StepName.REVERT,
        Where.DESTINATION,
        "reverting",
        StepName.REVERT_ALLOCATIONS,
        None,
        _REVERTING,
        without_host=StepName.REVERT_ALLOCATIONS,
    ),
    MigrationStep(StepName.REVERT_ALLOCATIONS, Where.HERE, "reverting", StepName.FINISH_REVERT, None, _REVERTING),
    MigrationStep(StepName.FINISH_REVERT, Where.SOURCE, "reverting", StepName.COMPLETE, None, _REVERTING),
    # Replace FINISH, ROLLBACK, REVERT and FINISH_REVERT if both flavors are on one host.
    MigrationStep(
        StepName.FINISH_IN_PLACE, Where.SOURCE, "post-migrating", None, StepName.ROLLBACK_IN_PLACE, _FINISHING
    ),
    MigrationStep(
        StepName.ROLLBACK_IN_PLACE, Where.SOURCE, "post-migrating", StepName.ROLLBACK_ALLOCATIONS, None, _FINISHING
    ),
    MigrationStep(StepName.REVERT_IN_PLACE, Where.SOURCE, "reverting", StepName.REVERT_ALLOCATIONS, None, _REVERTING),
    MigrationStep(StepName.FINISH_REVERT_IN_PLACE, Where.SOURCE, "reverting", StepName.COMPLETE, None, _REVERTING),
)
#: {step: its replacement in a move that stays on its host}. No other host needs a cleanup.
_IN_PLACE: Mapping[JobKind, JobKind] = {
    StepName.FINISH: StepName.FINISH_IN_PLACE,
    StepName.ROLLBACK: StepName.ROLLBACK_IN_PLACE,
    StepName.REVERT: StepName.REVERT_IN_PLACE,
    StepName.FINISH_REVERT: StepName.FINISH_REVERT_IN_PLACE,
    StepName.CONFIRM: StepName.COMPLETE,
    StepName.CLEAN_UP: StepName.COMPLETE,
}
_LIVE = (
    MigrationStep(
        StepName.PREP, Where.HERE, "preparing", StepName.PRE_LIVE, StepName.ROLLBACK_ALLOCATIONS, TaskState.MIGRATING
    ),
    MigrationStep(
        StepName.PRE_LIVE,
        Where.DESTINATION,
        "preparing",
        StepName.LIVE,
        StepName.ROLLBACK_ALLOCATIONS,
        TaskState.MIGRATING,
        without_host=StepName.ROLLBACK_ALLOCATIONS,
    ),
    MigrationStep(StepName.LIVE, Where.SOURCE, "running", StepName.POST_LIVE, StepName.REVERT, TaskState.MIGRATING),
    MigrationStep(StepName.POST_LIVE, Where.DESTINATION, "running", StepName.COMPLETE, None, TaskState.MIGRATING),
    MigrationStep(
        StepName.REVERT,
        Where.DESTINATION,
        "failed",
        StepName.ROLLBACK_ALLOCATIONS,
        None,
        TaskState.MIGRATING,
        without_host=StepName.ROLLBACK_ALLOCATIONS,
    ),
    _ROLLBACK,
    _COMPLETE,
    _CLEAN_UP,
)
_SPAWN = TaskState.REBUILD_SPAWNING
_EVACUATION = (
    MigrationStep(
        StepName.PREP,
        Where.HERE,
        "pre-migrating",
        StepName.REBUILD,
        StepName.ROLLBACK_ALLOCATIONS,
        TaskState.REBUILDING,
    ),
    MigrationStep(
        StepName.REBUILD,
        Where.DESTINATION,
        "pre-migrating",
        None,
        StepName.ROLLBACK_ALLOCATIONS,
        _SPAWN,
        without_host=StepName.ROLLBACK_ALLOCATIONS,
    ),
    MigrationStep(StepName.ROLLBACK_ALLOCATIONS, Where.HERE, "failed", None, None),
    MigrationStep(StepName.CONFIRM, Where.SOURCE, "done", StepName.COMPLETE, StepName.CONFIRM),
    _COMPLETE,
    _CLEAN_UP,
)
_UNSHELVE = (
    MigrationStep(
        StepName.PREP,
        Where.HERE,
        "pre-migrating",
        StepName.REBUILD,
        StepName.ROLLBACK_ALLOCATIONS,
        TaskState.UNSHELVING,
    ),
    MigrationStep(
        StepName.REBUILD,
        Where.DESTINATION,
        "migrating",
        StepName.COMPLETE,
        StepName.ROLLBACK_ALLOCATIONS,
        TaskState.SPAWNING,
        without_host=StepName.ROLLBACK_ALLOCATIONS,
    ),
    _ROLLBACK,
    _COMPLETE,
    _CLEAN_UP,
)

#: Steps of moves that only record leftovers on a host.
_LEFTOVERS = (
    MigrationStep(StepName.KEEP_ALLOCATIONS, Where.HERE, "pre-migrating", StepName.CONFIRM, None),
    MigrationStep(StepName.CONFIRM, Where.SOURCE, "done", StepName.COMPLETE, StepName.CONFIRM),
    _COMPLETE,
)

STEPS: Mapping[MoveKind, Mapping[JobKind, MigrationStep]] = {
    kind: {step.name: step for step in steps}
    for kind, steps in (
        (MoveKind.RESIZE, _COLD),
        (MoveKind.MIGRATION, _COLD),
        (MoveKind.LIVE, _LIVE),
        (MoveKind.EVACUATION, _EVACUATION),
        (MoveKind.UNSHELVE, _UNSHELVE),
        (MoveKind.DELETION, _LEFTOVERS),
        (MoveKind.FAILED_BUILD, _LEFTOVERS),
    )
}

#: {step: the next one after it succeeds in an abandoned move}. A move is abandoned if an administrator resets the
#: server's state: the server is no longer expected at its destination. All other steps continue as usual, because they
#: already lead back, or because the guest at the source cannot run again.
AFTER_ABANDONING: Mapping[JobKind, JobKind] = {
    StepName.PREP: StepName.ROLLBACK_ALLOCATIONS,
    StepName.MIGRATE: StepName.ROLLBACK,
    StepName.FINISH: StepName.REVERT,
    StepName.FINISH_IN_PLACE: StepName.REVERT,
    StepName.PRE_LIVE: StepName.REVERT,
}
#: Steps at which the server's place is decided, and only leftovers elsewhere remain.
_DECIDED = frozenset({StepName.CONFIRM, StepName.COMPLETE, StepName.CLEAN_UP})

#: Steps that build a server on its destination.
_BUILDS = frozenset({StepName.FINISH, StepName.REBUILD})

#: Maximum number of destinations of one request, if each dies while the server is built there.
MAX_DESTINATIONS = 3

#: Steps that bring a server back to its old host; it is nowhere else any more.
REVERT_STEPS = frozenset({StepName.REVERT_IN_PLACE, StepName.FINISH_REVERT, StepName.FINISH_REVERT_IN_PLACE})

#: Statuses of moves whose servers are expected at their destination.
STATUSES_TOWARDS_DESTINATION = frozenset({"pre-migrating", "migrating", "post-migrating", "preparing", "running"})

#: Job kinds of the steps that hosts run.
HOST_STEPS = frozenset(step.name for steps in STEPS.values() for step in steps.values() if step.where is not Where.HERE)

#: Steps that are repeated until they succeed.
REPEATED_STEPS = frozenset({StepName.CONFIRM, StepName.CLEAN_UP})

#: Status after `COMPLETE` of a move that did not fail and was not reverted.
FINAL_STATUSES: Mapping[MoveKind, str] = {
    MoveKind.RESIZE: "confirmed",
    MoveKind.MIGRATION: "confirmed",
    MoveKind.LIVE: "completed",
    MoveKind.EVACUATION: "completed",
    MoveKind.UNSHELVE: "completed",
    MoveKind.DELETION: "completed",
    MoveKind.FAILED_BUILD: "completed",
}

#: Event of each step in ``os-instance-actions``: Nova's name for the nearest equivalent.
EVENTS: Mapping[JobKind, str] = {
    StepName.PREP: "conductor_migrate_server",
    StepName.MIGRATE: "compute_resize_instance",
    StepName.FINISH: "compute_finish_resize",
    StepName.ROLLBACK: "compute_finish_revert_resize",
    StepName.CONFIRM: "compute_confirm_resize",
    StepName.CLEAN_UP: "compute_drop_move",
    StepName.REVERT: "compute_revert_resize",
    StepName.FINISH_REVERT: "compute_finish_revert_resize",
    StepName.PRE_LIVE: "compute_pre_live_migration",
    StepName.LIVE: "compute_live_migration",
    StepName.POST_LIVE: "compute_post_live_migration_at_destination",
    StepName.REBUILD: "compute_rebuild_instance",
    StepName.FINISH_IN_PLACE: "compute_finish_resize",
    StepName.ROLLBACK_IN_PLACE: "compute_finish_revert_resize",
    StepName.REVERT_IN_PLACE: "compute_revert_resize",
    StepName.FINISH_REVERT_IN_PLACE: "compute_finish_revert_resize",
}


def next_step(move: Move, *, succeeded: bool) -> MigrationStep | None:
    """The step after the current one; None if there is none."""
    if move.step is None:
        return None
    step = STEPS[move.kind][move.step]
    name = step.then if succeeded else step.otherwise
    if succeeded and is_abandoned(move):
        name = AFTER_ABANDONING.get(step.name, name)
    return None if name is None else step_of(move, name)


def current_step(move: Move) -> MigrationStep:
    """Raises `ValueError` if no step is in progress."""
    if move.step is None:
        raise ValueError(f"move {move.id} has no step in progress")
    return STEPS[move.kind][move.step]


def step_of(move: Move, name: JobKind) -> MigrationStep:
    """The step of this name, or its replacement in a move that stays on its host."""
    return STEPS[move.kind][_IN_PLACE.get(name, name) if is_in_place(move) else name]


def is_in_place(move: Move) -> bool:
    return move.kind is MoveKind.RESIZE and move.dest_host == move.source_host


def host_of_step(move: Move, step: MigrationStep, server_host: str | None) -> str | None:
    """The host that runs the step; None: the compute service itself. `server_host`: where the server is."""
    elsewhere = move.dest_host if move.dest_host != server_host else move.source_host
    hosts = {Where.SOURCE: move.source_host, Where.DESTINATION: move.dest_host, Where.ELSEWHERE: elsewhere}
    return hosts.get(step.where)


def is_rebuilding_at_destination(move: Move) -> bool:
    """Whether it is an evacuation whose destination builds the server. If that host dies too, no report arrives."""
    return move.kind is MoveKind.EVACUATION and move.step == StepName.REBUILD


def only_awaits_cleanup_on(move: Move, host: str) -> bool:
    """Whether the cleanup on `host`, its old host, is all that remains; that host may never return."""
    return move.step == StepName.CONFIRM and move.source_host == host


def retried_elsewhere(move: Move, new_id: str, now: datetime) -> Move | None:
    """A new move with the same request, after the destination died during the build.

    None if the request names that destination, if the move was abandoned, or if `MAX_DESTINATIONS` died.
    """
    died = [*move.details.get("died", ()), move.dest_host]
    if move.step != StepName.REBUILD or move.wanted_host or is_abandoned(move) or len(died) >= MAX_DESTINATIONS:
        return None
    details = {**move.details, "died": died}
    return replace(
        move, id=new_id, status="accepted", step=None, dest_host=None, new_placed=None, details=details,
        created_at=now, updated_at=now,
    )  # fmt: skip


def failed_to_build(move: Move, task: TaskState | None) -> bool:
    """Whether the failed step was to build the server on its destination, and nothing else cleans up there.

    `task`: of the server; a server that is being deleted is deleted everywhere.
    """
    step = None if move.step is None else STEPS[move.kind][move.step]
    return step is not None and step.name in _BUILDS and (task is step.task or is_abandoned(move))


def host_with_leftovers(move: Move) -> str | None:
    """The host on which something of the server must still be deleted; the server must not go there before."""
    return move.source_host if move.step in (StepName.KEEP_ALLOCATIONS, StepName.CONFIRM) else None


def is_undecided(move: Move) -> bool:
    """Whether the place of the server is still open; nothing else may move it meanwhile."""
    return move.step not in _DECIDED


def has_stopped_in_error(move: Move) -> bool:
    """Whether a step failed from which no step leads on, so that the server is in ERROR."""
    return (move.status, move.step) == ("error", None)


def is_abandoned(move: Move) -> bool:
    return bool(move.details.get("abandoned"))


def may_be_elsewhere(move: Move, server_host: str | None) -> bool:
    """Whether something of the server may be on a host other than its own during this undecided move."""
    if is_in_place(move) or move.dest_host is None:
        return move.status == "finished"
    # Also if a step failed that has no step after a failure, because its leftovers have not been deleted.
    return bool({move.dest_host, move.source_host} - {server_host, None, ""})


def arrival_state(move: Move) -> VmState | None:
    """The server's state after the current step, if the step's success ends the move at the destination; or None."""
    match move.kind, move.step:
        case ((MoveKind.RESIZE | MoveKind.MIGRATION), (StepName.FINISH | StepName.FINISH_IN_PLACE)):
            return VmState.RESIZED
        case MoveKind.LIVE, StepName.POST_LIVE:
            return move.old_state
        case MoveKind.EVACUATION, StepName.REBUILD:
            return VmState(move.details["ends"])
        case MoveKind.UNSHELVE, StepName.REBUILD:
            return VmState.ACTIVE
    return None
