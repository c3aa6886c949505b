"""Runs one job of this host: decodes its payload, calls the method for its kind, and encodes the result.

`JobRunner` runs the jobs of the compute service, `AcceleratorRunner` those of the accelerator service.

Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeVar

from msgspec.structs import replace

from moorage.agent.jobs.keep_alive import KeepAlive, run_keeping_alive
from moorage.agent.jobs.move_jobs import MoveJobs
from moorage.agent.jobs.server_build import (
    AttachFailed,
    BuildFailed,
    BuiltServer,
    JobLost,
    ServerBuilder,
    domain_interface,
    failure_report,
)
from moorage.agent.jobs.snapshots import NoSnapshots, Snapshots
from moorage.agent.model import PowerAction
from moorage.agent.virt.driver import NoSuchDomain, VirtDriver
from moorage.core.errors import MoorageError
from moorage.core.json import JsonObject
from moorage.jobs.contract import (
    DEVICE,
    BindJob,
    BindResult,
    BuildJob,
    EmptyResult,
    HandlesResult,
    HandOverJob,
    InterfaceJob,
    JobKind,
    JobPayload,
    JobResult,
    OperatorOverridesJob,
    PasswordJob,
    ProgramJob,
    ProgramResult,
    RebuildJob,
    ReceiveResult,
    ReleaseHandleJob,
    RescueJob,
    ServerJob,
    ServerResult,
    ShelveJob,
    SnapshotJob,
    StartJob,
    UnbindJob,
    payload_of,
    result_document,
)

P = TypeVar("P", bound=JobPayload)

#: Runs one job: takes its payload and returns its result, both as JSON objects.
JobWork = Callable[[Mapping[str, object], KeepAlive], JsonObject]

#: A report contains this many characters from the end of the guest's console.
MAX_CONSOLE_CHARACTERS = 1 << 16

#: Kinds of jobs that only change the power state of an existing domain.
_POWER = (JobKind.PAUSE, JobKind.UNPAUSE, JobKind.SUSPEND, JobKind.RESUME, JobKind.REBOOT)


def work_of(kind: JobKind, payload_type: type[P], run: Callable[[P, KeepAlive], JobResult]) -> JobWork:
    """A `JobWork` that decodes the payload, calls `run` and encodes the result."""

    def run_job(document: Mapping[str, object], keep_alive: KeepAlive) -> JsonObject:
        return result_document(run(payload_of(kind, document, payload_type), keep_alive))

    return run_job


def _work_for(works: Mapping[str, JobWork], kind: str) -> JobWork:
    if kind not in works:
        raise MoorageError(
            f"this agent has no job of kind {kind!r}; it has {', '.join(works)}. Upgrade the agent", code="agent.kind"
        )
    return works[kind]


class JobRunner:
    """`devices_changed` is called when accelerators were attached or released.

    `releases_on_stop`: stopping a server, also by a deletion that can be undone, releases its accelerators on the host,
    although its allocation in Placement stays; starting or restoring it attaches the same number again.
    `others`: {kind: work} of jobs that are not about a server.
    """

    def __init__(
        self,
        driver: VirtDriver,
        builder: ServerBuilder,
        devices_changed: Callable[[], None],
        *,
        snapshots: Snapshots | None = None,
        releases_on_stop: bool = False,
        others: Mapping[str, JobWork] = MappingProxyType({}),
    ) -> None:
        self._driver = driver
        self._builder = builder
        self._devices_changed = devices_changed
        self._snapshots = snapshots or NoSnapshots()
        self._releases_on_stop = releases_on_stop
        self._moves = MoveJobs(driver, builder, self._snapshots)
        about_servers: dict[JobKind, Callable[[ServerJob, KeepAlive], ServerResult]] = {
            JobKind.DESTROY: self._destroy,
            JobKind.SOFT_DELETE: self._soft_delete,
            JobKind.RESTORE: self._start,
            JobKind.START: self._start,
            JobKind.STOP: self._stop,
            JobKind.REBOOT_HARD: self._reboot_hard,
            JobKind.UNRESCUE: self._unrescue,
            JobKind.CRASH_DUMP: self._crash_dump,
            JobKind.UNSHELVE: self._start,
            JobKind.STRIP: self._strip,
            JobKind.RECEIVE: self._receive,
            JobKind.TAKE_OVER: self._take_over,
            **dict.fromkeys((JobKind.OFFLOAD, JobKind.CLEAN, JobKind.DROP, JobKind.UNMAKE), self._destroy),
            **{kind: partial(self._power, PowerAction(kind)) for kind in _POWER},
        }
        remakes = {
            JobKind.REMAKE: self._moves.remake,
            JobKind.REMAKE_BACK: self._moves.remake_back,
            JobKind.RETURN: self._moves.remake_back,
        }
        self._works: dict[str, JobWork] = {
            JobKind.BUILD: work_of(JobKind.BUILD, BuildJob, self._build),
            **{kind: work_of(kind, ServerJob, run) for kind, run in about_servers.items()},
            JobKind.REBUILD: work_of(JobKind.REBUILD, RebuildJob, self._rebuild),
            JobKind.RESCUE: work_of(JobKind.RESCUE, RescueJob, self._rescue),
            JobKind.SET_PASSWORD: work_of(JobKind.SET_PASSWORD, PasswordJob, self._set_password),
            JobKind.ATTACH_INTERFACE: work_of(JobKind.ATTACH_INTERFACE, InterfaceJob, self._attach_interface),
            JobKind.DETACH_INTERFACE: work_of(JobKind.DETACH_INTERFACE, InterfaceJob, self._detach_interface),
            JobKind.SNAPSHOT: work_of(JobKind.SNAPSHOT, SnapshotJob, self._snapshot),
            JobKind.BACKUP: work_of(JobKind.BACKUP, SnapshotJob, self._snapshot),
            JobKind.SHELVE: work_of(JobKind.SHELVE, ShelveJob, self._shelve),
            JobKind.MOVE_OUT: work_of(JobKind.MOVE_OUT, ShelveJob, self._move_out),
            JobKind.MOVE_IN: work_of(JobKind.MOVE_IN, StartJob, self._move_in),
            JobKind.BUILD_AGAIN: work_of(JobKind.BUILD_AGAIN, StartJob, self._move_in),
            JobKind.MOVE_BACK: work_of(JobKind.MOVE_BACK, StartJob, self._move_back),
            JobKind.GO_BACK: work_of(JobKind.GO_BACK, StartJob, self._move_back),
            **{kind: work_of(kind, RebuildJob, partial(self._remake, run)) for kind, run in remakes.items()},
            JobKind.HAND_OVER: work_of(JobKind.HAND_OVER, HandOverJob, self._hand_over),
            **others,
        }

    def run_job(self, kind: str, payload: Mapping[str, object], keep_alive: KeepAlive) -> JsonObject:
        """Returns the result. Raises `MoorageError`, whose message goes into the report."""
        return _work_for(self._works, kind)(payload, keep_alive)

    # -------------------------------------------------------------------------- build and destroy

    def _build(self, job: BuildJob, keep_alive: KeepAlive) -> ServerResult:
        try:
            built = self._builder.build(job, keep_alive)
        except BuildFailed:
            self._devices_changed()
            raise
        if built.devices:
            self._devices_changed()
        return self._built_result(job, built)

    def _rebuild(self, job: RebuildJob, keep_alive: KeepAlive) -> ServerResult:
        return self._built_result(job, self._builder.rebuild(job, keep_alive))

    def _destroy(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        return self._released_result(self._builder.destroy(job.server, keep_alive))

    # --------------------------------------------------------------------------------------- power

    def _power(self, action: PowerAction, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        uuid = job.server.id
        state = self._builder.run_keeping_alive(lambda: self._driver.power(uuid, action), keep_alive)
        return ServerResult(power_state=state.value, console=self._console(uuid))

    def _start(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        devices = self._attach_devices(job, keep_alive)
        return replace(self._power(PowerAction.START, job, keep_alive), devices=devices)

    def _reboot_hard(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        devices = self._attach_devices(job, keep_alive)
        return replace(self._power(PowerAction.REBOOT_HARD, job, keep_alive), devices=devices)

    def _stop(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        result = self._power(PowerAction.STOP, job, keep_alive)
        if not self._releases_on_stop:
            return result
        released = self._released_result(self._builder.detach(job.server, keep_alive)).released
        return replace(result, released=released, devices=())

    def _soft_delete(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        """Stops the server. A server that could not be built has no domain, and counts as stopped."""
        try:
            return self._stop(job, keep_alive)
        except NoSuchDomain:
            return ServerResult()

    def _attach_devices(self, job: ServerJob, keep_alive: KeepAlive) -> tuple[Mapping[str, str], ...] | None:
        """Attaches the devices of a server that is about to run, because stopping it may have released them. Returns
        them; None if it has none.
        """
        built = self._builder.attach(job, keep_alive)
        if not built.devices:
            return None
        self._devices_changed()
        return built.devices

    # ------------------------------------------------------------------------- operations inside

    def _rescue(self, job: RescueJob, keep_alive: KeepAlive) -> ServerResult:
        devices = self._attach_devices(job, keep_alive)
        self._builder.run_keeping_alive(
            lambda: self._driver.rescue(job.server.id, job.image_id, job.password), keep_alive
        )
        return ServerResult(devices=devices, console=self._console(job.server.id))

    def _unrescue(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        self._builder.run_keeping_alive(lambda: self._driver.unrescue(job.server.id), keep_alive)
        return ServerResult(console=self._console(job.server.id))

    def _set_password(self, job: PasswordJob, keep_alive: KeepAlive) -> ServerResult:
        self._builder.run_keeping_alive(lambda: self._driver.set_password(job.server.id, job.password), keep_alive)
        return ServerResult()

    def _crash_dump(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        self._driver.crash_dump(job.server.id)
        return ServerResult(console=self._console(job.server.id))

    def _attach_interface(self, job: InterfaceJob, keep_alive: KeepAlive) -> ServerResult:
        """Raises `AttachFailed`, which says whether the guest may have the interface, and `JobLost`."""
        uuid, interface = job.server.id, domain_interface(job.interface)
        try:
            self._builder.run_keeping_alive(lambda: self._driver.attach_interface(uuid, interface), keep_alive)
        except JobLost:
            raise
        except Exception as error:  # after any failure, compute must know whether the guest has the port
            sentence, code = failure_report(error)
            leftovers = self._undo_attachment(uuid, interface.mac, keep_alive)
            failed = AttachFailed("; ".join([sentence, *leftovers]), code=code)
            failed.is_left = bool(leftovers)
            raise failed from error
        return ServerResult()

    def _undo_attachment(self, uuid: str, mac: str, keep_alive: KeepAlive) -> list[str]:
        """Returns a sentence if the guest may still have the interface."""
        try:
            self._builder.run_keeping_alive(lambda: self._driver.detach_interface(uuid, mac), keep_alive)
        except JobLost:
            raise
        except Exception as error:  # noqa: BLE001 - after any failure the guest may have it; the report says so
            return [f"and it could not be undone: {failure_report(error)[0]}"]
        return []

    def _detach_interface(self, job: InterfaceJob, keep_alive: KeepAlive) -> ServerResult:
        """A function of a network card is taken from the guest even if the guest does not release it: it restarts."""
        if job.interface.kind == DEVICE:
            self._builder.remove_functions(job, keep_alive)
            return ServerResult()
        uuid, mac = job.server.id, job.interface.mac
        self._builder.run_keeping_alive(lambda: self._driver.detach_interface(uuid, mac), keep_alive)
        return ServerResult()

    def _snapshot(self, job: SnapshotJob, keep_alive: KeepAlive) -> ServerResult:
        self._builder.run_keeping_alive(lambda: self._snapshots.upload_disk(job), keep_alive)
        return ServerResult()

    # ------------------------------------------------------------------------------------------ moves

    def _shelve(self, job: ShelveJob, keep_alive: KeepAlive) -> ServerResult:
        self._moves.shelve(job, keep_alive)
        return ServerResult(console=self._console(job.server.id))

    def _move_out(self, job: ShelveJob, keep_alive: KeepAlive) -> ServerResult:
        try:
            return ServerResult(released=self._moves.move_out(job, keep_alive))
        finally:
            self._devices_changed()

    def _move_back(self, job: StartJob, keep_alive: KeepAlive) -> ServerResult:
        built = self._moves.move_back(job, keep_alive)
        self._devices_changed()
        return self._built_result(job, built)

    def _remake(
        self, remake: Callable[[RebuildJob, KeepAlive], BuiltServer], job: RebuildJob, keep_alive: KeepAlive
    ) -> ServerResult:
        try:
            built = remake(job, keep_alive)
        finally:
            self._devices_changed()
        return self._built_result(job, built)

    def _strip(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        return self._released_result(self._moves.stop_and_detach(job.server, keep_alive))

    def _move_in(self, job: StartJob, keep_alive: KeepAlive) -> ServerResult:
        try:
            built = self._moves.move_in(job, keep_alive)
        finally:
            self._devices_changed()
        return self._built_result(job, built)

    def _receive(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        return ReceiveResult(target=self._moves.receive(job))

    def _hand_over(self, job: HandOverJob, keep_alive: KeepAlive) -> ServerResult:
        self._moves.hand_over(job, keep_alive)
        return ServerResult()

    def _take_over(self, job: ServerJob, keep_alive: KeepAlive) -> ServerResult:
        return ServerResult(power_state=self._moves.take_over(job.server.id).value)

    # ------------------------------------------------------------------------- results, side effects

    def _released_result(self, count: int) -> ServerResult:
        if count:
            self._devices_changed()
        return ServerResult(released=count)

    def _built_result(self, job: ServerJob, built: BuiltServer) -> ServerResult:
        return ServerResult(devices=built.devices, console=self._console(job.server.id))

    def _console(self, uuid: str) -> str:
        return self._driver.console(uuid)[-MAX_CONSOLE_CHARACTERS:]


class AcceleratorAgentApi(Protocol):
    """The methods of the host's accelerator agent that jobs of the accelerator service call."""

    def bind_requests(self, order: BindJob) -> Mapping[str, str]:
        """Attach devices; returns {accelerator request: address of its device}."""
        ...

    def unbind_instance(self, instance_uuid: str) -> Mapping[str, Mapping[str, str]]:
        """Detach the server's devices; returns the states of all handles of each deployable that the server used."""
        ...

    def handle_states(self, pci_ids: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """States of the handles of each deployable that has one of `pci_ids`."""
        ...

    def is_quarantined(self, pci_id: str) -> bool: ...

    def release_quarantined(self, pci_id: str, reason: str, user_id: str, *, is_clean: bool) -> None:
        """End the quarantine of a handle; see `AttachEngine.release_quarantined`."""
        ...

    def program_region(self, order: ProgramJob) -> str | None:
        """Program a region; returns the id of its image now, None if it is blank."""
        ...

    def apply_operator_overrides(self, overrides: OperatorOverridesJob) -> None:
        """Replaces all settings of operators for this host's devices."""
        ...


class AcceleratorRunner:
    def __init__(self, accelerators: AcceleratorAgentApi, *, keep_alive_period_s: float) -> None:
        self._accelerators = accelerators
        self._period_s = keep_alive_period_s
        self._works: dict[str, JobWork] = {
            JobKind.BIND: work_of(JobKind.BIND, BindJob, self._bind),
            JobKind.UNBIND: work_of(JobKind.UNBIND, UnbindJob, self._unbind),
            JobKind.PROGRAM: work_of(JobKind.PROGRAM, ProgramJob, self._program),
            JobKind.RELEASE_HANDLE: work_of(JobKind.RELEASE_HANDLE, ReleaseHandleJob, self._release_handle),
            JobKind.OPERATOR_OVERRIDES: work_of(
                JobKind.OPERATOR_OVERRIDES, OperatorOverridesJob, self._apply_operator_overrides
            ),
        }

    def run_job(self, kind: str, payload: Mapping[str, object], keep_alive: KeepAlive) -> JsonObject:
        """Returns the result. Raises `MoorageError`, whose message goes into the report."""
        work = _work_for(self._works, kind)
        return run_keeping_alive(lambda: work(payload, keep_alive), keep_alive, self._period_s)

    def _bind(self, order: BindJob, keep_alive: KeepAlive) -> BindResult:
        handles = self._accelerators.bind_requests(order)
        return BindResult(handles=handles, states=self._accelerators.handle_states(handles.values()))

    def _unbind(self, order: UnbindJob, keep_alive: KeepAlive) -> HandlesResult:
        return HandlesResult(states=self._accelerators.unbind_instance(order.instance_uuid))

    def _release_handle(self, order: ReleaseHandleJob, keep_alive: KeepAlive) -> HandlesResult:
        if self._accelerators.is_quarantined(order.handle):  # otherwise an earlier attempt has freed it
            self._accelerators.release_quarantined(order.handle, order.reason, order.user_id, is_clean=order.is_clean)
        return HandlesResult(states=self._accelerators.handle_states([order.handle]))

    def _program(self, order: ProgramJob, keep_alive: KeepAlive) -> ProgramResult:
        return ProgramResult(bitstream_id=self._accelerators.program_region(order))

    def _apply_operator_overrides(self, overrides: OperatorOverridesJob, keep_alive: KeepAlive) -> EmptyResult:
        self._accelerators.apply_operator_overrides(overrides)
        return EmptyResult()
