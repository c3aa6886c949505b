"""The use case of creating servers: resolve references, check limits, insert rows, enqueue the job that selects hosts.

A request that could never be placed is refused here, not by the scheduler minutes later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import msgspec
from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import scheduling_id
from moorage.compute.model.quota import Amounts
from moorage.compute.model.servers import (
    BUILD_QUEUE,
    Action,
    Flavor,
    NetworkInterface,
    PowerState,
    Server,
    ServerGroup,
    TaskState,
    VmState,
)
from moorage.compute.requests.group_service import GroupService
from moorage.compute.requests.network_choice import chosen_interfaces
from moorage.compute.requests.quota_service import QuotaService, ServerAdmission, check_metadata_limit, flavor_amounts
from moorage.compute.requests.server_request import (
    NewServer,
    PlacementNames,
    check_image_fits_flavor,
    flavor_fields,
    hostname_for,
    needs_config_drive,
    requested_port_groups,
    requested_zone_and_host,
    usable_flavor,
    usable_image,
    with_device_profile,
    with_honoured_specs,
)
from moorage.compute.requests.server_service import SCHEDULE_EVENT
from moorage.compute.store import action_store, keypair_store, server_store
from moorage.core.caller import Caller
from moorage.core.errors import Invalid, MoorageError, Unavailable
from moorage.core.json import Json, JsonObject
from moorage.db.session import GroupedWrites, in_transaction, read
from moorage.images.base import ImageRecord
from moorage.jobs.contract import JobKind
from moorage.jobs.model import NewJob
from moorage.scheduler.flavor_resources import request_for, scheduling_properties
from moorage.telemetry.tracing import with_trace

#: Maximum number of servers of one request; they are inserted in one transaction, and get hosts together.
MAX_SERVERS_PER_REQUEST = 1000


@dataclass(frozen=True)
class _Order:
    """A request to create copies of the server `model`. Each adds `amounts` to the project's usage."""

    caller: Caller
    request_id: str
    new: NewServer
    most: int  #: maximum number of servers
    model: Server
    amounts: Amounts
    others: Amounts  #: `QuotaService.other_usage`
    member_limit: int
    payload: JsonObject  #: of the job, without its actions

    @property
    def server_groups(self) -> tuple[str, ...]:
        """Orders of one server group must see each other's members, so they never share a transaction."""
        group = self.new.scheduler_hints.get("group")
        return () if group is None else (str(group),)


@dataclass(frozen=True)
class _Accepted:
    order: _Order
    group: ServerGroup | None
    servers: list[Server]
    actions: list[Action]


