"""Use cases that the server's host carries out: power, rebuild, rescue, images of its disk, shelve, reset of the state.

Each decides, commits, then wakes the host. Moves to other hosts are in `move_service`, deletions in `delete_service`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import forget_image_job, server_situation
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.servers import GUEST_SETTINGS, MOVE_QUEUE, Flavor, Server, VmState
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.requests.host_commands import HostCommands, PayloadBuilder, server_job
from moorage.compute.requests.server_request import (
    check_image_fits_flavor,
    flavor_fields,
    needs_config_drive,
    usable_image,
)
from moorage.compute.requests.server_service import MAX_METADATA_ITEMS, visible
from moorage.compute.store import host_store, keypair_store, move_store, server_store
from moorage.compute.store.scheduling_store import host_state
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, MoorageError, OverQuota
from moorage.db.session import in_transaction, read
from moorage.images.attributes import refuse_base
from moorage.images.base import CallerView, ImageRecord
from moorage.images.client import ImageWriter
from moorage.jobs.contract import ImagePayload, RebuildJob, RescueJob, ShelveJob, SnapshotJob
from moorage.scheduler.filters import HostState, ServerRequirements, applies_guest_settings, runs_the_image
from moorage.scheduler.flavor_resources import ResourceRequest, request_for, required_platform, scheduling_properties
from moorage.scheduler.spec_rules import (
    guest_settings,
    inherited_properties,
    refuse_contradictions,
    refuse_unhonoured,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rebuild:
    """A rebuild request. `changes`: columns of the server that it sets besides the image."""

    image_id: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NewImage:
    """An image to make of a server's disk; with `backup_type` a backup, of which `rotation` are kept."""

    name: str
    metadata: Mapping[str, str]
    backup_type: str | None = None
    rotation: int | None = None


