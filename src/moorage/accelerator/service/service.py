"""Use cases of the Accelerator API: reports of hosts, and device profiles.

A host's agent is authoritative for its devices and attachments. Each report is complete, and a late one changes nothing
(`report_order`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import IntegrityError

from moorage.accelerator.model.binding import RequestState, is_hidden
from moorage.accelerator.model.devices import mdev_of
from moorage.accelerator.model.errors import UNCHECKED
from moorage.accelerator.model.inventory import provider_name
from moorage.accelerator.model.naming import CLASS_PREFIX
from moorage.accelerator.model.profile import NewProfile, check_profile
from moorage.accelerator.model.reports import (
    AttachmentReport,
    DeployableReport,
    DeviceReport,
    ReportAnswer,
    ReportPosition,
    check_attachment_reports,
    check_device_reports,
)
from moorage.accelerator.model.rows import (
    FUNCTION,
    REGION_TYPE,
    DeployableRecord,
    DeviceRecord,
    DeviceStatus,
    ProfileRecord,
    RequestRecord,
)
from moorage.accelerator.service import report_order
from moorage.accelerator.service.deps import AcceleratorDeps
from moorage.accelerator.service.history_service import DeviceHistoryService
from moorage.accelerator.service.host_jobs import AcceleratorJobs
from moorage.accelerator.service.operator_service import BitstreamService, OperatorService
from moorage.accelerator.service.request_service import UNLIMITED, RequestService
from moorage.accelerator.store import accelerator_store
from moorage.accelerator.store import tables as t
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, NotFound
from moorage.core.ids import Ids, is_uuid
from moorage.core.json import Json
from moorage.db.session import in_transaction, read
from moorage.images.base import ImageSource
from moorage.images.for_hosts import HostImages
from moorage.jobs.wakeups import Hints

R = TypeVar("R", DeviceRecord, DeployableRecord, RequestRecord)
K = TypeVar("K")


class AcceleratorService:
    """Contains the services of the package: `requests` for accelerator requests, `operator` for devices, `jobs` for
    hosts, `history` for the device history, and `bitstreams` for loadable bitstreams (which needs `images`).
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        hints: Hints,
        images: ImageSource | None = None,
        *,
        quota_requests: int = UNLIMITED,
    ) -> None:
        self._engine = engine
        self.jobs = AcceleratorJobs(engine, clock, ids, hints)
        deps = AcceleratorDeps(engine, clock, ids, self.jobs, images)
        self.requests = RequestService(deps, quota_requests)
        self.operator = OperatorService(deps)
        self.requests.register()
        self.operator.register()
        self.history = DeviceHistoryService(deps)
        self.bitstreams = BitstreamService(deps)
        self.images_for_hosts = HostImages(images, self._named_images)
        self._clock = clock
        self._ids = ids

    def _named_images(self, host: str, project_id: str) -> frozenset[str] | None:
        """See `moorage.images.for_hosts.NamedImages`. Empty for a project with work on the host, because hosts search
        for bitstreams.
        """
        with read(self._engine) as connection:
            rows = accelerator_store.requests(connection, hostname=host, project_id=project_id)
        # Requests that the host itself reported do not count, because it could report any project.
        has_work = any(row.device_profile_name is not None for row in rows)
        return frozenset() if has_work or self.jobs.has_open_job_for(host, project_id) else None

    # ----------------------------------------------------------------------------- devices, deployables

    def list_devices(self, hostname: str | None, kind: str | None, vendor: str | None) -> list[DeviceRecord]:
        with read(self._engine) as connection:
            return accelerator_store.devices(connection, hostname=hostname, type=kind, vendor=vendor)

    def get_device(self, uuid: str) -> DeviceRecord:
        with read(self._engine) as connection:
            return _first_or_not_found(accelerator_store.devices(connection, uuid=uuid), "Device", uuid)

    def list_deployables(self) -> list[DeployableRecord]:
        with read(self._engine) as connection:
            return accelerator_store.deployables(connection)

    def get_deployable(self, uuid: str) -> DeployableRecord:
        with read(self._engine) as connection:
            return _first_or_not_found(accelerator_store.deployables(connection, uuid=uuid), "Deployable", uuid)

    # ------------------------------------------------------------------------------------ device profiles

    def list_profiles(self, names: Sequence[str]) -> list[ProfileRecord]:
        with read(self._engine) as connection:
            return accelerator_store.profiles(connection, names)

    def get_profile(self, name_or_uuid: str) -> ProfileRecord:
        with read(self._engine) as connection:
            return _profile(connection, name_or_uuid)

    def create_profile(self, new: NewProfile) -> ProfileRecord:
        check_profile(new)
        if new.uuid is not None and not is_uuid(new.uuid):
            raise Invalid(f"Device profile uuid {new.uuid!r} is not a UUID.")
        uuid, now = new.uuid or self._ids.uuid(), self._clock.now()
        values = {"uuid": uuid, "name": new.name, "description": new.description, "groups": new.groups}

        def insert_profile(connection: Connection) -> ProfileRecord:
            accelerator_store.insert_row(connection, t.device_profiles, values, now)
            return _profile(connection, uuid)

        try:
            return in_transaction(self._engine, insert_profile)
        except IntegrityError as error:
            code = UNCHECKED if self._has_profile(uuid) else None
            raise Conflict(
                f"A device_profile with name {new.name} or uuid {uuid} already exists.", code=code
            ) from error

    def _has_profile(self, uuid: str) -> bool:
        with read(self._engine) as connection:
            return accelerator_store.profile(connection, uuid=uuid) is not None

    def delete_profiles(self, names_or_uuids: Sequence[str]) -> None:
        """All of them or none."""

        def delete_all(connection: Connection) -> None:
            profiles = [_profile(connection, wanted) for wanted in names_or_uuids]
            for profile in profiles:
                if request := accelerator_store.find_request_of_profile(connection, profile.name):
                    raise Conflict(
                        f"Device profile {profile.name} has accelerator requests, for example {request}; delete them "
                        "first."
                    )
            accelerator_store.delete_rows(connection, t.device_profiles, [profile.id for profile in profiles])

        in_transaction(self._engine, delete_all)

    # ------------------------------------------------------------------------------------- agents' reports

    def offer_epoch(self, host: str) -> ReportPosition:
        """Returns the position of the first report of an agent that has started."""

        def offer(connection: Connection) -> ReportPosition:
            return report_order.offer_epoch(connection, host, self._clock.now())

        try:
            return in_transaction(self._engine, offer)
        except IntegrityError:  # another agent of a new host started at the same time; now the host has a row
            return in_transaction(self._engine, offer)

    def report_devices(
        self, host: str, reports: Sequence[DeviceReport], position: ReportPosition | None = None
    ) -> ReportAnswer | None:
        """Stores all devices of a host. `position`: None for an agent of the release before, whose reports are always
        stored. Raises `Superseded`, and `Invalid` for a report that no agent of ours makes (`model.reports`).
        """
        check_device_reports(host, reports)

        def sync_devices(connection: Connection) -> None:
            known_devices = accelerator_store.devices(connection, hostname=host)
            since = {(one.address, one.health): one.health_since for one in known_devices}
            now = self._clock.now()
            wanted = {
                report.address: _device_values(host, report)
                | {"health_since": since.get((report.address, report.health), now)}
                for report in reports
            }
            enabled = {"status": str(DeviceStatus.ENABLED)}
            self._sync_rows(
                connection, t.devices, known_devices, lambda one: one.address, wanted, also_new=lambda: enabled
            )
            ids = {device.address: device.id for device in accelerator_store.devices(connection, hostname=host)}
            parts = {
                provider_name(host, part.name): _deployable_values(host, ids[report.address], report, part)
                for report in reports
                for part in report.deployables
            }
            known = accelerator_store.deployables_of(connection, host)
            self._sync_rows(connection, t.deployables, known, lambda part: part.name, parts)

        return self._store_in_order(host, position, sync_devices)

    def report_attachments(
        self, host: str, reports: Sequence[AttachmentReport], position: ReportPosition | None = None
    ) -> ReportAnswer | None:
        """Stores all attachments of a host; otherwise as `report_devices`."""
        check_attachment_reports(reports)

        def sync_attachments(connection: Connection) -> None:
            rows = accelerator_store.requests(connection, hostname=host)
            # For requests bound through the API, the job's result counts: a report may be older than it.
            by_api = [row for row in rows if row.device_profile_name is not None]
            bound = {row.instance_uuid for row in by_api}
            held = {row.pci_id for row in by_api if not is_hidden(row)}
            known = [row for row in rows if row.device_profile_name is None]
            # A new holder of a handle is a new request, not a change of the old one.
            wanted: dict[tuple[str | None, str | None], dict[str, Json]] = {
                (report.pci_id, report.instance_uuid): _request_values(host, report)
                for report in reports
                if report.instance_uuid not in bound and report.pci_id not in held
            }
            gone = [one for one in known if (one.pci_id, one.instance_uuid) not in wanted]
            accelerator_store.delete_rows(connection, t.accelerator_requests, [one.id for one in gone])
            for row in by_api:
                if is_hidden(row) and row.pci_id in {pci_id for pci_id, _ in wanted}:
                    # The host has released it, and given it to another instance; its job's result is on the way.
                    accelerator_store.update_row(
                        connection, t.accelerator_requests, row.id, {"pci_id": None}, self._clock.now()
                    )
            kept = [one for one in known if one not in gone]
            self._sync_rows(
                connection,
                t.accelerator_requests,
                kept,
                lambda one: (one.pci_id, one.instance_uuid),
                wanted,
                also_new=lambda: {"attach_handle_uuid": self._ids.uuid(), "state": str(RequestState.BOUND)},
            )

        return self._store_in_order(host, position, sync_attachments)

    def _store_in_order(
        self, host: str, position: ReportPosition | None, store: Callable[[Connection], None]
    ) -> ReportAnswer | None:
        def store_if_next(connection: Connection) -> ReportAnswer | None:
            if position is None:
                store(connection)
                return None
            is_next = report_order.is_next(connection, host, position, self._clock.now())
            if is_next:
                store(connection)
                return ReportAnswer(True, replace(position, number=position.number + 1))
            return ReportAnswer(False, report_order.next_position(connection, host))

        return in_transaction(self._engine, store_if_next)

    def _sync_rows(
        self,
        connection: Connection,
        table: Table,
        known: Sequence[R],
        key: Callable[[R], K],
        wanted: Mapping[K, Mapping[str, object]],
        also_new: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        """Insert, update and delete rows until they equal `wanted`. Ids are kept, and unchanged rows are not
        written.
        """
        rows = {key(row): row for row in known}
        now = self._clock.now()
        accelerator_store.delete_rows(connection, table, [row.id for name, row in rows.items() if name not in wanted])
        for name, values in wanted.items():
            row = rows.get(name)
            if row is None:
                accelerator_store.insert_row(connection, table, {"uuid": self._ids.uuid(), **also_new(), **values}, now)
            elif any(getattr(row, column) != value for column, value in values.items()):
                accelerator_store.update_row(connection, table, row.id, values, now)


def _profile(connection: Connection, name_or_uuid: str) -> ProfileRecord:
    by = {"uuid": name_or_uuid.lower()} if is_uuid(name_or_uuid) else {"name": name_or_uuid}
    found = accelerator_store.profile(connection, **by)
    if found is None:
        raise NotFound(f"Device profile {name_or_uuid} could not be found.")
    return found


def _first_or_not_found(found: Sequence[R], kind: str, uuid: str) -> R:
    if not found:
        raise NotFound(f"{kind} {uuid} could not be found.")
    return found[0]


def _device_values(host: str, report: DeviceReport) -> dict[str, object]:
    return {
        "hostname": host,
        "address": report.address,
        "type": report.type,
        "vendor": report.vendor,
        "model": report.model,
        "health": report.health,
        "std_board_info": {"device_id": report.product_id, "class": report.type, "address": report.address},
        "vendor_board_info": {"board": report.board, "shell_id": report.shell_id, "numa_node": str(report.numa_node)}
        | dict(report.details),
    }


def _deployable_values(host: str, device_id: int, report: DeviceReport, part: DeployableReport) -> dict[str, Json]:
    functions = [[FUNCTION, function.id or function.name] for function in part.functions]
    region = [[REGION_TYPE, part.region_type], ["region_state", part.region_state]] if part.region_type else []
    return {
        "device_id": device_id,
        "name": provider_name(host, part.name),
        "num_accelerators": len(part.handles),
        "rp_uuid": part.rp_uuid,
        "driver_name": report.driver,
        "bitstream_id": part.bitstream_id,
        "attributes": [["rc", report.resource_class or f"{CLASS_PREFIX}{report.type}"], *region, *functions],
        "handles": {handle.pci_id: handle.state for handle in part.handles},
    }


def _request_values(host: str, report: AttachmentReport) -> dict[str, Json]:
    return {
        "hostname": host,
        "device_rp_uuid": report.device_rp_uuid,
        "instance_uuid": report.instance_uuid,
        "project_id": report.project_id,
        "device_profile_group_id": report.group,
        "pci_id": report.pci_id,
        # Nova creates a mediated device with this uuid. For a PCI function it is only a name, drawn when the row
        # is inserted.
        **({"attach_handle_uuid": mdev.uuid} if (mdev := mdev_of(report.pci_id)) else {}),
    }