@dataclass(frozen=True)
class CreateService:
    """`names` None: names of resource classes and traits are not checked."""

    deps: ComputeDeps
    quotas: QuotaService
    groups: GroupService
    names: PlacementNames | None

    def create_servers(self, caller: Caller, request_id: str, new: NewServer, *, may_force_host: bool) -> list[Server]:
        """Creates `new.count` servers in BUILD, with a job that selects their hosts.

        If the project's limits do not allow all, fewer are created, at least `new.least`.
        """
        interfaces, most = chosen_interfaces(self.deps.networks, caller, new)
        image, flavor, zone, host, needs = self._resolve_references(
            caller, new, interfaces, may_force_host=may_force_host
        )
        member_limit = self.groups.member_limit(caller.project_id) if "group" in new.scheduler_hints else 0
        amounts = flavor_amounts(flavor)
        others = self.quotas.other_usage(caller.project_id, amounts)
        model = replace(
            self._new_server(caller, new, flavor, zone, host, self.deps.clock.now()),
            reservation_id=f"r-{self.deps.ids.uuid()[:8]}",
            image_properties=None if image is None else dict(image.properties),
            config_drive=new.config_drive
            or bool(interfaces)  # the guest learns its addresses there: no DHCP server of ours gives them
            or (image is not None and needs_config_drive(image.properties)),
            interfaces=interfaces,
        )
        payload = with_trace(
            {
                "request_id": request_id,
                "image_properties": needs,
                **({"has_interfaces": True} if interfaces else {}),
            }
        )
        order = _Order(caller, request_id, new, most, model, amounts, others, member_limit, payload)
        built = self._orders.submit(order)
        self.deps.hints.send(BUILD_QUEUE)
        return built

    @cached_property
    def _orders(self) -> "GroupedWrites[_Order, list[Server]]":
        """The orders that arrive during a transaction share the next one."""
        return GroupedWrites(
            lambda orders: in_transaction(self.deps.engine, lambda connection: self._insert(connection, orders)),
            lambda order: order.server_groups,
        )

    def _insert(self, connection: Connection, orders: Sequence["_Order"]) -> list[list[Server] | Exception]:
        """The servers of each order, or why it is refused. Decides all orders before the first row is written."""
        projects = self.quotas.lock_projects(connection, {order.caller.project_id for order in orders})
        outcomes: list[list[Server] | Exception] = []
        accepted: list[_Accepted] = []
        for order in orders:
            try:
                one = self._accept(connection, order, projects[order.caller.project_id])
            except Unavailable:
                raise
            except MoorageError as error:
                outcomes.append(error)
            else:
                outcomes.append(one.servers)
                accepted.append(one)
        if not accepted:
            return outcomes
        for project in projects.values():
            project.save(connection)
        counted = {server.id: one.order.amounts for one in accepted for server in one.servers}
        server_store.insert_servers(connection, [server for one in accepted for server in one.servers], counted)
        action_store.begin_actions(connection, [action for one in accepted for action in one.actions], SCHEDULE_EVENT)
        for one in accepted:
            if one.group is not None:
                ids = [server.id for server in one.servers]
                self.groups.add_members(connection, one.group, ids, one.order.member_limit)
        jobs = [_build_job(one.actions, one.order.payload) for one in accepted]
        server_store.BUILD_JOBS.enqueue_all(connection, jobs, self.deps.clock.now())
        return outcomes

    def _accept(self, connection: Connection, order: "_Order", project: ServerAdmission) -> "_Accepted":
        caller, new, model = order.caller, order.new, order.model
        # One more than allowed, so that it is refused below, unless the project's limits allow fewer.
        most = min(order.most, MAX_SERVERS_PER_REQUEST + 1)
        count = project.servers_that_fit(order.amounts, min(new.least, new.count), most, order.others)
        if count > MAX_SERVERS_PER_REQUEST:
            raise Invalid(
                f"One request creates at most {MAX_SERVERS_PER_REQUEST} servers; create the others with further "
                "requests."
            )
        check_metadata_limit(project.limits, new.metadata)
        group = self.groups.group_from_hints(connection, caller, new.scheduler_hints, model.flavor.id)
        key_data = keypair_store.public_key(connection, caller.user_id, new.key_name)
        project.add_servers(order.amounts, count)
        model = replace(model, key_data=key_data)
        servers = [self._with_port_ids(_numbered(model, new, self.deps.ids.uuid(), at)) for at in range(count)]
        actions = [
            Action(
                self.deps.ids.uuid(), server.id, order.request_id, lifecycle.CREATE.name, caller.user_id,
                caller.project_id, model.created_at, model.created_at, None,
            )
            for server in servers
        ]  # fmt: skip
        return _Accepted(order, group, servers, actions)

    def _with_port_ids(self, server: Server) -> Server:
        """The server with ids for the ports that are to be made. With an id, a port is made once, even if the builder
        dies before it has recorded the port.
        """
        if not server.interfaces:
            return server
        named = [
            msgspec.structs.replace(one, port_id=self.deps.ids.uuid()) if one.is_made else one
            for one in server.interfaces
        ]
        return replace(server, interfaces=tuple(named))

    def hypothetical_server(
        self, caller: Caller, new: NewServer, *, may_force_host: bool
    ) -> tuple[Server, dict[str, str]]:
        """(a server that is not created, its image's requirements on the host). Raises as `create_servers` does; the
        image is optional.
        """
        interfaces: Sequence[NetworkInterface] = ()
        if any(one.port_id for one in new.interfaces or ()):  # the device profile of a port limits the hosts
            interfaces, _ = chosen_interfaces(self.deps.networks, caller, new)
        _, flavor, zone, host, needs = self._resolve_references(
            caller, new, interfaces, may_force_host=may_force_host, image_needed=False
        )
        with read(self.deps.engine) as connection:
            self.groups.group_from_hints(connection, caller, new.scheduler_hints, flavor.id, lock=False)
        return self._new_server(caller, new, flavor, zone, host, self.deps.clock.now()), needs

    def _resolve_references(
        self,
        caller: Caller,
        new: NewServer,
        interfaces: Sequence[NetworkInterface],
        *,
        may_force_host: bool,
        image_needed: bool = True,
    ) -> tuple[ImageRecord | None, Flavor, str | None, str | None, dict[str, str]]:
        """(image, flavor, zone, host, image properties that matter for scheduling), all checked."""
        image = self._image(caller, new.image_id) if new.image_id or image_needed else None
        with read(self.deps.engine) as connection:
            flavor = usable_flavor(connection, caller, new.flavor_id)
            zone, host = requested_zone_and_host(connection, new, may_force_host=may_force_host)
            keypair_store.public_key(connection, caller.user_id, new.key_name)
        if image is not None:
            check_image_fits_flavor(image, flavor)
        flavor, properties = with_honoured_specs(
            self.deps.spec_rules, flavor, {} if image is None else image.properties
        )
        image = None if image is None else replace(image, properties=properties)
        needs = scheduling_properties(properties)
        of_ports = requested_port_groups(interfaces, self.deps.profiles, self.deps.port_device_profiles)
        flavor = with_device_profile(flavor, self.deps.profiles, self.deps.spec_rules, of_ports)
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
