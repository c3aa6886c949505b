"""Use cases of servers: create, find, operate, delete, describe.

Each reads: decide, commit, effect. The row and the job that follows from it are written in one transaction;
the hint after the commit only shortens the wait for the job.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, Engine

from moorage.compute import action_store, flavor_store, lifecycle, store
from moorage.compute.lifecycle import Operation
from moorage.compute.messages import host_build_id, host_job, scheduling_id, situation
from moorage.compute.model import (
    BUILD_QUEUE,
    JOB_BUILD,
    JOB_RELEASE,
    Action,
    Flavor,
    Locker,
    PowerState,
    Server,
    TaskState,
    VmState,
)
from moorage.compute.server_request import ImageLookup, NewServer, fields_of, hostname_for, usable_flavor, wanted_place
from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, NotFound, OverQuota
from moorage.core.ids import Ids
from moorage.db.transactions import in_transaction, read
from moorage.jobs.hints import Hints
from moorage.jobs.model import NewJob
from moorage.scheduler.flavor_resources import request_for

MAX_METADATA_ITEMS = 128
#: Event of the create action while a host is looked for.
SCHEDULE_EVENT = "schedule_instances"


class ServerService:
    """`images` None: image ids are taken as they come (no image service is configured)."""

    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, hints: Hints, *, images: ImageLookup | None = None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._hints = hints
        self._images = images

    # ---------------------------------------------------------------------------------------- create

    def create(self, caller: Caller, request_id: str, new: NewServer, *, may_force_host: bool) -> list[Server]:
        """`new.count` servers in BUILD, each with a job that finds it a host."""
        if len(new.metadata) > MAX_METADATA_ITEMS:
            raise OverQuota(f"Maximum number of metadata items exceeds {MAX_METADATA_ITEMS}")
        image_properties = self._image_properties(caller, new.image_id)
        with read(self._engine) as connection:
            flavor = usable_flavor(connection, caller, new.flavor_id)
            zone, host = wanted_place(connection, new, may_force_host=may_force_host)
            if new.key_name is not None and flavor_store.keypair(connection, caller.user_id, new.key_name) is None:
                raise Invalid("Invalid key_name provided.")
        request_for(fields_of(flavor), image_properties)  # refused here, not by the scheduler minutes later
        now = self._clock.now()
        built = [self._new_server(caller, new, flavor, zone, host, index, now) for index in range(new.count)]
        reservation_id = f"r-{self._ids.uuid()[:8]}"
        built = [replace(server, reservation_id=reservation_id) for server in built]

        def work(connection: Connection) -> None:
            for server in built:
                store.insert_server(connection, server)
                action = self._begin(connection, caller, request_id, server.id, lifecycle.CREATE.name, now)
                action_store.begin_event(connection, action.id, SCHEDULE_EVENT, None, now)
                payload = {"action_id": action.id, "request_id": request_id, "image_properties": image_properties}
                job = NewJob(scheduling_id(server.id), BUILD_QUEUE, JOB_BUILD, server.id, payload)
                store.BUILD_JOBS.enqueue(connection, job, now)

        in_transaction(self._engine, work)
        self._hints.send(BUILD_QUEUE)
        return built

    def new_password(self) -> str:
        """Clients expect one. It is not passed on: no guest agent is there that could set it."""
        return self._ids.uuid().replace("-", "")[:12]

    def _image_properties(self, caller: Caller, image_id: str | None) -> dict[str, str]:
        """Of the image, what bears on scheduling. Raises `Invalid` for one that the caller cannot use."""
        if image_id is None:
            raise Invalid("Invalid imageRef provided: a server starts from an image here, volumes are not offered.")
        if self._images is None:
            return {}
        image = self._images.get(image_id)
        # The lookup sees with the eyes of this service, which may see everything; Glance's default is "shared".
        if image is None or not (image.is_for_everybody or (image.owner and caller.may_see(image.owner))):
            raise Invalid(f"Can not find requested image: {image_id}")
        if image.status != "active":
            raise Invalid(f"Image {image_id} is not active.")
        return {key: value for key, value in image.properties.items() if key.startswith("trait:")}

    def _new_server(
        self, caller: Caller, new: NewServer, flavor: Flavor, zone: str | None, host: str | None, index: int,
        now: datetime,
    ) -> Server:  # fmt: skip
        name = new.name if new.count == 1 else f"{new.name}-{index + 1}"
        server_id = self._ids.uuid()
        return Server(
            id=server_id, number=0, name=name, project_id=caller.project_id, user_id=caller.user_id,
            image_id=new.image_id, flavor=flavor, vm_state=VmState.BUILDING, task_state=TaskState.SCHEDULING,
            power_state=PowerState.NONE, host=None, wanted_zone=zone, wanted_host=host, metadata=dict(new.metadata),
            tags=new.tags, description=new.description, hostname=new.hostname or hostname_for(name, server_id),
            key_name=new.key_name, user_data=new.user_data, config_drive=new.config_drive, reservation_id="",
            launch_index=index, scheduler_hints=dict(new.scheduler_hints), locked_by=None, locked_reason=None,
            fault=None, placed=None, devices=(), created_at=now, updated_at=now, launched_at=None, deleted_at=None,
        )  # fmt: skip

    # ---------------------------------------------------------------------------------------- read

    def get(self, caller: Caller, server_id: str) -> Server:
        with read(self._engine) as connection:
            return _visible(store.server(connection, server_id), caller, server_id)

    def find(
        self,
        query: store.ServerQuery,
        passes: Callable[[Server], bool],
        *,
        limit: int,
        marker: str | None = None,
    ) -> tuple[list[Server], bool]:
        """(at most `limit` servers after `marker`, whether there are more)."""
        with read(self._engine) as connection:
            found: Iterator[Server] = filter(passes, store.find_servers(connection, query))
            if marker is not None:
                found = _after(marker, found)
            page = [server for server, _ in zip(found, range(limit + 1), strict=False)]
        return page[:limit], len(page) > limit

    def console(self, caller: Caller, server_id: str) -> str:
        """The latest text that the host reported; empty before its first report."""
        with read(self._engine) as connection:
            server = _visible(store.server(connection, server_id), caller, server_id)
            if server.host is None:
                raise Conflict(f"Instance {server_id} is not ready")
            return store.console(connection, server_id)

    def actions(self, caller: Caller, server_id: str) -> list[Action]:
        with read(self._engine) as connection:
            _visible(store.server(connection, server_id), caller, server_id, deleted=True)
            return action_store.actions_of(connection, server_id)

    def action(self, caller: Caller, server_id: str, request_id: str) -> Action:
        with read(self._engine) as connection:
            _visible(store.server(connection, server_id), caller, server_id, deleted=True)
            action = action_store.action(connection, server_id, request_id)
        if action is None:
            raise NotFound(f"Action for request_id {request_id} on instance {server_id} not found")
        return action

    def in_use(self, project_id: str) -> list[Flavor]:
        """The flavors of the project's servers, one for each."""
        with read(self._engine) as connection:
            return store.flavors_in_use(connection, project_id)

    def running_in(self, since: datetime, until: datetime) -> list[Server]:
        with read(self._engine) as connection:
            return list(store.servers_running_in(connection, since, until))

    # -------------------------------------------------------------------------------------- operate

    def operate(self, caller: Caller, request_id: str, server_id: str, operation: Operation) -> None:
        """Begin `operation`; its host carries it out and reports."""

        def work(connection: Connection) -> str:
            server = _visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, situation(server), caller)
            return self._tell_host(connection, caller, request_id, server, operation)

        self._hints.send(in_transaction(self._engine, work))

    def delete(self, caller: Caller, request_id: str, server_id: str) -> None:
        """Works in any state, also in the middle of a build; again and again it is still one deletion."""

        def work(connection: Connection) -> str | None:
            server = _visible(store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(lifecycle.DELETE, situation(server), caller)
            if server.task_state is TaskState.DELETING:
                return None
            now = self._clock.now()
            # Jobs that nobody has begun need not begin; those that run are finished first, by the order of the key.
            store.BUILD_JOBS.cancel(connection, scheduling_id(server_id), now)
            store.HOST_JOBS.cancel(connection, host_build_id(server_id), now)
            if server.host is not None:
                return self._tell_host(connection, caller, request_id, server, lifecycle.DELETE)
            action = self._begin(connection, caller, request_id, server_id, lifecycle.DELETE.name, now)
            action_store.begin_event(connection, action.id, lifecycle.DELETE.event, None, now)
            store.update_server(connection, server_id, now, task_state=TaskState.DELETING)
            payload = {"action_id": action.id, "request_id": request_id, "final": True}
            store.BUILD_JOBS.enqueue(
                connection, NewJob(self._ids.uuid(), BUILD_QUEUE, JOB_RELEASE, server_id, payload), now
            )
            return BUILD_QUEUE

        queue = in_transaction(self._engine, work)
        if queue is not None:
            self._hints.send(queue)

    def lock(self, caller: Caller, request_id: str, server_id: str, reason: str | None) -> None:
        def work(connection: Connection, server: Server) -> None:
            # An owner who locks again does not take an administrator's lock over.
            if server.locked_by is Locker.ADMIN and not caller.is_admin:
                return
            locker = Locker.OWNER if caller.project_id == server.project_id else Locker.ADMIN
            store.update_server(connection, server_id, self._clock.now(), locked_by=locker, locked_reason=reason)

        self._change(caller, server_id, work, action=(request_id, "lock"))

    def unlock(self, caller: Caller, request_id: str, server_id: str, *, may_override: bool) -> None:
        def work(connection: Connection, server: Server) -> None:
            lifecycle.check_unlock(situation(server), caller, may_override=may_override)
            store.update_server(connection, server_id, self._clock.now(), locked_by=None, locked_reason=None)

        self._change(caller, server_id, work, action=(request_id, "unlock"))

    def reset_state(self, caller: Caller, server_id: str, state: VmState) -> None:
        """An administrator knows better: no task, and `state`, at once."""

        def work(connection: Connection, server: Server) -> None:
            after = lifecycle.SERVER_STATES.check(server.vm_state, state)
            store.update_server(connection, server_id, self._clock.now(), vm_state=after, task_state=None)

        self._change(caller, server_id, work)

    def describe(self, caller: Caller, server_id: str, **values: str | None) -> Server:
        """Change `name`, `description` or `hostname`."""

        def work(connection: Connection, server: Server) -> None:
            if values:
                store.update_server(connection, server_id, self._clock.now(), **values)

        self._change(caller, server_id, work)
        return self.get(caller, server_id)

    def set_metadata(
        self, caller: Caller, server_id: str, items: Mapping[str, str], *, instead: bool = False
    ) -> dict[str, str]:
        """Add `items`; with `instead` in place of all that was there."""
        after: dict[str, str] = {}

        def work(connection: Connection, server: Server) -> None:
            _check_lock(server, caller)
            after.clear()
            after.update({} if instead else server.metadata, **items)
            if len(after) > MAX_METADATA_ITEMS:
                raise OverQuota(f"Maximum number of metadata items exceeds {MAX_METADATA_ITEMS}")
            store.update_server(connection, server_id, self._clock.now(), metadata=after)

        self._change(caller, server_id, work)
        return after

    def remove_metadata(self, caller: Caller, server_id: str, key: str) -> None:
        def work(connection: Connection, server: Server) -> None:
            _check_lock(server, caller)
            left = dict(server.metadata)
            if left.pop(key, None) is None:
                raise NotFound("Metadata item was not found")
            store.update_server(connection, server_id, self._clock.now(), metadata=left)

        self._change(caller, server_id, work)

    # ------------------------------------------------------------------------------------- in common

    def _change(
        self,
        caller: Caller,
        server_id: str,
        work: Callable[[Connection, Server], None],
        *,
        action: tuple[str, str] | None = None,
    ) -> None:
        """`work` on the locked server; `action` (request id, name) is noted with it."""

        def change(connection: Connection) -> None:
            server = _visible(store.lock_server(connection, server_id), caller, server_id)
            work(connection, server)
            if action is not None:
                self._begin(connection, caller, action[0], server_id, action[1], self._clock.now())

        in_transaction(self._engine, change)

    def _tell_host(
        self, connection: Connection, caller: Caller, request_id: str, server: Server, operation: Operation
    ) -> str:
        """Note the task and the job for the server's host. Answers the queue to hint at."""
        if server.host is None:
            raise Conflict(f"Instance {server.id} is not ready: it is on no host")
        now = self._clock.now()
        action = self._begin(connection, caller, request_id, server.id, operation.name, now)
        action_store.begin_event(connection, action.id, operation.event, server.host, now)
        store.update_server(connection, server.id, now, task_state=operation.task)
        job = host_job(self._ids.uuid(), operation, server, server.host, action.id, request_id)
        store.HOST_JOBS.enqueue(connection, job, now)
        return server.host

    def _begin(
        self, connection: Connection, caller: Caller, request_id: str, server_id: str, name: str, now: datetime
    ) -> Action:
        action = Action(
            self._ids.uuid(), server_id, request_id, name, caller.user_id, caller.project_id, now, now, None
        )
        action_store.begin_action(connection, action)
        return action


def _visible(server: Server | None, caller: Caller, server_id: str, *, deleted: bool = False) -> Server:
    """The server, if it is there (or was, with `deleted`) and the caller may know of it. Raises `NotFound`."""
    is_gone = server is not None and server.vm_state is VmState.DELETED and not deleted
    if server is None or is_gone or not caller.may_see(server.project_id):
        raise NotFound(f"Instance {server_id} could not be found.")
    return server


def _check_lock(server: Server, caller: Caller) -> None:
    if server.locked_by is not None and not caller.is_admin:
        raise Conflict(f"Instance {server.id} is locked")


def _after(marker: str, servers: Iterator[Server]) -> Iterator[Server]:
    for server in servers:
        if server.id == marker:
            return servers
    raise Invalid(f"marker [{marker}] not found")