@dataclass(frozen=True)
class OperateService:
    deps: ComputeDeps
    commands: HostCommands
    migrations: MigrationEngine

    def new_password(self) -> str:
        """A random password of 12 characters for the guest's administrator, for a request without one."""
        return self.deps.ids.uuid().replace("-", "")[:12]

    def begin_operation(
        self,
        caller: Caller,
        request_id: str,
        server_id: str,
        operation: Operation,
        payload: PayloadBuilder = server_job,
    ) -> Server:
        """Begins `operation`, which the host carries out and reports. Returns the server as it was before."""

        def begin(connection: Connection) -> tuple[Server, str]:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, server_situation(server), caller)
            queue = self.commands.command_host(connection, caller, request_id, server, operation, payload)
            return server, queue

        server, queue = in_transaction(self.deps.engine, begin)
        self.deps.hints.send(queue)
        return server

    def rebuild(self, caller: Caller, request_id: str, server_id: str, wanted: Rebuild) -> None:
        """Rebuilds from another image or the same one; host, devices and allocations stay.

        Raises `Invalid` for an image that the server cannot run on its host, and for a key pair that the caller does
        not have. Key pairs belong to users; as in Nova, it need not be a key pair of the server's creator.
        """
        if len(wanted.changes.get("metadata", ())) > MAX_METADATA_ITEMS:
            raise OverQuota(f"Maximum number of metadata items exceeds {MAX_METADATA_ITEMS}")
        operation = lifecycle.REBUILD
        image = usable_image(self.deps.images, caller, self._project_of(caller, server_id), wanted.image_id)
        renewed: dict[str, Any] = {}
        if image is not None:
            specs = refuse_unhonoured(self.deps.spec_rules, {}, image.properties)
            image = replace(image, properties=specs.image_properties)
            renewed = {"image_properties": dict(image.properties)}
            if needs_config_drive(image.properties):
                renewed["config_drive"] = True
            self._check_fits(caller, server_id, image)

        def begin_rebuild(connection: Connection) -> str:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, server_situation(server), caller)
            changes = {**wanted.changes, "image_id": wanted.image_id, **renewed}
            if "key_name" in changes:
                changes["key_data"] = keypair_store.public_key(connection, caller.user_id, changes["key_name"])
            server_store.update_server(connection, server_id, self.deps.clock.now(), **changes)
            start = operation.after(server.vm_state) is VmState.ACTIVE
            return self.commands.command_host(
                connection, caller, request_id, replace(server, **changes), operation,
                lambda header, key: RebuildJob(**header, key=key, start=start),
            )  # fmt: skip

        self.deps.hints.send(in_transaction(self.deps.engine, begin_rebuild))

    def _project_of(self, caller: Caller, server_id: str) -> str:
        """Raises `NotFound` if the caller may not see the server."""
        with read(self.deps.engine) as connection:
            return visible(server_store.server(connection, server_id), caller, server_id).project_id

    def _check_fits(self, caller: Caller, server_id: str, image: ImageRecord) -> None:
        """Asks Placement, so it runs outside any transaction."""
        with read(self.deps.engine) as connection:
            server = visible(server_store.server(connection, server_id), caller, server_id)
            host = None if server.host is None else host_store.host(connection, server.host)
        check_image_fits_flavor(image, server.flavor)
        refuse_contradictions(server.flavor.extra_specs, image.properties)
        if host is None or self.deps.placement is None:
            return
        providers = {host.report.provider_uuid, *(server.placed.allocations if server.placed else ())}
        traits = frozenset().union(*(self.deps.placement.traits(uuid)[1] for uuid in sorted(providers)))
        kind, processors = host.report.hypervisor_type, host.report.cpu_info
        view = host_state(
            host.name, host.report.provider_uuid, "", kind, processors, is_up=True, is_enabled=host.is_enabled,
            applies_settings=GUEST_SETTINGS in host.report.capabilities,
        )  # fmt: skip
        reason = image_objection(server.flavor, server.image_properties or {}, image.properties, view, traits)
        if reason is not None:
            raise Invalid(f"Instance {server_id} cannot be rebuilt from image {image.id}: {reason}.")

    def rescue(self, caller: Caller, request_id: str, server_id: str, image_id: str | None, password: str) -> None:
        """Boots `image_id`, or the server's own image, with the server's disk attached as a second disk."""
        if image_id is not None:
            image_record = usable_image(self.deps.images, caller, self._project_of(caller, server_id), image_id)
            if image_record is not None:
                refuse_unhonoured(self.deps.spec_rules, {}, image_record.properties, is_rescue=True)

        def begin_rescue(connection: Connection) -> str:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(lifecycle.RESCUE, server_situation(server), caller)
            image = image_id or server.image_id
            if image is None:
                raise Invalid(f"Instance {server_id} has no image for the rescue; name one.")
            return self.commands.command_host(
                connection, caller, request_id, server, lifecycle.RESCUE,
                lambda header, key: RescueJob(**header, key=key, image_id=image, password=password),
            )  # fmt: skip

        self.deps.hints.send(in_transaction(self.deps.engine, begin_rescue))

    def make_image(self, caller: Caller, request_id: str, server_id: str, wanted: NewImage) -> str:
        """Returns the id of the image that is being made. Raises `Invalid` for metadata that are base attributes of an
        image.
        """
        if self.deps.image_writer is None:
            raise Conflict("No image service is configured, so no image can be made.")
        operation = lifecycle.SNAPSHOT if wanted.backup_type is None else lifecycle.BACKUP
        refuse_base(wanted.metadata, f"metadata of {operation.name}")
        image_id = self.deps.ids.uuid()

        def begin_image(connection: Connection) -> tuple[Server, dict[str, str], str]:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, server_situation(server), caller)
            properties = image_properties(server, wanted)
            image = ImagePayload(image_id, wanted.name, properties)
            queue = self.commands.command_host(
                connection, caller, request_id, server, operation,
                lambda header, key: SnapshotJob(**header, key=key, image=image, rotation=wanted.rotation),
            )  # fmt: skip
            return server, properties, queue

        server, properties, queue = in_transaction(self.deps.engine, begin_image)
        self._announce(self.deps.image_writer, CallerView.of(caller), image_id, wanted.name, server, properties)
        self.deps.hints.send(queue)
        return image_id

    def _announce(
        self,
        writer: ImageWriter,
        view: CallerView,
        image_id: str,
        name: str,
        server: Server,
        properties: Mapping[str, str],
    ) -> None:
        """Announces the image so that a client finds it at once. If this fails, the host makes the image later."""
        try:
            writer.announce(view, image_id, name, server.project_id, properties)
        except MoorageError as error:
            log.warning("an image could not be announced", extra={"image": image_id, "reason": error.message})

    def shelve(self, caller: Caller, request_id: str, server_id: str) -> None:
        """Turns the server off and makes an image of its disk; by default the server then leaves its host."""
        if self.deps.image_writer is None:
            raise Conflict("No image service is configured, so no image can be made.")
        image_id = self.deps.ids.uuid()

        def begin_shelve(connection: Connection) -> list[str]:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(lifecycle.SHELVE, server_situation(server), caller)
            wanted = NewImage(f"{server.name}-shelved", {})
            image = ImagePayload(image_id, wanted.name, image_properties(server, wanted))
            start = server.vm_state is not VmState.STOPPED
            former, queues = server.parked_image_id, list[str]()
            if former is not None:  # an administrator has reset it since
                forget = forget_image_job(self.deps.ids.uuid(), server_id, former, key=former)
                server_store.BUILD_JOBS.enqueue(connection, forget, self.deps.clock.now())
                queues.append(MOVE_QUEUE)
            server_store.update_server(connection, server_id, self.deps.clock.now(), parked_image_id=image_id)
            queues.append(
                self.commands.command_host(
                    connection, caller, request_id, server, lifecycle.SHELVE,
                    lambda header, key: ShelveJob(**header, key=key, image=image, start=start),
                )
            )  # fmt: skip
            return queues

        for queue in in_transaction(self.deps.engine, begin_shelve):
            self.deps.hints.send(queue)

    def reset_state(self, caller: Caller, server_id: str, state: VmState) -> None:
        """Sets the server to `state` without a task, at once, for administrators. Abandons its moves in progress."""

        def set_state(connection: Connection) -> Sequence[str]:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            after = lifecycle.SERVER_STATES.check_transition(server.vm_state, state)
            server_store.update_server(connection, server_id, self.deps.clock.now(), vm_state=after, task_state=None)
            moving = move_store.open_moves(connection, server_id)
            return [queue for move in moving for queue in self.migrations.abandon_move(connection, move, server)]

        for queue in in_transaction(self.deps.engine, set_state):
            self.deps.hints.send(queue)


