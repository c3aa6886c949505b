"""One job of this host, from its payload to its result: the method for each kind of job.

`JobRunner` does the jobs of the compute service, `AcceleratorRunner` those of the accelerator service.

Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from moorage.agent.jobs.keep_alive import KeepAlive, run_keeping_alive
from moorage.agent.jobs.move_jobs import MoveJobs
from moorage.agent.jobs.server_build import BuildFailed, BuiltServer, ServerBuilder
from moorage.agent.jobs.snapshots import NoSnapshots, Snapshots
from moorage.agent.model.job_payloads import (
    BuildPayload,
    HandOverPayload,
    PasswordPayload,
    RebuildPayload,
    RescuePayload,
    ServerOnlyPayload,
    SnapshotPayload,
    StartPayload,
    decode_payload,
)
from moorage.agent.model.power import PowerAction
from moorage.agent.virt.driver import NoSuchDomain, VirtDriver
from moorage.core.errors import MoorageError

JobResult = dict[str, Any]
RawPayload = Mapping[str, object]
T = TypeVar("T")

#: A report contains this many characters from the end of the guest's console.
MAX_CONSOLE_CHARACTERS = 1 << 16

#: Kinds of jobs that only change the power state of an existing domain.
_POWER = ("pause", "unpause", "suspend", "resume", "reboot")


class JobRunner:
    """`devices_changed` is called when accelerators were attached or released.

    `releases_on_stop`: stopping a server releases its accelerators on the host, although Placement keeps its
    allocation; starting it attaches as many. `others`: further kinds of jobs, not about a server, by kind.
    """

    def __init__(
        self,
        driver: VirtDriver,
        builder: ServerBuilder,
        devices_changed: Callable[[], None],
        *,
        snapshots: Snapshots | None = None,
        releases_on_stop: bool = False,
        others: Mapping[str, Callable[[RawPayload, KeepAlive], JobResult]] = MappingProxyType({}),
    ) -> None:
        self._driver = driver
        self._builder = builder
        self._devices_changed = devices_changed
        self._snapshots = snapshots or NoSnapshots()
        self._releases_on_stop = releases_on_stop
        self._moves = MoveJobs(driver, builder, self._snapshots)
        self._kinds: dict[str, Callable[[RawPayload, KeepAlive], JobResult]] = {
            "build": self._build,
            "destroy": self._destroy,
            "soft-delete": self._soft_delete,
            "restore": self._start,
            "start": self._start,
            "stop": self._stop,
            "reboot-hard": self._reboot_hard,
            "rebuild": self._rebuild,
            "rescue": self._rescue,
            "unrescue": self._unrescue,
            "set-password": self._set_password,
            "crash-dump": self._crash_dump,
            "snapshot": self._snapshot,
            "backup": self._snapshot,
            "shelve": self._shelve,
            "unshelve": self._start,
            "move-out": self._move_out,
            "move-in": self._move_in,
            "build-again": self._move_in,
            "move-back": self._move_back,
            "go-back": self._move_back,
            "remake": self._remake_with(self._moves.remake),
            "remake-back": self._remake_with(self._moves.remake_back),
            "return": self._remake_with(self._moves.remake_back),
            "strip": self._strip,
            "receive": self._receive,
            "hand-over": self._hand_over,
            "take-over": self._take_over,
            **dict.fromkeys(("offload", "clean", "drop", "unmake"), self._destroy),
            **{kind: self._power(PowerAction(kind)) for kind in _POWER},
            **others,
        }

    def run_job(self, kind: str, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        """Raises `MoorageError` with the sentence for the report."""
        if kind not in self._kinds:
            known = ", ".join(self._kinds)
            raise MoorageError(
                f"this agent has no job of kind {kind!r}; it has {known}. Upgrade the agent", code="agent.kind"
            )
        return self._kinds[kind](payload, keep_alive)

    # -------------------------------------------------------------------------- build and destroy

    def _build(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, BuildPayload)
        try:
            built = self._builder.build(job, keep_alive)
        except BuildFailed:
            self._devices_changed()
            raise
        if built.devices:
            self._devices_changed()
        return _devices_result(built) | self._console_result(job.server.id)

    def _rebuild(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, RebuildPayload)
        return _devices_result(self._builder.rebuild(job, keep_alive)) | self._console_result(job.server.id)

    def _destroy(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        return self._released_result(
            self._builder.destroy(decode_payload(payload, ServerOnlyPayload).server, keep_alive)
        )

    # --------------------------------------------------------------------------------------- power

    def _power(self, action: PowerAction) -> Callable[[RawPayload, KeepAlive], JobResult]:
        def run_job(payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
            uuid = decode_payload(payload, ServerOnlyPayload).server.id
            state = self._builder.run_keeping_alive(lambda: self._driver.power(uuid, action), keep_alive)
            return {"power_state": state.value} | self._console_result(uuid)

        return run_job

    def _start(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        return self._attach_devices(payload, keep_alive) | self._power(PowerAction.START)(payload, keep_alive)

    def _reboot_hard(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        return self._attach_devices(payload, keep_alive) | self._power(PowerAction.REBOOT_HARD)(payload, keep_alive)

    def _stop(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        result = self._power(PowerAction.STOP)(payload, keep_alive)
        if not self._releases_on_stop:
            return result
        released = self._builder.detach(decode_payload(payload, ServerOnlyPayload).server, keep_alive)
        return result | self._released_result(released) | _devices_result(BuiltServer(()))

    def _soft_delete(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        """A server that could not be built has no domain: that counts as off."""
        try:
            return self._power(PowerAction.STOP)(payload, keep_alive)
        except NoSuchDomain:
            return {}

    def _attach_devices(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        """Attach the devices of a server that is about to run: stopping it may have released them."""
        built = self._builder.attach(decode_payload(payload, BuildPayload), keep_alive)
        if not built.devices:
            return {}
        self._devices_changed()
        return _devices_result(built)

    # ------------------------------------------------------------------------- operations inside

    def _rescue(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, RescuePayload)
        attached = self._attach_devices(payload, keep_alive)
        self._builder.run_keeping_alive(
            lambda: self._driver.rescue(job.server.id, job.image_id, job.password), keep_alive
        )
        return attached | self._console_result(job.server.id)

    def _unrescue(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        uuid = decode_payload(payload, ServerOnlyPayload).server.id
        self._builder.run_keeping_alive(lambda: self._driver.unrescue(uuid), keep_alive)
        return self._console_result(uuid)

    def _set_password(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, PasswordPayload)
        self._builder.run_keeping_alive(lambda: self._driver.set_password(job.server.id, job.password), keep_alive)
        return {}

    def _crash_dump(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        uuid = decode_payload(payload, ServerOnlyPayload).server.id
        self._driver.crash_dump(uuid)
        return self._console_result(uuid)

    def _snapshot(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, SnapshotPayload)
        self._builder.run_keeping_alive(lambda: self._snapshots.upload_disk(job), keep_alive)
        return {}

    # ------------------------------------------------------------------------------------------ moves

    def _shelve(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, SnapshotPayload)
        self._moves.shelve(job, keep_alive)
        return self._console_result(job.server.id)

    def _move_out(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        return self._released_result(self._moves.move_out(decode_payload(payload, SnapshotPayload), keep_alive))

    def _move_back(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, StartPayload)
        built = self._moves.move_back(job, keep_alive)
        self._devices_changed()
        return _devices_result(built) | self._console_result(job.server.id)

    def _remake_with(
        self, work: Callable[[RebuildPayload, KeepAlive], BuiltServer]
    ) -> Callable[[RawPayload, KeepAlive], JobResult]:
        def run_job(payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
            job = decode_payload(payload, RebuildPayload)
            try:
                built = work(job, keep_alive)
            finally:
                self._devices_changed()
            return _devices_result(built) | self._console_result(job.server.id)

        return run_job

    def _strip(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        return self._released_result(
            self._moves.strip_devices(decode_payload(payload, ServerOnlyPayload).server, keep_alive)
        )

    def _move_in(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        job = decode_payload(payload, StartPayload)
        try:
            built = self._moves.move_in(job, keep_alive)
        finally:
            self._devices_changed()
        return _devices_result(built) | self._console_result(job.server.id)

    def _receive(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        return self._moves.receive(decode_payload(payload, BuildPayload))

    def _hand_over(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        self._moves.hand_over(decode_payload(payload, HandOverPayload), keep_alive)
        return {}

    def _take_over(self, payload: RawPayload, keep_alive: KeepAlive) -> JobResult:
        return self._moves.take_over(decode_payload(payload, ServerOnlyPayload).server.id)

    # ------------------------------------------------------------------------- results, side effects

    def _released_result(self, count: int) -> JobResult:
        if count:
            self._devices_changed()
        return {"released": count}

    def _console_result(self, uuid: str) -> JobResult:
        return {"console": self._driver.console(uuid)[-MAX_CONSOLE_CHARACTERS:]}


def _devices_result(built: BuiltServer) -> JobResult:
    return {"devices": [dict(device) for device in built.devices]}


class AcceleratorAgentApi(Protocol):
    """The methods of the host's accelerator agent that its service's jobs call."""

    def bind_requests(self, job: Mapping[str, Any]) -> Mapping[str, str]:
        """Attach devices; returns {accelerator request: address of its device}."""
        ...

    def unbind_instance(self, instance_uuid: str) -> Mapping[str, Mapping[str, str]]:
        """Detach the server's devices; returns the states of all handles of each deployable that the server used."""
        ...

    def handle_states(self, pci_ids: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """States of the handles of each deployable that has one of `pci_ids`."""
        ...

    def program_region(self, job: Mapping[str, Any]) -> str | None:
        """Program a region; returns the id of its image now, None if it is blank."""
        ...

    def apply_operator_wishes(self, wishes: Mapping[str, Any]) -> None:
        """Replace all of an operator's settings for this host's devices."""
        ...


class AcceleratorRunner:
    def __init__(self, accelerators: AcceleratorAgentApi, *, keep_alive_period_s: float) -> None:
        self._accelerators = accelerators
        self._period_s = keep_alive_period_s
        self._kinds: dict[str, Callable[[Mapping[str, Any]], JobResult]] = {
            "bind": self._bind,
            "unbind": lambda payload: {"states": accelerators.unbind_instance(payload["instance_uuid"])},
            "program": lambda payload: {"bitstream_id": accelerators.program_region(payload)},
            "wishes": self._apply_operator_wishes,
        }

    def run_job(self, kind: str, payload: Mapping[str, Any], keep_alive: Callable[[], None]) -> JobResult:
        """Raises `MoorageError` with the sentence for the report."""
        if kind not in self._kinds:
            raise MoorageError(
                f"this agent has no job of kind {kind!r}; it has {', '.join(self._kinds)}. Upgrade the agent",
                code="agent.kind",
            )
        return run_keeping_alive(lambda: self._kinds[kind](payload), keep_alive, self._period_s)

    def _bind(self, job: Mapping[str, Any]) -> JobResult:
        handles = dict(self._accelerators.bind_requests(job))
        return {"handles": handles, "states": self._accelerators.handle_states(handles.values())}

    def _apply_operator_wishes(self, wishes: Mapping[str, Any]) -> JobResult:
        self._accelerators.apply_operator_wishes(wishes)
        return {}
