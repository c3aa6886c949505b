"""Repairs findings, one after the other, and writes each repair into a journal first.

Right before each repair, the healer reads again everything that the finding depends on. The write itself carries the
generation that was read; so if another client changed something in between, that change wins and the finding is left
alone.

For each repair the journal has a line before it, with the present state and the requests that undo it, and a line with
its result. After a kill between the two, check whether the repair was made.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid5

import msgspec

from moorage.audit.collector import (
    AuditServices,
    audited_consumer,
    audited_port,
    audited_server,
    names_in_use_by_requests,
)
from moorage.audit.journal import RepairJournal, RepairStep, Undo
from moorage.audit.lease_collector import audited_aggregate, current_slots
from moorage.audit.model import SERVER_TYPE, AuditedConsumer, AuditSnapshot, Finding, FindingKind, Repair
from moorage.core.clock import Clock
from moorage.core.errors import Conflict
from moorage.core.names import reservation_class
from moorage.placement.client.placement_client import VERSION, Consumer, Inventory
from moorage.reservation.client import publish_slots

#: Microversion of the undo requests to compute.
COMPUTE_VERSION = "2.61"


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    finding: Finding
    is_done: bool
    text: str


class Healer:
    def __init__(self, services: AuditServices, clock: Clock, grace: timedelta, receipt: RepairJournal) -> None:
        self._services = services
        self._clock = clock
        self._grace = grace
        self._journal = receipt

    def repair_findings(
        self, snapshot: AuditSnapshot, findings: Collection[Finding], also: Collection[str]
    ) -> list[RepairOutcome]:
        """Repair each finding that has an action and is safe, or whose subject is in `also`; returns the outcomes."""
        return [
            self._repair(snapshot, finding)
            for finding in findings
            if finding.action is not None and (finding.is_safe or finding.subject in also)
        ]

    def _repair(self, snapshot: AuditSnapshot, finding: Finding) -> RepairOutcome:
        plan = {
            Repair.RELEASE: self._release,
            Repair.SET_OWNER: self._set_owner,
            Repair.DROP_INVENTORY: self._drop_inventory,
            Repair.MAKE_INVENTORY: self._make_inventory,
            Repair.DELETE_PROVIDER: self._delete_provider,
            Repair.SET_HOLDING: self._set_holding,
            Repair.FREE_DEVICES: self._free_devices,
            Repair.DELETE_FLAVOR: self._delete_flavor,
            Repair.GRANT_ACCESS: self._grant_access,
            Repair.SET_SLOTS: self._set_slots,
            Repair.JOIN_POOL: self._join_pool,
            Repair.DELETE_CLASS: self._delete_class,
            Repair.DELETE_TRAIT: self._delete_trait,
            Repair.RELEASE_PORT: self._release_port,
        }[finding.action or Repair.RELEASE]
        step = plan(snapshot, finding)
        if isinstance(step, str):
            return self._record_outcome(finding, is_done=False, text=f"left alone: {step}")
        self._journal.write_entry(
            {
                "at": self._clock.now().isoformat(),
                "about_to": finding.action,
                "finding": {
                    "kind": finding.kind,
                    "subject": finding.subject,
                    "where": finding.where,
                    "why": finding.why,
                },
                "before": step.before,
                "undo": list(step.undo),
            }
        )
        try:
            step.apply()
        except Conflict as conflict:
            return self._record_outcome(
                finding, is_done=False, text=f"left alone: it changed meanwhile ({conflict.message})"
            )
        return self._record_outcome(finding, is_done=True, text="done")

    def _record_outcome(self, finding: Finding, *, is_done: bool, text: str) -> RepairOutcome:
        self._journal.write_entry(
            {"at": self._clock.now().isoformat(), "subject": finding.subject, "done": is_done, "result": text}
        )
        return RepairOutcome(finding, is_done, text)

    # --- consumers ----------------------------------------------------------------------------------------------

    def _release(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        seen = self._as_seen(snapshot.consumers[finding.subject])
        if isinstance(seen, str):
            return seen
        if self._clock.now() - seen.written_at < self._grace:
            return "it is too young"
        if self._services.compute is None or self._services.compute.server_owner(seen.uuid) is not None:
            return "compute knows it now"
        if self._services.accelerators is not None and self._services.accelerators.requests(seen.uuid):
            return "an accelerator is attached to it now"
        empty = dataclasses.replace(seen, allocations={})
        return RepairStep(
            _consumer_document(seen),
            (_put_allocations_request(seen, generation=None),),
            lambda: self._services.placement.hold(empty),
        )

    def _set_owner(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        seen = self._as_seen(snapshot.consumers[finding.subject])
        if isinstance(seen, str):
            return seen
        owner = None if self._services.compute is None else self._services.compute.server_owner(seen.uuid)
        if finding.owner is None or owner != (finding.owner.project_id, finding.owner.user_id):
            return "compute names another owner now"
        owned = dataclasses.replace(seen, project_id=owner[0], user_id=owner[1])
        undo = _put_allocations_request(seen, generation=None if seen.generation is None else seen.generation + 1)
        return RepairStep(_consumer_document(seen), (undo,), lambda: self._services.placement.hold(owned))

    def _set_holding(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        """Set the server's allocations to the finding's, if the server, its host and its flavor have not changed."""
        uuid, compute = finding.subject, self._services.compute
        audited, holder = snapshot.consumers.get(uuid), self._services.placement.holder(uuid)
        if (None if holder is None else audited_consumer(holder)) != audited:
            return "it changed meanwhile"
        if compute is None or snapshot.compute is None or finding.holding is None:
            return "the compute service is missing"
        state, owner = audited_server(compute.server_state(uuid)), compute.server_owner(uuid)
        if owner is None or state is None or state != snapshot.compute.states[uuid]:
            return "the server changed meanwhile"
        if self._services.accelerators is not None and self._services.accelerators.requests(uuid):
            return "an accelerator is attached to it now"
        if holder is None:
            holder = Consumer(uuid, None, *owner, SERVER_TYPE, {}, self._clock.now())
            undo = _placement_request("DELETE", f"/allocations/{uuid}")
        else:
            gone = not finding.holding
            undo = _put_allocations_request(
                holder, generation=None if gone or holder.generation is None else holder.generation + 1
            )
        right = dataclasses.replace(holder, allocations=finding.holding)
        return RepairStep(_consumer_document(holder), (undo,), lambda: self._services.placement.hold(right))

    def _as_seen(self, audited: AuditedConsumer) -> Consumer | str:
        """The consumer as it is now; a reason (str) if it changed since the snapshot."""
        now = self._services.placement.holder(audited.uuid)
        if now is None:
            return "it has no allocations any more"
        return now if audited_consumer(now) == audited else "it changed meanwhile"

    def _free_devices(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        """Free devices, which erases their content: there is no undo, and the journal only lists the requests."""
        accelerators, compute = self._services.accelerators, self._services.compute
        if accelerators is None or compute is None or compute.server_owner(finding.subject) is not None:
            return "compute knows it now"
        now = accelerators.requests(finding.subject)
        known = () if snapshot.accelerators is None else snapshot.accelerators.requests
        if {(one.uuid, one.changed_at) for one in now} != {
            (one.uuid, one.changed_at) for one in known if one.server == finding.subject
        }:
            return "it changed meanwhile"
        before = [{"uuid": one.uuid, "host": one.hostname, "provider": one.device_rp_uuid} for one in now]
        return RepairStep({"requests": before}, (), lambda: accelerators.delete_requests_of(finding.subject))

    # --- providers ----------------------------------------------------------------------------------------------

    def _drop_inventory(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        name = finding.resource_class or ""
        generation, inventories = self._services.placement.inventories(finding.subject)
        if inventories.get(name) != snapshot.providers[finding.subject].inventories[name]:
            return "it changed meanwhile"
        if self._services.reservations is None or name in {
            reservation_class(one.id)
            for lease in self._services.reservations.leases()
            for one in lease.reservations
            if one.status != "deleted"
        }:
            return "a lease has it now"
        left = {its: inventory for its, inventory in inventories.items() if its != name}
        path = f"/resource_providers/{finding.subject}/inventories"
        body = {"resource_provider_generation": generation + 1, "resource_class": name}
        undo = (
            _placement_request("PUT", f"/resource_classes/{name}"),
            _placement_request("POST", path, body | dataclasses.asdict(inventories[name])),
        )
        before = {"generation": generation, "inventory": {name: dataclasses.asdict(inventories[name])}}
        return RepairStep(
            before, undo, lambda: self._services.placement.set_inventories(finding.subject, generation, left)
        )

    def _make_inventory(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        """Make the inventory as the start of the lease does. A new provider has the same uuid in each attempt."""
        placement, name, host = self._services.placement, finding.resource_class or "", finding.host or ""
        slots = self._slots(finding.subject).get(host, 0)
        if snapshot.reservations is None or slots != snapshot.reservations.slots[finding.subject][host]:
            return "the lease changed meanwhile"
        root, ours = placement.provider_by_name(host), placement.provider_by_name(finding.where)
        if root is None:
            return "the host's own provider is gone now"
        uuid = str(uuid5(UUID(root.uuid), finding.where)) if ours is None else ours.uuid
        inventories = {} if ours is None else placement.inventories(uuid)[1]
        if name in inventories:
            return "it exists again"
        undo = [_placement_request("DELETE", f"/resource_providers/{uuid}/inventories/{name}")]
        if ours is None:
            undo.append(_placement_request("DELETE", f"/resource_providers/{uuid}"))
        before: dict[str, object] = {"provider": None if ours is None else uuid, "inventory": {}}

        def make() -> None:
            placement.ensure_class(name)
            publish_slots(placement, host, name, slots, uuid=uuid)

        return RepairStep(before, tuple(undo), make)

    def _delete_provider(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        """Delete the provider; Placement itself refuses that if it has children or allocations."""
        placement = self._services.placement
        audited = snapshot.providers[finding.subject]
        now = placement.provider(finding.subject)
        if now is None:
            return "it is gone already"
        generation, inventories = placement.inventories(finding.subject)
        if inventories != audited.inventories or placement.holders(finding.subject)[1]:
            return "it changed meanwhile"
        body: dict[str, object] = {"name": now.name, "uuid": now.uuid}
        if now.parent_uuid is not None:
            body["parent_provider_uuid"] = now.parent_uuid
        parts = {
            "inventories": _inventory_documents(inventories),
            "traits": sorted(placement.traits(finding.subject)[1]),
            "aggregates": sorted(placement.aggregates(finding.subject)[1]),
        }
        undo = [_placement_request("POST", "/resource_providers", body)]
        for name, value in parts.items():
            if value:  # each of these requests increases the generation
                content = {"resource_provider_generation": len(undo) - 1, name: value}
                undo.append(_placement_request("PUT", f"/resource_providers/{now.uuid}/{name}", content))
        before = body | {"generation": generation} | parts
        return RepairStep(before, tuple(undo), lambda: placement.delete_provider(finding.subject))

    # --- objects of leases --------------------------------------------------------------------------------------

    def _slots(self, reservation: str) -> Mapping[str, int]:
        return current_slots(self._services.reservations, self._services.placement, reservation)

    def _set_slots(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        placement, name, host = self._services.placement, finding.resource_class or "", finding.host or ""
        slots = self._slots(finding.subject)
        if snapshot.reservations is None or slots != snapshot.reservations.slots[finding.subject]:
            return "the lease changed meanwhile"
        provider = placement.provider_by_name(finding.where)
        if provider is None:
            return "the provider is gone now"
        generation, inventories = placement.inventories(provider.uuid)
        if inventories.get(name) != snapshot.providers[provider.uuid].inventories[name]:
            return "it changed meanwhile"
        planned = slots.get(host, 0)
        if placement.usages(provider.uuid).get(name, 0) > planned:
            return "more of it is in use now"
        wanted = {its: one for its, one in inventories.items() if its != name}
        if planned:
            wanted[name] = dataclasses.replace(inventories[name], total=planned)
        was = dataclasses.asdict(inventories[name])
        path, body = (
            f"/resource_providers/{provider.uuid}/inventories",
            {"resource_provider_generation": generation + 1},
        )
        undo = (
            _placement_request("PUT", f"{path}/{name}", body | was)
            if planned
            else _placement_request("POST", path, body | {"resource_class": name} | was)
        )
        before = {"generation": generation, "inventory": {name: was}}
        return RepairStep(before, (undo,), lambda: placement.set_inventories(provider.uuid, generation, wanted))

    def _delete_flavor(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        compute, uuid = self._services.compute, finding.subject
        if compute is None or self._services.reservations is None:
            return "compute and reservations are not both available"
        if any(one.id == uuid for lease in self._services.reservations.leases() for one in lease.reservations):
            return "a lease has it now"
        flavor = compute.flavor(uuid)
        if flavor is None:
            return "it is gone already"
        if servers := compute.servers_of_flavor(uuid):
            return f"{len(servers)} server(s) have it, {servers[0].id} among them"
        access = sorted(compute.flavor_access(uuid))
        made = {
            "id": uuid,
            "name": flavor.name,
            "vcpus": flavor.vcpus,
            "ram": flavor.ram_mb,
            "disk": flavor.disk_gb,
            "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
            "swap": flavor.swap_mb,
            "os-flavor-access:is_public": flavor.is_public,
        }
        specs = dict(flavor.extra_specs)
        undo = [_compute_request("POST", "/v2.1/flavors", {"flavor": made})]
        if specs:
            undo.append(_compute_request("POST", f"/v2.1/flavors/{uuid}/os-extra_specs", {"extra_specs": specs}))
        undo += [
            _compute_request("POST", f"/v2.1/flavors/{uuid}/action", {"addTenantAccess": {"tenant": project}})
            for project in access
        ]
        before = {"flavor": made, "extra_specs": specs, "access": access}
        return RepairStep(before, tuple(undo), lambda: compute.delete_flavor(uuid))

    def _grant_access(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        compute, uuid = self._services.compute, finding.subject
        if compute is None or snapshot.reservations is None or uuid not in self._running():
            return "the lease changed meanwhile"
        project = snapshot.reservations.flavors[uuid].project_id
        access = compute.flavor_access(uuid)
        if project in access or not compute.has_flavor(uuid):
            return "it changed meanwhile"
        body = {"removeTenantAccess": {"tenant": project}}
        undo = _compute_request("POST", f"/v2.1/flavors/{uuid}/action", body)
        return RepairStep({"access": sorted(access)}, (undo,), lambda: compute.add_flavor_access(uuid, project))

    def _running(self) -> frozenset[str]:
        """Ids of the reservations of all leases that are ACTIVE now."""
        leases = () if self._services.reservations is None else self._services.reservations.leases()
        return frozenset(one.id for lease in leases if lease.status == "ACTIVE" for one in lease.reservations)

    def _join_pool(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        compute, reservations = self._services.compute, self._services.reservations
        if compute is None or reservations is None:
            return "compute and reservations are not both available"
        if finding.subject not in {host.service_name for host in reservations.hosts()}:
            return "it is not reserved any more"
        aggregates = compute.aggregates()
        if any(finding.subject in one.hosts and audited_aggregate(one).is_lent for one in aggregates):
            return "it is lent now"
        pool = next((one for one in aggregates if one.name == self._services.pool), None)
        if pool is None:
            return f"there is no aggregate {self._services.pool}: reserving a host makes it"
        body = {"remove_host": {"host": finding.subject}}
        undo = _compute_request("POST", f"/v2.1/os-aggregates/{pool.id}/action", body)
        return RepairStep({"aggregates": []}, (undo,), lambda: compute.add_host(pool.id, finding.subject))

    # --- ports --------------------------------------------------------------------------------------------------

    def _release_port(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        """Take the port from its server, which deletes a port that was made for it."""
        ports, compute = self._services.ports, self._services.compute
        if ports is None or compute is None or snapshot.ports is None:
            return "compute and the network service are not both available"
        seen = ports.port(finding.subject)
        if seen is None or audited_port(seen) != snapshot.ports[finding.subject]:
            return "it changed meanwhile"
        listed = compute.interface_ports(seen.device_id)
        if listed is None and compute.server_owner(seen.device_id) is not None:
            return "compute knows the server now"
        if listed is not None and (seen.id in listed or finding.kind is FindingKind.PORT_WITHOUT_SERVER):
            return "the server has it now"
        undo = {
            "id": seen.id, "project_id": seen.project_id, "server_id": seen.device_id, "host": seen.host,
            "network_id": seen.network_id, "address": next(iter(seen.addresses), None),
        }  # fmt: skip
        return RepairStep(
            msgspec.to_builtins(seen),
            (_network_request("PUT", "/moorage/v1/server-ports", {"ports": [undo]}),),
            lambda: ports.release_port(seen.device_id, seen.id),
        )

    # --- names --------------------------------------------------------------------------------------------------

    def _delete_class(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        """Delete the class; Placement itself refuses that if a provider offers it."""
        placement, name = self._services.placement, finding.subject
        if name in names_in_use_by_requests(self._services) or name in self._reserved():
            return "it is in use now"
        undo = _placement_request("PUT", f"/resource_classes/{name}")
        return RepairStep({"class": name}, (undo,), lambda: placement.delete_class(name))

    def _delete_trait(self, snapshot: AuditSnapshot, finding: Finding) -> RepairStep | str:
        """Delete the trait; Placement itself refuses that if a provider has it."""
        placement, name = self._services.placement, finding.subject
        if name in names_in_use_by_requests(self._services):
            return "it is in use now"
        return RepairStep(
            {"trait": name}, (_placement_request("PUT", f"/traits/{name}"),), lambda: placement.delete_trait(name)
        )

    def _reserved(self) -> frozenset[str]:
        """Resource classes of all reservations."""
        leases = () if self._services.reservations is None else self._services.reservations.leases()
        return frozenset(reservation_class(one.id) for lease in leases for one in lease.reservations)


def _inventory_documents(inventories: Mapping[str, Inventory]) -> dict[str, object]:
    return {name: dataclasses.asdict(inventory) for name, inventory in inventories.items()}


def _consumer_document(holder: Consumer) -> dict[str, object]:
    return dataclasses.asdict(holder) | {"written_at": holder.written_at.isoformat()}


def _put_allocations_request(holder: Consumer, *, generation: int | None) -> Undo:
    body: dict[str, object] = {
        "allocations": {uuid: {"resources": dict(units)} for uuid, units in holder.allocations.items()},
        "project_id": holder.project_id,
        "user_id": holder.user_id,
        "consumer_generation": generation,
    }
    if holder.type == "unknown":
        return _placement_request("PUT", f"/allocations/{holder.uuid}", body, version="1.37")
    return _placement_request("PUT", f"/allocations/{holder.uuid}", body | {"consumer_type": holder.type})


def _placement_request(
    method: str, path: str, body: Mapping[str, object] | None = None, version: str = VERSION
) -> Undo:
    return {"service": "placement", "method": method, "path": path, "microversion": version, "body": body}


def _compute_request(method: str, path: str, body: Mapping[str, object]) -> Undo:
    return {"service": "compute", "method": method, "path": path, "microversion": COMPUTE_VERSION, "body": body}


def _network_request(method: str, path: str, body: Mapping[str, object]) -> Undo:
    """Only users with the role service may send it."""
    return {"service": "network", "method": method, "path": path, "microversion": None, "body": body}
