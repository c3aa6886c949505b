"""The use case of creating servers: resolve references, check limits, insert rows, enqueue the job that selects hosts.

A request that could never be placed is refused here, not by the scheduler minutes later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import scheduling_id
from moorage.compute.model.servers import BUILD_QUEUE, Action, Flavor, PowerState, Server, TaskState, VmState
from moorage.compute.requests.group_service import GroupService
from moorage.compute.requests.quota_service import QuotaService, flavor_amounts
from moorage.compute.requests.server_request import (
    NewServer,
    PlacementNames,
    check_image_fits_flavor,
    flavor_fields,
    hostname_for,
    requested_zone_and_host,
    usable_flavor,
    usable_image,
    with_device_profile,
)
from moorage.compute.requests.server_service import SCHEDULE_EVENT
from moorage.compute.store import action_store, keypair_store, server_store
from moorage.core.caller import Caller
from moorage.core.errors import Invalid
from moorage.core.json import Json
from moorage.db.session import in_transaction, read
from moorage.images.base import ImageRecord
from moorage.jobs.contract import JobKind
from moorage.jobs.model import NewJob
from moorage.scheduler.flavor_resources import request_for, scheduling_properties

#: Maximum number of servers of one request; they are inserted in one transaction, and get hosts together.
MAX_SERVERS_PER_REQUEST = 1000


@dataclass(frozen=True)
class CreateService:
    """`names` None: names of resource classes and traits are not checked."""

    deps: ComputeDeps
    quotas: QuotaService
    groups: GroupService
    names: PlacementNames | None

    def create_servers(self, caller: Caller, request_id: str, new: NewServer, *, may_force_host: bool) -> list[Server]:
        """Creates `new.count` servers in BUILD, with a job that selects their hosts.

        If the project's limits have no room for all, fewer are created, at least `new.least`.
        """
        image, flavor, zone, host, needs = self._resolve_references(caller, new, may_force_host=may_force_host)
        member_limit = self.groups.member_limit(caller.project_id) if "group" in new.scheduler_hints else 0
        now, one = self.deps.clock.now(), flavor_amounts(flavor)
        others = self.quotas.other_usage(caller.project_id, one)
        model = replace(
            self._new_server(caller, new, flavor, zone, host, now),
            reservation_id=f"r-{self.deps.ids.uuid()[:8]}",
            image_properties=None if image is None else dict(image.properties),
        )
        most = min(
            new.count, MAX_SERVERS_PER_REQUEST + 1
        )  # one more: to refuse it, unless the project's limits leave room for fewer

        def insert_servers(connection: Connection) -> list[Server]:
            count = self.quotas.admit_servers(
                connection, caller.project_id, one, min(new.least, new.count), most, others
            )
            if count > MAX_SERVERS_PER_REQUEST:
                raise Invalid(
                    f"One request creates at most {MAX_SERVERS_PER_REQUEST} servers; create the others with further "
                    "requests."
                )
            self.quotas.check_metadata(connection, caller.project_id, new.metadata)
            group = self.groups.group_from_hints(connection, caller, new.scheduler_hints, flavor.id)
            key_data = keypair_store.public_key(connection, caller.user_id, new.key_name)
            made = [_numbered(replace(model, key_data=key_data), new, self.deps.ids.uuid(), at) for at in range(count)]
            server_store.insert_servers(connection, made, one)
            actions = [
                Action(
                    self.deps.ids.uuid(), server.id, request_id, lifecycle.CREATE.name, caller.user_id,
                    caller.project_id, now, now, None,
                )
                for server in made
            ]  # fmt: skip
            action_store.begin_actions(connection, actions, SCHEDULE_EVENT, now)
            if group is not None:
                self.groups.add_members(connection, group, [action.server_id for action in actions], member_limit)
            job = _build_job(actions, {"request_id": request_id, "image_properties": needs})
            server_store.BUILD_JOBS.enqueue(connection, job, now)
            return made

        built = in_transaction(self.deps.engine, insert_servers)
        self.deps.hints.send(BUILD_QUEUE)
        return built

    def hypothetical_server(
        self, caller: Caller, new: NewServer, *, may_force_host: bool
    ) -> tuple[Server, dict[str, str]]:
        """(a server that is not created, its image's requirements on the host). Raises as `create_servers` does; the
        image is optional.
        """
        _, flavor, zone, host, needs = self._resolve_references(
            caller, new, may_force_host=may_force_host, image_needed=False
        )
        with read(self.deps.engine) as connection:
            self.groups.group_from_hints(connection, caller, new.scheduler_hints, flavor.id, lock=False)
        return self._new_server(caller, new, flavor, zone, host, self.deps.clock.now()), needs

    def _resolve_references(
        self, caller: Caller, new: NewServer, *, may_force_host: bool, image_needed: bool = True
    ) -> tuple[ImageRecord | None, Flavor, str | None, str | None, dict[str, str]]:
        """(image, flavor, zone, host, image properties that matter for scheduling), all checked."""
        image = self._image(caller, new.image_id) if new.image_id or image_needed else None
        needs = {} if image is None else scheduling_properties(image.properties)
        with read(self.deps.engine) as connection:
            flavor = usable_flavor(connection, caller, new.flavor_id)
            zone, host = requested_zone_and_host(connection, new, may_force_host=may_force_host)
            keypair_store.public_key(connection, caller.user_id, new.key_name)
        if image is not None:
            check_image_fits_flavor(image, flavor)
        if self.deps.profiles is not None:
            flavor = with_device_profile(flavor, self.deps.profiles)
        request = request_for(flavor_fields(flavor), needs)
        if self.names is not None:
            self.names.check(*request.names)
        return image, flavor, zone, host, needs

    def _image(self, caller: Caller, image_id: str | None) -> ImageRecord | None:
        """Raises `Invalid` for an image that the caller cannot use."""
        if image_id is None:
            raise Invalid("Invalid imageRef provided: servers boot from images only; volumes are not offered.")
        return usable_image(self.deps.images, caller, caller.project_id, image_id)

    def _new_server(
        self, caller: Caller, new: NewServer, flavor: Flavor, zone: str | None, host: str | None, now: datetime
    ) -> Server:
        """The first server of the request."""
        server = Server(
            id="", number=0, name=new.name, project_id=caller.project_id, user_id=caller.user_id,
            image_id=new.image_id, flavor=flavor, vm_state=VmState.BUILDING, task_state=TaskState.SCHEDULING,
            power_state=PowerState.NONE, host=None, wanted_zone=zone, wanted_host=host, metadata=dict(new.metadata),
            tags=new.tags, description=new.description, hostname="",
            key_name=new.key_name, user_data=new.user_data, config_drive=new.config_drive, reservation_id="",
            launch_index=0, scheduler_hints=dict(new.scheduler_hints), locked_by=None, locked_reason=None,
            fault=None, placed=None, devices=(), parked_at=None, parked_image_id=None,
            created_at=now, updated_at=now, launched_at=None, deleted_at=None,
            access_ipv4=new.access_ipv4, access_ipv6=new.access_ipv6, disk_config=new.disk_config,
        )  # fmt: skip
        return _numbered(server, new, self.deps.ids.uuid(), 0)


def _numbered(server: Server, new: NewServer, server_id: str, index: int) -> Server:
    """The server of the request with this launch index, made from any of them."""
    name = new.name if new.count == 1 else f"{new.name}-{index + 1}"
    hostname = new.hostname or hostname_for(name, server_id)
    return replace(server, id=server_id, name=name, hostname=hostname, launch_index=index)


def _build_job(actions: Sequence[Action], payload: Mapping[str, Json]) -> NewJob:
    """One job for all servers of a request, which get hosts together or not at all."""
    first = actions[0]
    if len(actions) == 1:
        payload = {**payload, "action_id": first.id}
        return NewJob(scheduling_id(first.server_id), BUILD_QUEUE, JobKind.BUILD, first.server_id, payload)
    together = [{"id": action.server_id, "action_id": action.id} for action in actions]
    key = f"together:{first.server_id}"
    return NewJob(scheduling_id(key), BUILD_QUEUE, JobKind.BUILD, key, {**payload, "servers": together})
