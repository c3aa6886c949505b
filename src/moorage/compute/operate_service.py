"""Use cases that a server's host carries out: power, rebuild, rescue, images of its disk, deletion.

Each reads: decide, commit, effect. Moves to other hosts are in `move_service`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from sqlalchemy import Connection, Engine

from moorage.compute import action_store, host_store, lifecycle, move_store, store
from moorage.compute.host_service import HostService
from moorage.compute.lifecycle import Operation
from moorage.compute.messages import host_build_id, scheduling_id, situation
from moorage.compute.model import (
    BUILD_QUEUE,
    FORGET_IMAGE,
    JOB_RELEASE,
    MOVE_QUEUE,
    PowerState,
    Server,
    TaskState,
    VmState,
)
from moorage.compute.move_progress import MoveProgress
from moorage.compute.moves import Move, MoveKind, is_built_again, is_left_elsewhere, is_undecided
from moorage.compute.placeable import check_size
from moorage.compute.rebuilding import objection
from moorage.compute.scheduling_store import host_view
from moorage.compute.server_request import Image, ImageLookup, ImageWriter, usable_image
from moorage.compute.server_service import MAX_METADATA_ITEMS, visible
from moorage.compute.telling import Telling
from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, MoorageError, OverQuota
from moorage.core.ids import Ids
from moorage.db.transactions import in_transaction, read
from moorage.jobs.hints import Hints
from moorage.jobs.model import NewJob

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rebuild:
    """A rebuild request. `changes` are the server's columns that it sets beside the image."""

    image_id: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NewImage:
    """An image to be made of a server's disk; with `backup_type` a backup, of which `rotation` are kept."""

    name: str
    metadata: Mapping[str, str]
    backup_type: str | None = None
    rotation: int | None = None


class TraitLookup(Protocol):
    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """(generation, traits) of a provider."""
        ...