def image_properties(server: Server, wanted: NewImage) -> dict[str, str]:
    """The properties that Nova sets on the image of a server's disk, the caller's, and those of the server's image.

    As in Nova, the caller's metadata may call a snapshot another type of image. In Nova this also holds for a backup,
    and for the id of the server; a backup that is renamed so is never rotated out.
    """
    properties = {
        **inherited_properties(server.image_properties or {}),
        "image_type": "snapshot",
        **wanted.metadata,
        "instance_uuid": server.id,
        "image_location": "snapshot",
        "user_id": server.user_id,
        "owner_id": server.project_id,
    }
    if server.image_id is not None:
        properties["base_image_ref"] = server.image_id
    if wanted.backup_type is not None:
        properties |= {"image_type": "backup", "backup_type": wanted.backup_type}
    return properties


def image_objection(
    flavor: Flavor, before: Mapping[str, str], after: Mapping[str, str], host: HostState, traits: frozenset[str]
) -> str | None:
    """The reason why a server cannot stay on its host with another image; None if it can.

    `before`, `after`: properties of the images; `traits`: of the host and of all providers with allocations of the
    server. Raises `Invalid` if `after` and the flavor contradict each other.
    """
    needs = scheduling_properties(after)
    old, new = (
        request_for(flavor_fields(flavor), scheduling_properties(before)),
        request_for(flavor_fields(flavor), needs),
    )
    if (wanted := _amounts(new)) != (held := _amounts(old)):
        return f"it requests {_listed(wanted)}, but the server has {_listed(held)}"
    plain = new.groups.get("")
    if plain is not None:
        if missing := sorted(set(plain.required) - traits):
            return f"it requires {', '.join(missing)}, which the host of the server does not have"
        if unwanted := sorted(set(plain.forbidden) & traits):
            return f"it forbids {', '.join(unwanted)}, which the host of the server has"
    architecture, hypervisor_type = required_platform(needs)
    wanted_settings = tuple(guest_settings(flavor.extra_specs, after))
    requirements = ServerRequirements(
        "", architecture=architecture, hypervisor_type=hypervisor_type, guest_settings=wanted_settings
    )
    return runs_the_image(host, requirements) or applies_guest_settings(host, requirements)


def _amounts(request: ResourceRequest) -> dict[str, int]:
    total: dict[str, int] = {}
    for group in request.groups.values():
        for name, amount in group.resources.items():
            total[name] = total.get(name, 0) + amount
    return total


def _listed(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))
