"""Operators' actions on devices (enable and disable them, program regions, set attributes), and the search for
bitstreams.

Each job for a host's agent contains all settings of operators for the host, so a repeated or late job does no harm.
Attributes whose key begins with ``trait`` become traits of the deployable's resource provider.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID, uuid5

from sqlalchemy import Connection

from moorage.accelerator.host.bitstream_lookup import find_image
from moorage.accelerator.model.bitstream import BitstreamTarget
from moorage.accelerator.model.devices import HandleState
from moorage.accelerator.model.errors import BitstreamNotFound, ChecksumMismatch, MultipleBitstreams
from moorage.accelerator.model.inventory import provider_name
from moorage.accelerator.model.naming import TraitKind, normalized_id, parse_trait
from moorage.accelerator.model.profile import ProgramRequest
from moorage.accelerator.model.reports import check_bitstream_id
from moorage.accelerator.model.rows import (
    FUNCTION,
    REGION_TYPE,
    AttributeRecord,
    DeployableRecord,
    DeviceRecord,
    DeviceStatus,
)
from moorage.accelerator.service.deps import AcceleratorDeps
from moorage.accelerator.store import accelerator_store
from moorage.accelerator.store import tables as t
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, MoorageError, NotFound, Unavailable
from moorage.core.names import is_custom
from moorage.db.session import in_transaction, read
from moorage.images.base import ImageRecord, ImageSource
from moorage.jobs.contract import (
    JobKind,
    OperatorOverridesJob,
    ProgramJob,
    ProgramResult,
    RegionContentFilter,
    ReleaseHandleJob,
    payload_of,
    result_of,
)
from moorage.jobs.job_api import JobReport
from moorage.jobs.model import Job, JobState

#: Seconds that a call waits for programming, and seconds between polls of the job.
PROGRAM_TIMEOUT_S = 60.0


JOB_POLL_S = 0.2


TRAIT_KEY = "trait"


#: Image properties that select a card among those with the same region type. Only hosts can match them.
_CARD_PROPERTIES = ("vendor", "board", "shell_id")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HandleRelease:
    """An operator's request to end a quarantine. `is_clean`: the operator vouches that nothing of a tenant is left."""

    handle: str
    reason: str
    is_clean: bool = False