class OperateService:
    """`image_writer` None: no image service is configured, so no image can be made.

    `reclaim_after_s`: so long a deleted server can be restored; 0: it is gone at once. `placement` None: what a host
    has is not asked when a server is rebuilt.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        hints: Hints,
        hosts: HostService,
        *,
        images: ImageLookup | None = None,
        image_writer: ImageWriter | None = None,
        reclaim_after_s: float = 0,
        placement: TraitLookup | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._hints = hints
        self._hosts = hosts
        self._images = images
        self._image_writer = image_writer
        self._reclaim_after_s = reclaim_after_s
        self._placement = placement
        self._telling = Telling(clock, ids)
        self._moves = MoveProgress(clock, ids)

    def new_password(self) -> str:
        """For the administrator of the guest, where the caller names none."""
        return self._ids.uuid().replace("-", "")[:12]

    def operate(
        self,
        caller: Caller,
        request_id: str,
        server_id: str,
        operation: Operation,
        arguments: Mapping[str, Any] = MappingProxyType({}),
    ) -> Server:
        """Begin `operation`; its host carries it out and reports. The server as it was before."""

        def work(connection: Connection) -> tuple[Server, str]:
            server = visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, situation(server), caller)
            queue = self._telling.tell_host(connection, caller, request_id, server, operation, arguments)
            return server, queue

        server, queue = in_transaction(self._engine, work)
        self._hints.send(queue)
        return server

    def rebuild(self, caller: Caller, request_id: str, server_id: str, wanted: Rebuild) -> None:
        """From another image, or the same again; host, devices and what it holds stay.

        Raises `Invalid` for an image that the server cannot run where it is: nothing is moved for it.
        """
        if len(wanted.changes.get("metadata", ())) > MAX_METADATA_ITEMS:
            raise OverQuota(f"Maximum number of metadata items exceeds {MAX_METADATA_ITEMS}")
        operation = lifecycle.REBUILD
        image = usable_image(self._images, caller, wanted.image_id)
        renewed = {} if image is None else {"image_properties": dict(image.properties)}
        if image is not None:
            self._check_fits(caller, server_id, image)

        def work(connection: Connection) -> str:
            server = visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, situation(server), caller)
            changes = {**wanted.changes, "image_id": wanted.image_id, **renewed}
            store.update_server(connection, server_id, self._clock.now(), **changes)
            start = {"start": operation.after(server.vm_state) is VmState.ACTIVE}
            return self._telling.tell_host(connection, caller, request_id, replace(server, **changes), operation, start)

        self._hints.send(in_transaction(self._engine, work))

    def _check_fits(self, caller: Caller, server_id: str, image: Image) -> None:
        """Outside of any transaction, as Placement is asked."""
        with read(self._engine) as connection:
            server = visible(store.server(connection, server_id), caller, server_id)
            host = None if server.host is None else host_store.host(connection, server.host)
        check_size(image, server.flavor)
        if host is None or self._placement is None:
            return
        providers = {host.report.provider_uuid, *(server.placed.allocations if server.placed else ())}
        traits = frozenset().union(*(self._placement.traits(uuid)[1] for uuid in sorted(providers)))
        kind, processors = host.report.hypervisor_type, host.report.cpu_info
        view = host_view(
            host.name, host.report.provider_uuid, "", kind, processors, is_up=True, is_enabled=host.is_enabled
        )
        reason = objection(server.flavor, server.image_properties or {}, image.properties, view, traits)
        if reason is not None:
            raise Invalid(f"Image {image.id} cannot be what instance {server_id} is rebuilt from: {reason}.")

    def rescue(self, caller: Caller, request_id: str, server_id: str, image_id: str | None, password: str) -> None:
        """Boot `image_id`, or the server's own image, with its disk beside it."""
        if image_id is not None:
            usable_image(self._images, caller, image_id)

        def work(connection: Connection) -> str:
            server = visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(lifecycle.RESCUE, situation(server), caller)
            image = image_id or server.image_id
            if image is None:
                raise Invalid(f"Instance {server_id} has no image to be rescued with; name one.")
            arguments = {"image_id": image, "password": password}
            return self._telling.tell_host(connection, caller, request_id, server, lifecycle.RESCUE, arguments)

        self._hints.send(in_transaction(self._engine, work))

    def make_image(self, caller: Caller, request_id: str, server_id: str, wanted: NewImage) -> str:
        """The id of the image that is being made."""
        if self._image_writer is None:
            raise Conflict("There is no image service to put an image into.")
        operation = lifecycle.SNAPSHOT if wanted.backup_type is None else lifecycle.BACKUP
        image_id = self._ids.uuid()

        def work(connection: Connection) -> tuple[Server, dict[str, str], str]:
            server = visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, situation(server), caller)
            properties = image_properties(server, wanted)
            image = {"id": image_id, "name": wanted.name, "properties": properties}
            arguments = {"image": image, "rotation": wanted.rotation}
            queue = self._telling.tell_host(connection, caller, request_id, server, operation, arguments)
            return server, properties, queue

        server, properties, queue = in_transaction(self._engine, work)
        self._announce(self._image_writer, image_id, wanted.name, server, properties)
        self._hints.send(queue)
        return image_id

    def _announce(
        self, writer: ImageWriter, image_id: str, name: str, server: Server, properties: Mapping[str, str]
    ) -> None:
        """So that who asks for the image at once finds it; the host makes it where this fails, or says why not."""
        try:
            writer.announce(image_id, name, server.project_id, properties)
        except MoorageError as error:
            log.warning("an image could not be announced", extra={"image": image_id, "reason": error.message})

    def shelve(self, caller: Caller, request_id: str, server_id: str) -> None:
        """Off, its disk an image; by default it leaves its host then."""
        if self._image_writer is None:
            raise Conflict("There is no image service to put an image into.")
        image_id = self._ids.uuid()

        def work(connection: Connection) -> str:
            server = visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(lifecycle.SHELVE, situation(server), caller)
            wanted = NewImage(f"{server.name}-shelved", {})
            image = {"id": image_id, "name": wanted.name, "properties": image_properties(server, wanted)}
            store.update_server(connection, server_id, self._clock.now(), parked_image_id=image_id)
            return self._telling.tell_host(
                connection, caller, request_id, server, lifecycle.SHELVE,
                {"image": image, "start": server.vm_state is not VmState.STOPPED},
            )  # fmt: skip

        self._hints.send(in_transaction(self._engine, work))

    def reset_state(self, caller: Caller, server_id: str, state: VmState) -> None:
        """An administrator knows better: no task, and `state`, at once. Moves that go on are abandoned."""

        def work(connection: Connection) -> Sequence[str]:
            server = visible(store.lock_server(connection, server_id), caller, server_id)
            after = lifecycle.SERVER_STATES.check(server.vm_state, state)
            store.update_server(connection, server_id, self._clock.now(), vm_state=after, task_state=None)
            moving = move_store.open_moves(connection, server_id)
            return [queue for move in moving for queue in self._moves.abandon(connection, move, server)]

        for queue in in_transaction(self._engine, work):
            self._hints.send(queue)

    # --------------------------------------------------------------------------------------- delete

    def delete(self, caller: Caller, request_id: str, server_id: str, *, at_once: bool = False) -> None:
        """Works in any state, also in the middle of a build; again and again it is still one deletion.

        Where deleted servers are kept for a while, `at_once` says that this one is not.
        """

        def work(connection: Connection) -> Sequence[str]:
            server = visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(lifecycle.DELETE, situation(server), caller)
            if self._is_out_of_reach(connection, server) and (at_once or not self._is_kept(connection, server)):
                return self._delete_without_host(connection, caller, request_id, server)
            if server.task_state is TaskState.DELETING:
                return ()
            if not at_once and self._is_kept(connection, server):
                return self._delete_softly(connection, caller, request_id, server)
            return self._destroy(connection, caller, request_id, server)

        for queue in in_transaction(self._engine, work):
            self._hints.send(queue)

    def _is_kept(self, connection: Connection, server: Server) -> bool:
        if self._reclaim_after_s <= 0 or server.launched_at is None or server.host is None:
            return False
        is_moving = any(is_undecided(move) for move in move_store.open_moves(connection, server.id))
        return server.vm_state in lifecycle.SOFT_DELETE.allowed and not is_moving

    def _delete_softly(self, connection: Connection, caller: Caller, request_id: str, server: Server) -> Sequence[str]:
        """Where its host is down at once: that turns it off when it is back, before whatever is asked of it from now on."""
        is_down = self._is_out_of_reach(connection, server)
        is_asked = server.task_state is TaskState.SOFT_DELETING
        if server.vm_state is VmState.SOFT_DELETED or (is_asked and not is_down):
            return ()
        operation, now = lifecycle.SOFT_DELETE, self._clock.now()
        queues = [] if is_asked else [self._telling.tell_host(connection, caller, request_id, server, operation)]
        if is_down:
            after = lifecycle.SERVER_STATES.check(server.vm_state, VmState.SOFT_DELETED)
            power = lifecycle.POWER_STATES.get(after)
            changes = {"vm_state": after, "task_state": None, "power_state": power, "parked_at": now}
            store.update_server(connection, server.id, now, **changes)
        return queues

    def _destroy(self, connection: Connection, caller: Caller, request_id: str, server: Server) -> Sequence[str]:
        """What is of it on other hosts goes first; what only a move holds, last."""
        moving = [move for move in move_store.open_moves(connection, server.id) if is_undecided(move)]
        elsewhere = [move for move in moving if is_left_elsewhere(move, server.host)]
        queues = [self._leave(connection, move, server) for move in elsewhere]
        queues.append(self._destroy_here(connection, caller, request_id, server))
        queues += [self._moves.begin(connection, move, server, "settle") for move in moving if move not in elsewhere]
        return queues + self._forget_parked(connection, request_id, server)

    def _forget_parked(self, connection: Connection, request_id: str, server: Server) -> list[str]:
        if server.parked_image_id is None:
            return []
        payload = {"image_id": server.parked_image_id, "request_id": request_id}
        job = NewJob(self._ids.uuid(), MOVE_QUEUE, FORGET_IMAGE, server.id, payload)
        store.BUILD_JOBS.enqueue(connection, job, self._clock.now())
        return [MOVE_QUEUE]

    def _is_out_of_reach(self, connection: Connection, server: Server) -> bool:
        """Whether its host is down, and nothing of it is on its way between hosts, where others must be waited for."""
        if not self._is_down(connection, server.host):
            return False
        moving = [move for move in move_store.open_moves(connection, server.id) if is_undecided(move)]
        return all(move.status == "finished" or self._is_stranded(connection, move) for move in moving)

    def _is_down(self, connection: Connection, name: str | None) -> bool:
        host = None if name is None else host_store.host(connection, name)
        return host is not None and not self._hosts.is_up(host)

    def _is_stranded(self, connection: Connection, move: Move) -> bool:
        """Whether it waits for a destination that is down, too."""
        return is_built_again(move) and self._is_down(connection, move.dest_host)

    def _delete_without_host(
        self, connection: Connection, caller: Caller, request_id: str, server: Server
    ) -> Sequence[str]:
        """Gone at once for everybody but its host, which may still run it: what it held there stays held until that
        has cleaned up, as after an evacuation. So stays what it held where it was being evacuated to.
        """
        now, host, placed = self._clock.now(), server.host or "", server.placed
        moving = move_store.open_moves(connection, server.id)
        queues = [self._leave(connection, move, server) for move in moving if move.status == "finished"]
        store.HOST_JOBS.revoke(connection, server.id, host, now)
        for move in moving:
            if self._is_stranded(connection, move):
                # The evacuation holds what is here, the server what is there.
                queues.append(self._moves.begin(connection, move, server, "clean", apart=True))
                host, placed = move.dest_host or "", move.new_placed
                store.HOST_JOBS.revoke(connection, server.id, host, now)
        action = self._telling.begin(connection, caller, request_id, server.id, lifecycle.DELETE.name)
        action_store.finish_event(connection, action.id, lifecycle.DELETE.event, now)
        after = lifecycle.SERVER_STATES.check(server.vm_state, VmState.DELETED)
        gone = {"vm_state": after, "task_state": None, "power_state": PowerState.NONE, "placed": None}
        store.update_server(connection, server.id, now, deleted_at=now, **gone)
        move = Move(
            self._ids.uuid(), 0, server.id, MoveKind.DELETION, "accepted", None, True, host, None, None,
            server.vm_state, server.flavor, server.flavor, placed, None,
            {"action_id": action.id, "request_id": request_id}, caller.user_id, caller.project_id, now, now,
        )  # fmt: skip
        move_store.insert_move(connection, move)
        queues.append(self._moves.begin(connection, move, server, "keep", apart=True))
        return queues + self._forget_parked(connection, request_id, server)

    def _leave(self, connection: Connection, move: Move, server: Server) -> str:
        if move.status == "finished":
            return self._moves.begin(connection, move, server, "clean", apart=True)
        return self._moves.begin(connection, move, server, "drop")

    def _destroy_here(self, connection: Connection, caller: Caller, request_id: str, server: Server) -> str:
        now = self._clock.now()
        # Jobs that nobody has begun need not begin; those that run are finished first, by the order of the key.
        store.BUILD_JOBS.cancel(connection, scheduling_id(server.id), now)
        store.HOST_JOBS.cancel(connection, host_build_id(server.id), now)
        if server.host is not None:
            return self._telling.tell_host(connection, caller, request_id, server, lifecycle.DELETE)
        action = self._telling.begin(connection, caller, request_id, server.id, lifecycle.DELETE.name)
        action_store.begin_event(connection, action.id, lifecycle.DELETE.event, None, now)
        store.update_server(connection, server.id, now, task_state=TaskState.DELETING)
        payload = {"action_id": action.id, "request_id": request_id, "final": True}
        release = NewJob(self._ids.uuid(), BUILD_QUEUE, JOB_RELEASE, server.id, payload)
        store.BUILD_JOBS.enqueue(connection, release, now)
        return BUILD_QUEUE


def image_properties(server: Server, wanted: NewImage) -> dict[str, str]:
    """What Nova notes on the image of a server's disk, and what the caller says."""
    kind = "snapshot" if wanted.backup_type is None else "backup"
    properties = {
        **wanted.metadata,
        "instance_uuid": server.id,
        "image_type": kind,
        "image_location": "snapshot",
        "user_id": server.user_id,
        "owner_id": server.project_id,
    }
    if server.image_id is not None:
        properties["base_image_ref"] = server.image_id
    if wanted.backup_type is not None:
        properties["backup_type"] = wanted.backup_type
    return properties
