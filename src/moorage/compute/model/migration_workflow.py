"""Moves of servers between hosts: which steps there are, in which order, and where each leads. Pure.

    resize, migration   place -> move-out -> move-in ....... then the server waits to be confirmed or reverted
                        (confirmed) clean -> settle          (reverted) unmake -> swap -> go-back -> settle
    resize in place     place -> move-out -> remake ........ the same, on one host: the image in transit keeps the old disk
                        (confirmed) settle                   (reverted) strip -> swap -> return -> settle
    live-migration      place -> receive -> hand-over -> take-over -> settle
    evacuation          place -> build-again ............... when the old host is back: clean -> settle
    unshelve            place -> build-again -> settle
    deletion            keep ............................... of a server on a host that is down; when it is back:
                                                             clean -> settle

While it lasts, the move itself is a consumer in Placement and holds what the server has on its old host; the server
holds what it has on the new one. A step that fails leads back: `give-back` gives the server what the move holds.

Spec: docs/evidence/specs/accelerator-attach.md, R44 to R46
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from moorage.compute.model.servers import Flavor, Placed, TaskState, VmState


class MoveKind(StrEnum):
    """As ``os-migrations`` has them; the last three are not shown there."""

    RESIZE = "resize"
    MIGRATION = "migration"
    LIVE = "live-migration"
    EVACUATION = "evacuation"
    UNSHELVE = "unshelve"
    DELETION = "deletion"
    #: It could not be built there, nor what there was of it be taken away; it is elsewhere by now, or nowhere.
    FAILED_BUILD = "failed-build"


#: Kinds of moves that leave something on a host that is down: it goes before that host does anything else.
KINDS_WITH_LEFTOVERS = frozenset({MoveKind.EVACUATION, MoveKind.DELETION})


class Where(StrEnum):
    """Who does a step."""

    SOURCE = "source"
    DESTINATION = "destination"
    ELSEWHERE = "elsewhere"  #: that of both on which the server is not
    HERE = "here"  #: the task that speaks to Placement


@dataclass(frozen=True)
class Move:
    id: str  #: also the consumer
    number: int
    server_id: str
    kind: MoveKind
    status: str  #: Nova's word
    step: str | None  #: what is being done; None: nothing now
    is_open: bool  #: something of it may be left on a host or in Placement
    source_host: str
    dest_host: str | None
    wanted_host: str | None
    old_state: VmState
    old_flavor: Flavor
    new_flavor: Flavor
    old_placed: Placed | None
    new_placed: Placed | None
    #: action_id, request_id; image_properties; transit_image_id; target; ends: the state of an evacuated server;
    #: may_stay: whether it may end where it began; abandoned: see `AFTER_ABANDONING`; died: destinations of `retried_elsewhere` that died
    details: Mapping[str, Any]
    user_id: str
    project_id: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class MigrationStep:
    name: str  #: and the kind of its job
    where: Where
    status: str
    then: str | None
    otherwise: str | None  #: after a failure; None: the server is in ERROR, and the move is left to its deletion
    task: TaskState | None = None  #: of the server; None: as it was
    #: In its place where its host died, and the server is elsewhere; what may be of it there is left behind. None: the
    #: server is on that host, so it waits with it, or is evacuated.
    without: str | None = None


_PREP, _OUT, _IN, _BACK = (
    TaskState.RESIZE_PREP,
    TaskState.RESIZE_MIGRATING,
    TaskState.RESIZE_FINISH,
    TaskState.RESIZE_REVERTING,
)
_GIVE_BACK = MigrationStep("give-back", Where.HERE, "error", None, None)
_SETTLE = MigrationStep("settle", Where.HERE, "", None, None)
#: Of a server that is deleted on its way there, or back: what may be of it where it is not goes.
_DROP = MigrationStep("drop", Where.ELSEWHERE, "error", "settle", "drop", without="settle")

_COLD = (
    MigrationStep("place", Where.HERE, "pre-migrating", "move-out", "give-back", _PREP),
    MigrationStep("move-out", Where.SOURCE, "migrating", "move-in", "give-back", _OUT),
    MigrationStep("move-in", Where.DESTINATION, "post-migrating", None, "move-back", _IN, without="move-back"),
    MigrationStep("move-back", Where.SOURCE, "post-migrating", "give-back", None, _IN),
    _GIVE_BACK,
    MigrationStep("clean", Where.SOURCE, "confirming", "settle", "clean"),
    _SETTLE,
    _DROP,
    MigrationStep("unmake", Where.DESTINATION, "reverting", "swap", None, _BACK, without="swap"),
    MigrationStep("swap", Where.HERE, "reverting", "go-back", None, _BACK),
    MigrationStep("go-back", Where.SOURCE, "reverting", "settle", None, _BACK),
    # In place of move-in, move-back, unmake and go-back, where both flavors are on one host.
    MigrationStep("remake", Where.SOURCE, "post-migrating", None, "remake-back", _IN),
    MigrationStep("remake-back", Where.SOURCE, "post-migrating", "give-back", None, _IN),
    MigrationStep("strip", Where.SOURCE, "reverting", "swap", None, _BACK),
    MigrationStep("return", Where.SOURCE, "reverting", "settle", None, _BACK),
)
#: {step: what is done instead of it in a move that does not leave its host}. Nothing is left to clean at another place.
_IN_PLACE: Mapping[str, str] = {
    "move-in": "remake",
    "move-back": "remake-back",
    "unmake": "strip",
    "go-back": "return",
    "clean": "settle",
    "drop": "settle",
}
_LIVE = (
    MigrationStep("place", Where.HERE, "preparing", "receive", "give-back", TaskState.MIGRATING),
    MigrationStep(
        "receive", Where.DESTINATION, "preparing", "hand-over", "give-back", TaskState.MIGRATING, without="give-back"
    ),
    MigrationStep("hand-over", Where.SOURCE, "running", "take-over", "unmake", TaskState.MIGRATING),
    MigrationStep("take-over", Where.DESTINATION, "running", "settle", None, TaskState.MIGRATING),
    MigrationStep("unmake", Where.DESTINATION, "failed", "give-back", None, TaskState.MIGRATING, without="give-back"),
    _GIVE_BACK,
    _SETTLE,
    _DROP,
)
_SPAWN = TaskState.REBUILD_SPAWNING
_EVACUATION = (
    MigrationStep("place", Where.HERE, "pre-migrating", "build-again", "give-back", TaskState.REBUILDING),
    MigrationStep("build-again", Where.DESTINATION, "pre-migrating", None, "give-back", _SPAWN, without="give-back"),
    MigrationStep("give-back", Where.HERE, "failed", None, None),
    MigrationStep("clean", Where.SOURCE, "done", "settle", "clean"),
    _SETTLE,
    _DROP,
)
_UNSHELVE = (
    MigrationStep("place", Where.HERE, "pre-migrating", "build-again", "give-back", TaskState.UNSHELVING),
    MigrationStep(
        "build-again", Where.DESTINATION, "migrating", "settle", "give-back", TaskState.SPAWNING, without="give-back"
    ),
    _GIVE_BACK,
    _SETTLE,
    _DROP,
)

#: Of what is not to come back.
_BEHIND = (
    MigrationStep("keep", Where.HERE, "pre-migrating", "clean", None),
    MigrationStep("clean", Where.SOURCE, "done", "settle", "clean"),
    _SETTLE,
)

STEPS: Mapping[MoveKind, Mapping[str, MigrationStep]] = {
    kind: {step.name: step for step in steps}
    for kind, steps in (
        (MoveKind.RESIZE, _COLD),
        (MoveKind.MIGRATION, _COLD),
        (MoveKind.LIVE, _LIVE),
        (MoveKind.EVACUATION, _EVACUATION),
        (MoveKind.UNSHELVE, _UNSHELVE),
        (MoveKind.DELETION, _BEHIND),
        (MoveKind.FAILED_BUILD, _BEHIND),
    )
}

#: {step: what follows its success in a move that was abandoned}: an administrator has reset the server's state, so that
#: nobody expects it at its destination any more. From the other steps a move goes on as ever: they are on the way back
#: already, or what is at the source cannot run again.
AFTER_ABANDONING: Mapping[str, str] = {
    "place": "give-back",
    "move-out": "move-back",
    "move-in": "unmake",
    "remake": "unmake",
    "receive": "unmake",
}
#: Steps after which a server is where it belongs, and only what is left elsewhere is seen to.
_DECIDED = frozenset({"clean", "settle", "drop"})

#: Steps that build a server where it was not.
_BUILDS = frozenset({"move-in", "build-again"})

#: Destinations of one request, where each dies while the server is built there.
MOST_DESTINATIONS = 3

#: Steps that bring a server back to its old host: it is nowhere else any more.
HOMEWARD = frozenset({"strip", "go-back", "return"})

#: Statuses of moves whose servers are expected at their destination.
STATUSES_TOWARDS_DESTINATION = frozenset({"pre-migrating", "migrating", "post-migrating", "preparing", "running"})

#: Kinds of the jobs of hosts that are steps of moves.
HOST_STEPS = frozenset(step.name for steps in STEPS.values() for step in steps.values() if step.where is not Where.HERE)

#: Jobs that are repeated until they succeed.
REPEATED_STEPS = frozenset({"clean", "drop"})

#: What `settle` makes of the status of a move that did not fail and was not reverted.
FINAL_STATUSES: Mapping[MoveKind, str] = {
    MoveKind.RESIZE: "confirmed",
    MoveKind.MIGRATION: "confirmed",
    MoveKind.LIVE: "completed",
    MoveKind.EVACUATION: "completed",
    MoveKind.UNSHELVE: "completed",
    MoveKind.DELETION: "completed",
    MoveKind.FAILED_BUILD: "completed",
}

#: In ``os-instance-actions``, as Nova calls what comes nearest.
EVENTS: Mapping[str, str] = {
    "place": "conductor_migrate_server",
    "move-out": "compute_resize_instance",
    "move-in": "compute_finish_resize",
    "move-back": "compute_finish_revert_resize",
    "clean": "compute_confirm_resize",
    "drop": "compute_drop_move",
    "unmake": "compute_revert_resize",
    "go-back": "compute_finish_revert_resize",
    "receive": "compute_pre_live_migration",
    "hand-over": "compute_live_migration",
    "take-over": "compute_post_live_migration_at_destination",
    "build-again": "compute_rebuild_instance",
    "remake": "compute_finish_resize",
    "remake-back": "compute_finish_revert_resize",
    "strip": "compute_revert_resize",
    "return": "compute_finish_revert_resize",
}


def next_step(move: Move, *, succeeded: bool) -> MigrationStep | None:
    """What comes after the step that the move is in."""
    if move.step is None:
        return None
    step = STEPS[move.kind][move.step]
    name = step.then if succeeded else step.otherwise
    if succeeded and is_abandoned(move):
        name = AFTER_ABANDONING.get(step.name, name)
    return None if name is None else step_of(move, name)


def step_of(move: Move, name: str) -> MigrationStep:
    """The step called so, or what is done in its place in a move that stays on its host."""
    return STEPS[move.kind][_IN_PLACE.get(name, name) if is_in_place(move) else name]


def is_in_place(move: Move) -> bool:
    return move.kind is MoveKind.RESIZE and move.dest_host == move.source_host


def host_of_step(move: Move, step: MigrationStep, server_host: str | None) -> str | None:
    """Whose job it is; None: our own. `server_host`: where the server is."""
    elsewhere = move.dest_host if move.dest_host != server_host else move.source_host
    hosts = {Where.SOURCE: move.source_host, Where.DESTINATION: move.dest_host, Where.ELSEWHERE: elsewhere}
    return hosts.get(step.where)


def is_rebuilding_at_destination(move: Move) -> bool:
    """Whether it is an evacuation whose destination is at work: if that dies too, nobody says how it ends."""
    return move.kind is MoveKind.EVACUATION and move.step == "build-again"


def only_awaits_cleanup_on(move: Move, host: str) -> bool:
    """Whether all that is left of it is what that host, its old one, has to clean up, which it may never do."""
    return move.step == "clean" and move.source_host == host


def retried_elsewhere(move: Move, new_id: str, now: datetime) -> Move | None:
    """The same once more, where the destination died that the server was being built at; None: it ends there, for it was
    to go to that one only, or too many have died.
    """
    died = [*move.details.get("died", ()), move.dest_host]
    if move.step != "build-again" or move.wanted_host or is_abandoned(move) or len(died) >= MOST_DESTINATIONS:
        return None
    details = {**move.details, "died": died}
    return replace(
        move, id=new_id, status="accepted", step=None, dest_host=None, new_placed=None, details=details,
        created_at=now, updated_at=now,
    )  # fmt: skip


def failed_to_build(move: Move, task: TaskState | None) -> bool:
    """Whether the step that failed was to build the server at its destination, and nobody else sees to what is there.
    `task`: of the server; one that is deleted by now goes from everywhere.
    """
    step = None if move.step is None else STEPS[move.kind][move.step]
    return step is not None and step.name in _BUILDS and (task is step.task or is_abandoned(move))


def host_with_leftovers(move: Move) -> str | None:
    """The host on which something of its server is still to be cleaned up: if the server came there, that would go, too."""
    return move.source_host if move.step in ("keep", "clean") else None


def is_undecided(move: Move) -> bool:
    """Whether it is not yet said where the server will be: nothing else may move it meanwhile."""
    return move.step not in _DECIDED


def has_stopped_in_error(move: Move) -> bool:
    """Whether a step of it failed from which nothing leads on; its server was left in ERROR."""
    return (move.status, move.step) == ("error", None)


def is_abandoned(move: Move) -> bool:
    return bool(move.details.get("abandoned"))


def may_be_elsewhere(move: Move, server_host: str | None) -> bool:
    """Whether something of an undecided move may be on a host on which its server is not."""
    if is_in_place(move) or move.dest_host is None:
        return move.status == "finished"
    # Also where a step failed from which nothing leads on: what it left behind nobody has seen to.
    return bool({move.dest_host, move.source_host} - {server_host, None, ""})


def arrival_state(move: Move) -> VmState | None:
    """What the server is once the step that brings it to the destination has succeeded; None: another step."""
    match move.kind, move.step:
        case ((MoveKind.RESIZE | MoveKind.MIGRATION), ("move-in" | "remake")):
            return VmState.RESIZED
        case MoveKind.LIVE, "take-over":
            return move.old_state
        case MoveKind.EVACUATION, "build-again":
            return VmState(move.details["ends"])
        case MoveKind.UNSHELVE, "build-again":
            return VmState.ACTIVE
    return None
