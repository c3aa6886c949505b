"""Use cases of accelerator requests (ARQs): create from a profile, bind through the host's agent, unbind, delete.

Errors that can be detected here are raised at once, because Nova does not check the state of a request that is already
resolved. Everything else is a job for the host; its result leads to the next state, in one transaction with the event
to send.

Spec: docs/evidence/specs/accelerator-attach.md
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from moorage.accelerator.model.binding import (
    HOLDING,
    ON_HOST,
    TRANSITIONS,
    Binding,
    RequestState,
    bind_order,
    is_hidden,
    is_made_by_api,
    of_one_host,
    state_shown_to_compute,
    units_of_group,
)
from moorage.accelerator.model.devices import PHYSICAL_NETWORK, HandleState, Health, check_handle, mdev_of
from moorage.accelerator.model.errors import NoCapacity
from moorage.accelerator.model.rows import DeployableUsage, DeviceStatus, RequestRecord
from moorage.accelerator.service.deps import AcceleratorDeps
from moorage.accelerator.service.host_jobs import EVENTS_QUEUE
from moorage.accelerator.store import accelerator_store
from moorage.accelerator.store import tables as t
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Forbidden, Invalid, Locked, NotFound, OverQuota
from moorage.db.session import in_transaction, read
from moorage.jobs.contract import (
    BindJob,
    BindResult,
    BoundJob,
    JobKind,
    UnbindJob,
    failure_of,
    payload_of,
    result_of,
)
from moorage.jobs.job_api import JobReport
from moorage.jobs.model import Job

UNLIMITED = -1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RequestService:
    """`quota`: the number of requests that a project may have. Call `register` once."""

    deps: AcceleratorDeps
    quota: int = UNLIMITED

    def register(self) -> None:
        """Lets the results of jobs change the requests."""
        self.deps.jobs.follow_ups |= {JobKind.BIND: self._after_bind, JobKind.UNBIND: self._after_unbind}
        self.deps.jobs.worth_retrying[JobKind.BIND] = self._is_being_released

    # ---------------------------------------------------------------------------------------- reading

    def list_requests(
        self, caller: Caller, instance_uuid: str | None, *, resolved: bool = False
    ) -> list[RequestRecord]:
        """Requests that `caller` may see. With `resolved`, raises `Locked` while one of them is not resolved.

        A service that acts for a user sees all requests of an instance it names; without an instance, it sees only the
        user's.
        """
        vouched = caller.by_service and instance_uuid is not None
        project_id = None if caller.is_admin or caller.is_service or vouched else caller.project_id
        with read(self.deps.engine) as connection:
            found = accelerator_store.requests(connection, instance_uuid=instance_uuid, project_id=project_id)
        rows = [row for row in found if not is_hidden(row)]
        if instance_uuid is not None:  # Nova lists by instance
            now, rows = self.deps.clock.now(), of_one_host(rows)
            rows = [replace(row, state=state_shown_to_compute(row, now)) for row in rows]
        open_ones = [row.uuid for row in rows if row.state not in (RequestState.BOUND, RequestState.BIND_FAILED)]
        if resolved and open_ones:
            raise Locked(f"Accelerator requests {', '.join(open_ones)} are not resolved yet.")
        return rows

    def list_requests_page(self, caller: Caller, after: str | None, limit: int) -> list[RequestRecord]:
        """Requests that `caller` may see, newest first, following request `after`. Raises `Invalid` if `after` is not
        one of them.
        """
        project_id = None if caller.is_admin or caller.is_service else caller.project_id
        with read(self.deps.engine) as connection:
            last = accelerator_store.requests_by_uuid(connection, [after]) if after else []
            if after and not any(project_id in (None, row.project_id) for row in last):
                raise Invalid(
                    f"after={after!r} is not an accelerator request (any more); start again at the first page."
                )
            before = last[0].id if last else None
            return accelerator_store.page_of_requests(connection, project_id, before, limit)

    def get_request(self, caller: Caller, uuid: str) -> RequestRecord:
        with read(self.deps.engine) as connection:
            return _visible(connection, caller, [uuid])[0]

    # --------------------------------------------------------------------------------- making, binding

    def create_requests(self, caller: Caller, profile_name: str) -> list[RequestRecord]:
        """Create one request per unit of each group of the profile. Raises `OverQuota`."""

        def insert_requests(connection: Connection) -> list[RequestRecord]:
            if self.quota != UNLIMITED:
                accelerator_store.lock_request_creation(connection)
            profile = accelerator_store.profile(connection, name=profile_name)
            if profile is None:
                raise NotFound(f"Device profile {profile_name} could not be found.")
            self._check_quota(connection, caller.project_id, sum(map(units_of_group, profile.groups)))
            uuids = []
            for number, group in enumerate(profile.groups):
                for _ in range(units_of_group(group)):
                    uuids.append(self.deps.ids.uuid())
                    values = {
                        "uuid": uuids[-1],
                        "state": str(RequestState.INITIAL),
                        "project_id": caller.project_id,
                        "device_profile_name": profile.name,
                        "device_profile_group_id": number,
                        "profile_group": dict(group),
                    }
                    accelerator_store.insert_row(connection, t.accelerator_requests, values, self.deps.clock.now())
            return accelerator_store.requests_by_uuid(connection, uuids)

        return in_transaction(self.deps.engine, insert_requests)

    def _check_quota(self, connection: Connection, project_id: str, wanted: int) -> None:
        if self.quota == UNLIMITED:
            return
        there = accelerator_store.count_requests(connection, project_id)
        if there + wanted > self.quota:
            raise OverQuota(
                f"Quota exceeded for accelerator requests: project {project_id} has {there} of the {self.quota} "
                f"allowed requests, and needs {wanted} more; delete some, or ask the operator to raise [accelerator] "
                "quota_requests."
            )

    def bind_or_unbind(self, caller: Caller, wanted: Mapping[str, Binding | None]) -> None:
        """Begin to bind or to unbind all requests in `wanted`, or none of them."""
        _check_service(caller, "Binding accelerator requests")
        bindings = {uuid: binding for uuid, binding in wanted.items() if binding is not None}
        if bindings and len(bindings) != len(wanted):
            raise Invalid("One call can either bind or unbind accelerator requests, not both.")

        def begin(connection: Connection) -> set[str]:
            rows = _visible(connection, caller, list(wanted))
            if not bindings:
                return self._release_requests(connection, rows, RequestState.UNBOUND)
            return self._begin_binding(connection, caller, rows, bindings)

        self.deps.jobs.wake_hosts(in_transaction(self.deps.engine, begin))

    def _begin_binding(
        self, connection: Connection, caller: Caller, rows: Sequence[RequestRecord], bindings: Mapping[str, Binding]
    ) -> set[str]:
        if any(binding.project_id for binding in bindings.values()) and not (caller.is_admin or caller.is_service):
            raise Forbidden("Only an administrator may set the project of an accelerator request.")
        by_place: dict[tuple[str, str], list[RequestRecord]] = {}
        for row in rows:
            TRANSITIONS.check_transition(RequestState(row.state), RequestState.BIND_STARTED)
            binding = bindings[row.uuid]
            by_place.setdefault((binding.hostname, binding.instance_uuid), []).append(row)
        for (host, instance), together in by_place.items():
            # What another host reports for the instance does not count: it could report any instance.
            held = [
                one
                for one in accelerator_store.requests(connection, instance_uuid=instance)
                if one.state in ON_HOST and (is_made_by_api(one) or one.hostname == host)
            ]
            if held:
                raise Invalid(
                    f"Instance {instance} already has accelerator requests: {held[0].uuid}; delete them first."
                )
            places = self._check_devices(connection, host, [bindings[one.uuid].device_rp_uuid for one in together])
            project_id = bindings[together[0].uuid].project_id or together[0].project_id
            order = bind_order(together, bindings, project_id, caller.user_id)
            for row in together:
                provider = bindings[row.uuid].device_rp_uuid
                values = {
                    "state": str(RequestState.BIND_STARTED),
                    "hostname": host,
                    "device_rp_uuid": provider,
                    "instance_uuid": instance,
                    "project_id": project_id,
                    "physical_network": places[provider].vendor_board_info.get(PHYSICAL_NETWORK),
                }
                accelerator_store.update_row(connection, t.accelerator_requests, row.id, values, self.deps.clock.now())
            self.deps.jobs.enqueue(connection, host, JobKind.BIND, f"{host}/{instance}", order)
        return {host for host, _ in by_place}

    def _check_devices(
        self, connection: Connection, host: str, providers: Sequence[str]
    ) -> Mapping[str, DeployableUsage]:
        """Returns the deployables by provider. Raises `NotFound` or `Conflict` for a device that cannot be given out
        according to this database. The host makes the final decision.
        """
        known: dict[str, DeployableUsage] = {
            place.rp_uuid: place for place in accelerator_store.usable_deployables(connection, host, providers, HOLDING)
        }
        for provider in set(providers):
            place = known.get(provider)
            if place is None:
                raise NotFound(f"Host {host} has no device with the resource provider {provider}.")
            if place.status != DeviceStatus.ENABLED or place.health in (Health.FAILED, Health.GONE):
                raise Conflict(f"Device {place.device_uuid} of host {host} is {place.status} and {place.health}.")
            if providers.count(provider) > place.num_accelerators:
                raise Conflict(f"{place.name} has only {place.num_accelerators} accelerators.")
            quarantined = list(place.handles.values()).count(HandleState.QUARANTINED)
            free = place.num_accelerators - place.taken - quarantined
            if providers.count(provider) > free:
                raise Conflict(
                    f"{place.name} has {max(free, 0)} free of {place.num_accelerators} accelerators "
                    f"({place.taken} bound or being bound, {quarantined} quarantined); {providers.count(provider)} are "
                    "requested."
                )
        return known

    # ---------------------------------------------------------------------------------------- deleting

    def delete_requests(self, caller: Caller, uuids: Sequence[str]) -> None:
        """Delete all requests that exist. Then raises `NotFound` if some did not; its field `deleted` is the number
        deleted.
        """

        def release_existing(connection: Connection) -> tuple[set[str], list[str], int]:
            rows = accelerator_store.requests_by_uuid(connection, uuids)
            rows = [row for row in rows if _may_access(caller, row) and not is_hidden(row)]
            if any(row.state in ON_HOST for row in rows):
                _check_service(caller, "Deleting a bound accelerator request", or_admin=True)
            missing = sorted(set(uuids) - {row.uuid for row in rows})
            return self._release_requests(connection, rows, RequestState.DELETING), missing, len(rows)

        hosts, missing, deleted = in_transaction(self.deps.engine, release_existing)
        self.deps.jobs.wake_hosts(hosts)
        if missing:
            raise NotFound(f"Accelerator requests {', '.join(missing)} could not be found.", deleted=deleted)

    def delete_requests_of_instance(self, caller: Caller, instance_uuid: str) -> None:
        """Delete all requests of an instance, if there are any."""
        _check_service(caller, "Deleting an instance's accelerator requests", or_admin=True)

        def release_all(connection: Connection) -> set[str]:
            rows = accelerator_store.requests(connection, instance_uuid=instance_uuid)
            return self._release_requests(
                connection, [row for row in rows if is_made_by_api(row)], RequestState.DELETING
            )

        self.deps.jobs.wake_hosts(in_transaction(self.deps.engine, release_all))

    def _release_requests(self, connection: Connection, rows: Sequence[RequestRecord], after: RequestState) -> set[str]:
        """Returns the hosts to wake. Requests that no host holds are deleted (or unbound) at once."""
        places: set[tuple[str, str]] = set()
        for row in rows:
            if is_hidden(row) or row.state == after:
                continue
            if not is_made_by_api(row):
                raise Conflict(
                    f"Accelerator request {row.uuid} was created together with its server; delete the server instead."
                )
            TRANSITIONS.check_transition(RequestState(row.state), after)
            if row.state in ON_HOST and row.hostname and row.instance_uuid:
                places.add((row.hostname, row.instance_uuid))
                self._set_state(connection, row, after)
            elif after is RequestState.DELETING:
                accelerator_store.delete_rows(connection, t.accelerator_requests, [row.id])
            else:
                self._set_state(connection, row, after)
        for host, instance in sorted(places):
            payload = UnbindJob(instance_uuid=instance)
            self.deps.jobs.enqueue(connection, host, JobKind.UNBIND, f"{host}/{instance}", payload)
        return {host for host, _ in places}

    # ------------------------------------------------------------------------- jobs that follow on the host

    def _after_unbind(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        instance_uuid = payload_of(job.kind, job.payload, UnbindJob).instance_uuid
        rows = accelerator_store.requests(connection, hostname=job.queue, instance_uuid=instance_uuid)
        accelerator_store.delete_rows(connection, t.accelerator_requests, [row.id for row in rows if is_hidden(row)])
        self.deps.jobs.store_handle_states(connection, job, report)
        return ()

    def _is_being_released(self, connection: Connection, job: Job, report: JobReport) -> bool:
        """Whether the device is about to become free. Nova may schedule the next server while the previous server's
        device is still being cleaned.
        """
        order = payload_of(job.kind, job.payload, BindJob)
        places = set(order.providers.values())
        rows = accelerator_store.requests(connection, hostname=job.queue)
        # Requests of this job may be deleted already; they hold nothing that could become free.
        leaving = (row for row in rows if is_hidden(row) and row.uuid not in order.requests)
        is_full = failure_of(job.kind, report.result).code == NoCapacity.code
        return is_full and any(row.device_rp_uuid in places for row in leaving)

    def _after_bind(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        order = payload_of(job.kind, job.payload, BindJob)
        rows = [
            row
            for row in accelerator_store.requests_by_uuid(connection, sorted(order.requests))
            if row.state == RequestState.BIND_STARTED
        ]
        if not rows:
            return ()  # they were deleted meanwhile; the next job for the host releases the handles
        handles = _handles_of(job, report)
        self._take_handles(connection, job.queue, order, handles)
        for row in rows:
            if row.uuid in handles:
                mdev = mdev_of(handles[row.uuid])
                handle = {
                    "pci_id": handles[row.uuid],
                    "attach_handle_uuid": mdev.uuid if mdev else self.deps.ids.uuid(),
                }
                self._set_state(connection, row, RequestState.BOUND, **handle)
            else:
                self._set_state(connection, row, RequestState.BIND_FAILED)
        if report.error is not None:
            why = {"instance": order.instance_uuid, "host": job.queue, "why": report.error}
            log.warning("binding accelerator requests failed", extra=why)
        self.deps.jobs.store_handle_states(connection, job, report)
        payload = BoundJob(instance_uuid=order.instance_uuid, requests=tuple(row.uuid for row in rows))
        self.deps.jobs.enqueue(connection, EVENTS_QUEUE, JobKind.BOUND, order.instance_uuid, payload)
        return [EVENTS_QUEUE]

    def _take_handles(self, connection: Connection, host: str, order: BindJob, handles: Mapping[str, str]) -> None:
        """Ends other requests for `handles`: the host has just given these handles to the instance.

        Such a request comes from a late report of an agent of the release before, or the result of the job that
        released it has not arrived yet. Reported requests of the instance itself end too, because its own count now.
        """
        taken, now = set(handles.values()), self.deps.clock.now()
        gone = []
        for row in accelerator_store.requests(connection, hostname=host):
            if not is_made_by_api(row):
                if row.instance_uuid == order.instance_uuid or row.pci_id in taken:
                    gone.append(row.id)
            elif row.pci_id in taken and row.uuid not in order.requests:
                accelerator_store.update_row(connection, t.accelerator_requests, row.id, {"pci_id": None}, now)
                if not is_hidden(row):
                    why = {"request": row.uuid, "handle": row.pci_id, "instance": order.instance_uuid, "host": host}
                    log.warning("the host gave the device of a bound request to another instance", extra=why)
                    self._set_state(connection, row, RequestState.BIND_FAILED)
        accelerator_store.delete_rows(connection, t.accelerator_requests, gone)

    def _set_state(self, connection: Connection, row: RequestRecord, after: RequestState, **values: object) -> None:
        if after is RequestState.UNBOUND:
            values |= dict.fromkeys(
                ("hostname", "device_rp_uuid", "instance_uuid", "pci_id", "attach_handle_uuid", "physical_network")
            )
        TRANSITIONS.check_transition(RequestState(row.state), after)
        accelerator_store.update_row(
            connection, t.accelerator_requests, row.id, {"state": str(after), **values}, self.deps.clock.now()
        )


def _handles_of(job: Job, report: JobReport) -> Mapping[str, str]:
    """{request: handle}; empty if the binding failed, or if the host names a handle twice or names something else."""
    if report.error is not None:
        return {}
    handles = result_of(job.kind, report.result, BindResult).handles
    try:
        for handle in handles.values():
            check_handle(handle)
    except Invalid as error:
        log.error("a host reported an invalid attach handle", extra={"host": job.queue, "why": error.message})
        return {}
    if len(set(handles.values())) < len(handles):
        log.error("a host bound several requests to one handle", extra={"host": job.queue, "handles": handles})
        return {}
    return handles


def _visible(connection: Connection, caller: Caller, uuids: Sequence[str]) -> list[RequestRecord]:
    """Raises `NotFound` for the first request that `caller` may not see."""
    found = {row.uuid: row for row in accelerator_store.requests_by_uuid(connection, uuids)}
    for uuid in uuids:
        if uuid not in found or not _may_access(caller, found[uuid]) or is_hidden(found[uuid]):
            raise NotFound(f"AcceleratorRequest {uuid} could not be found.")
    return list(found.values())


def _may_access(caller: Caller, row: RequestRecord) -> bool:
    return caller.by_service or caller.may_see(row.project_id)


def _check_service(caller: Caller, what: str, *, or_admin: bool = False) -> None:
    """Raises `Forbidden`, as Cyborg does, which also refuses an administrator: compute would not know of the change.

    `or_admin`: an administrator may do it; `moorage audit` deletes the requests of servers that are gone.
    """
    if not (caller.is_service or caller.by_service or (or_admin and caller.is_admin)):
        raise Forbidden(f"{what} is reserved for services: it needs a service token in addition to the user's token.")