@dataclass(frozen=True)
class OperatorService:
    """Call `register` once."""

    deps: AcceleratorDeps

    def register(self) -> None:
        """Lets the results of jobs change devices and requests."""
        self.deps.jobs.follow_ups |= {
            JobKind.PROGRAM: self._after_program,
            JobKind.RELEASE_HANDLE: self._after_release,
        }

    # ----------------------------------------------------------------------------------------- devices

    def set_device_enabled(self, uuid: str, *, offered: bool) -> None:
        """Enable or disable a device. The units of a disabled device are reserved in Placement; servers that have some
        keep them.
        """
        status = DeviceStatus.ENABLED if offered else DeviceStatus.MAINTAINING

        def set_status(connection: Connection) -> str:
            device = _device(connection, uuid)
            if device.status != status:
                accelerator_store.update_row(
                    connection, t.devices, device.id, {"status": str(status)}, self.deps.clock.now()
                )
                self._enqueue_overrides(connection, device.hostname)
            return device.hostname

        self.deps.jobs.wake_hosts([in_transaction(self.deps.engine, set_status)])

    # ------------------------------------------------------------------------------------- quarantine

    def release_handle(self, caller: Caller, host: str, wanted: HandleRelease, wait_s: float | None = None) -> None:
        """Ends the quarantine of a handle: the host cleans it again, or frees it if the operator vouches for it. The
        history keeps the reason with the caller.

        Raises `NotFound`, and `Conflict` if the handle is not quarantined or, with the host's reason, could not be
        cleaned; `Unavailable` if the host does not finish in time. With `wait_s`, a timeout is no error; the host goes
        on.
        """

        def enqueue_release(connection: Connection) -> str:
            parts = accelerator_store.deployables_of(connection, host)
            part = next((one for one in parts if wanted.handle in one.handles), None)
            if part is None:
                raise NotFound(f"Host {host} has no attach handle {wanted.handle}.")
            if (state := part.handles[wanted.handle]) != HandleState.QUARANTINED:
                raise Conflict(f"Attach handle {wanted.handle} of host {host} is {state}, not quarantined.")
            name = part.name.removeprefix(provider_name(host, ""))
            payload = ReleaseHandleJob(
                handle=wanted.handle, reason=wanted.reason, user_id=caller.user_id, is_clean=wanted.is_clean
            )
            return self.deps.jobs.enqueue(connection, host, JobKind.RELEASE_HANDLE, f"{host}/{name}", payload)

        job_id = in_transaction(self.deps.engine, enqueue_release)
        self.deps.jobs.wake_hosts([host])
        self._wait_for_host(
            job_id,
            wait_s,
            late=f"Host {host} has not answered within {PROGRAM_TIMEOUT_S:.0f} s; it releases the handle when it runs "
            "again.",
            failed=f"Attach handle {wanted.handle} of host {host} stays quarantined",
        )

    def _after_release(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        self.deps.jobs.store_handle_states(connection, job, report)
        return ()

    # ------------------------------------------------------------------------------------- programming

    def program_deployable(
        self,
        caller: Caller,
        uuid: str,
        wanted: ProgramRequest,
        project_id: str,
        *,
        empties: bool = False,
        wait_s: float | None = None,
    ) -> DeployableRecord:
        """Load a bitstream, or the vendor's blank if `wanted` is empty. With `empties`, load the blank if the
        deployable carries `wanted`. Images of `project_id` may be used besides public ones.

        Returns the deployable with its content afterwards. Raises `Conflict` with the host's reason, and `Unavailable`
        if the host does not finish in time; the job goes on. With `wait_s`, a timeout is no error, and the current
        content is returned.
        """
        loaded = ProgramRequest() if empties else wanted

        def enqueue_program(connection: Connection) -> tuple[str, str]:
            part = _deployable(connection, uuid)
            host = _host_of(connection, part)
            name = part.name.removeprefix(provider_name(host, ""))
            only = wanted if empties else ProgramRequest()
            payload = ProgramJob(
                deployable=name,
                image_id=loaded.bitstream_id,
                function_id=loaded.function_id,
                function_name=loaded.function_name,
                only=RegionContentFilter(only.bitstream_id, only.function_id, only.function_name),
                project_id=project_id,
                user_id=caller.user_id,
                uuid=part.uuid,
            )
            return host, self.deps.jobs.enqueue(connection, host, JobKind.PROGRAM, f"{host}/{name}", payload)

        host, job_id = in_transaction(self.deps.engine, enqueue_program)
        self.deps.jobs.wake_hosts([host])
        self._wait_for_host(
            job_id,
            wait_s,
            late=f"The host has not programmed the device within {PROGRAM_TIMEOUT_S:.0f} s; check the deployable again "
            "later.",
            failed=f"Deployable {uuid} could not be programmed",
        )
        with read(self.deps.engine) as connection:
            return _deployable(connection, uuid)

    def _wait_for_host(self, job_id: str, wait_s: float | None, *, late: str, failed: str) -> None:
        """Waits until the host has done the job, `PROGRAM_TIMEOUT_S` at most.

        Raises `Conflict`, `failed` with the host's reason, and `Unavailable`, `late`, if the host does not finish in
        time. With `wait_s`, it waits this long, and a timeout is no error.
        """
        for _ in range(1 + round((PROGRAM_TIMEOUT_S if wait_s is None else wait_s) / JOB_POLL_S)):
            job = self.deps.jobs.get_job(job_id)
            if job is not None and job.finished_at is not None:
                if job.state is not JobState.DONE:
                    raise Conflict(f"{failed}: {(job.result or {}).get('error') or 'the host gave no reason'}")
                return
            self.deps.clock.sleep(JOB_POLL_S)
        if wait_s is None:
            raise Unavailable(late)

    def _after_program(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        if report.error is not None:
            return ()
        bitstream_id = result_of(job.kind, report.result, ProgramResult).bitstream_id
        check_bitstream_id(bitstream_id)
        for part in accelerator_store.deployables(connection, uuid=payload_of(job.kind, job.payload, ProgramJob).uuid):
            # The next report has the functions of the new bitstream; until then, show none instead of the old ones.
            kept = [pair for pair in part.attributes if pair[0] != FUNCTION]
            carries = {"bitstream_id": bitstream_id, "attributes": kept}
            accelerator_store.update_row(connection, t.deployables, part.id, carries, self.deps.clock.now())
        return ()

    # -------------------------------------------------------------------------------------- attributes

    def list_attributes(self, deployable_id: int | None, key: str | None) -> list[AttributeRecord]:
        """Those that hosts report (with key ``rc``: the resource class), then those of operators."""
        with read(self.deps.engine) as connection:
            reported = [one for part in accelerator_store.deployables(connection) for one in _reported(part)]
            found = [one for one in reported if key in (None, one.key)]
            found += accelerator_store.attributes(connection, key=key)
        return [one for one in found if deployable_id in (None, one.deployable_id)]

    def get_attribute(self, uuid: str) -> AttributeRecord:
        with read(self.deps.engine) as connection:
            return _attribute_of_host(connection, uuid) or _attribute(connection, uuid)

    def create_attribute(self, deployable_id: int, key: str, value: str) -> AttributeRecord:
        if key.startswith(TRAIT_KEY) and not is_custom(value):
            raise Invalid(
                f"Attribute {key} is a trait, so its value {value!r} must be CUSTOM_ followed by A-Z, 0-9 and _."
            )
        uuid = self.deps.ids.uuid()

        def insert_attribute(connection: Connection) -> tuple[str, AttributeRecord]:
            part = next((one for one in accelerator_store.deployables(connection) if one.id == deployable_id), None)
            if part is None:
                raise NotFound(f"Deployable {deployable_id} could not be found.")
            values = {"uuid": uuid, "deployable_id": part.id, "key": key, "value": value}
            accelerator_store.insert_row(connection, t.attributes, values, self.deps.clock.now())
            host = _host_of(connection, part)
            self._enqueue_overrides(connection, host)
            return host, _attribute(connection, uuid)

        host, made = in_transaction(self.deps.engine, insert_attribute)
        self.deps.jobs.wake_hosts([host])
        return made

    def delete_attribute(self, uuid: str) -> None:
        def delete_row(connection: Connection) -> str:
            if (reported := _attribute_of_host(connection, uuid)) is not None:
                raise Conflict(f"Attribute {reported.key} is reported by the host and cannot be deleted.")
            found = _attribute(connection, uuid)
            (part,) = [one for one in accelerator_store.deployables(connection) if one.id == found.deployable_id]
            host = _host_of(connection, part)
            accelerator_store.delete_rows(connection, t.attributes, [found.id])
            self._enqueue_overrides(connection, host)
            return host

        self.deps.jobs.wake_hosts([in_transaction(self.deps.engine, delete_row)])

    # ---------------------------------------------------------------------------------------------------

    def _enqueue_overrides(self, connection: Connection, host: str) -> None:
        """Enqueues a job with all settings of operators for the host, as of this transaction."""
        self.deps.jobs.enqueue(
            connection,
            host,
            JobKind.OPERATOR_OVERRIDES,
            f"{host}/{JobKind.OPERATOR_OVERRIDES}",
            self._operator_overrides(connection, host),
        )

    def _operator_overrides(self, connection: Connection, host: str) -> OperatorOverridesJob:
        devices = accelerator_store.devices(connection, hostname=host)
        parts = {
            part.id: part.name.removeprefix(provider_name(host, ""))
            for part in accelerator_store.deployables_of(connection, host)
        }
        traits: dict[str, list[str]] = {}
        for one in accelerator_store.attributes(connection):
            if one.deployable_id in parts and one.key.startswith(TRAIT_KEY):
                traits.setdefault(parts[one.deployable_id], []).append(one.value)
        withdrawn = tuple(device.address for device in devices if device.status != DeviceStatus.ENABLED)
        return OperatorOverridesJob(withdrawn=withdrawn, traits={name: tuple(some) for name, some in traits.items()})


@dataclass(frozen=True, slots=True)
class LoadableBitstream:
    """An image that fits regions of this type. If only the card can decide between several images, one of them."""

    image: ImageRecord
    region_type: str


@dataclass(frozen=True)
class BitstreamService:
    """Checks whether a bitstream exists, before a caller relies on it; the host that loads one searches again and
    verifies.
    """

    deps: AcceleratorDeps

    def find_loadable(
        self, wanted: ProgramRequest, project_id: str, traits: Collection[str]
    ) -> list[LoadableBitstream]:
        """The loadable bitstreams, one per region type that hosts report and that has all region traits among
        `traits`.

        Raises `BitstreamNotFound`, `MultipleBitstreams` or `ChecksumMismatch` if there is none.
        """
        if self.deps.images is None:
            raise NotFound("this accelerator service has no image service")
        found: list[LoadableBitstream] = []
        refusals: list[MoorageError] = []
        types = self._region_types(traits)
        for region_type in types:
            try:
                image = self._find_image(self.deps.images, wanted, BitstreamTarget(region_type, project_id))
            except (BitstreamNotFound, MultipleBitstreams, ChecksumMismatch) as error:
                refusals.append(error)
            else:
                found.append(LoadableBitstream(image, region_type))
        if found:
            return found
        if not refusals:
            raise BitstreamNotFound(f"no host has a region that can carry {wanted}")
        # Prefer the error for several images of one region type over "not found" for the other types.
        raise min(refusals, key=lambda error: isinstance(error, BitstreamNotFound))

    def _find_image(self, images: ImageSource, wanted: ProgramRequest, target: BitstreamTarget) -> ImageRecord:
        try:
            return find_image(images, wanted, target)
        except MultipleBitstreams as error:
            several = _get_images(images, target, error)
            if len({tuple(one.properties.get(name) for name in _CARD_PROPERTIES) for one in several}) == 1:
                raise
            return several[0]

    def _region_types(self, traits: Collection[str]) -> Sequence[str]:
        parsed = (parse_trait(trait) for trait in traits)
        wanted = {one.id for one in parsed if one is not None and one.kind is TraitKind.REGION}
        with read(self.deps.engine) as connection:
            parts = accelerator_store.deployables(connection)
        there = sorted({value for part in parts for key, value in part.attributes if key == REGION_TYPE})
        return [one for one in there if wanted <= {normalized_id(one)}]


def _get_images(images: ImageSource, target: BitstreamTarget, error: MultipleBitstreams) -> list[ImageRecord]:
    return [image for one in error.images if (image := images.get(target.view, one)) is not None]


def _device(connection: Connection, uuid: str) -> DeviceRecord:
    return _first_or_not_found(accelerator_store.devices(connection, uuid=uuid), f"Device {uuid}")


def _deployable(connection: Connection, uuid: str) -> DeployableRecord:
    return _first_or_not_found(accelerator_store.deployables(connection, uuid=uuid), f"Deployable {uuid}")


#: Names the attributes that hosts report: their uuids are derived from the deployable's, so that they stay the same.
_REPORTED = UUID("0d1c3a52-7a55-5e0e-9a3f-2f7d5c1b6e44")


def _reported(part: DeployableRecord) -> list[AttributeRecord]:
    return [
        AttributeRecord(
            part.id,
            str(uuid5(_REPORTED, f"{part.uuid}/{key}/{value}")),
            part.id, key, value, part.created_at, part.updated_at,
        )
        for key, value in part.attributes
    ]  # fmt: skip


def _attribute_of_host(connection: Connection, uuid: str) -> AttributeRecord | None:
    parts = accelerator_store.deployables(connection)
    return next((one for part in parts for one in _reported(part) if one.uuid == uuid), None)


def _attribute(connection: Connection, uuid: str) -> AttributeRecord:
    return _first_or_not_found(accelerator_store.attributes(connection, uuid=uuid), f"Attribute {uuid}")


def _host_of(connection: Connection, part: DeployableRecord) -> str:
    return _first_or_not_found(
        [one for one in accelerator_store.devices(connection) if one.id == part.device_id], "Device"
    ).hostname


def _first_or_not_found(found: Sequence[T], what: str) -> T:
    if not found:
        raise NotFound(f"{what} could not be found.")
    return found[0]
