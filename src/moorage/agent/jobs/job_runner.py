"""One job of this host, from its payload to its result: which part of the agent does what kind of job."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from moorage.agent.jobs.move_jobs import MoveWork
from moorage.agent.jobs.server_build import Builder, BuildFailed, Built, KeepAlive, meanwhile
from moorage.agent.jobs.snapshots import NoSnapshots, Snapshots
from moorage.agent.model.job_payloads import (
    BuildOrder,
    HandOverOrder,
    PasswordOrder,
    RebuildOrder,
    RescueOrder,
    ServerJob,
    SnapshotOrder,
    StartOrder,
    decode,
)
from moorage.agent.model.power import PowerAction
from moorage.agent.virt.driver import NoSuchDomain, VirtDriver
from moorage.core.errors import MoorageError

Result = dict[str, Any]
Payload = Mapping[str, object]
T = TypeVar("T")

#: Of what a guest wrote, the end goes into a report.
MAX_CONSOLE_CHARACTERS = 1 << 16

#: Jobs that only change the power of a domain that is there.
_POWER = ("pause", "unpause", "suspend", "resume", "reboot")


class JobRunner:
    """`devices_changed` is called when accelerators were given or taken.

    `releases_on_stop`: a server that is stopped gives its accelerators back to the host, which keeps them for it in
    Placement, and gets as many when it is started. `others`: kinds of jobs that are about no server.
    """

    def __init__(
        self,
        driver: VirtDriver,
        builder: Builder,
        devices_changed: Callable[[], None],
        *,
        snapshots: Snapshots | None = None,
        releases_on_stop: bool = False,
        others: Mapping[str, Callable[[Payload, KeepAlive], Result]] = MappingProxyType({}),
    ) -> None:
        self._driver = driver
        self._builder = builder
        self._devices_changed = devices_changed
        self._snapshots = snapshots or NoSnapshots()
        self._releases_on_stop = releases_on_stop
        self._moves = MoveWork(driver, builder, self._snapshots)
        self._kinds: dict[str, Callable[[Payload, KeepAlive], Result]] = {
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
            "move-in": self._come,
            "build-again": self._come,
            "move-back": self._move_back,
            "go-back": self._move_back,
            "remake": self._remade(self._moves.remake),
            "remake-back": self._remade(self._moves.remake_back),
            "return": self._remade(self._moves.remake_back),
            "strip": self._strip,
            "receive": self._receive,
            "hand-over": self._hand_over,
            "take-over": self._take_over,
            **dict.fromkeys(("offload", "clean", "drop", "unmake"), self._destroy),
            **{kind: self._power(PowerAction(kind)) for kind in _POWER},
            **others,
        }

    def run(self, kind: str, payload: Payload, keep_alive: KeepAlive) -> Result:
        """Raises `MoorageError` with the sentence for the report."""
        if kind not in self._kinds:
            known = ", ".join(self._kinds)
            raise MoorageError(
                f"this agent has no job of kind {kind!r}; it has {known}. Upgrade the agent", code="agent.kind"
            )
        return self._kinds[kind](payload, keep_alive)

    # ----------------------------------------------------------------------------- made and unmade

    def _build(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, BuildOrder)
        try:
            built = self._builder.build(order, keep_alive)
        except BuildFailed:
            self._devices_changed()
            raise
        if built.devices:
            self._devices_changed()
        return _devices(built) | self._console(order.server.id)

    def _rebuild(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, RebuildOrder)
        return _devices(self._builder.rebuild(order, keep_alive)) | self._console(order.server.id)

    def _destroy(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        return self._released(self._builder.destroy(decode(payload, ServerJob).server, keep_alive))

    # --------------------------------------------------------------------------------------- power

    def _power(self, action: PowerAction) -> Callable[[Payload, KeepAlive], Result]:
        def run(payload: Payload, keep_alive: KeepAlive) -> Result:
            uuid = decode(payload, ServerJob).server.id
            state = self._builder.meanwhile(lambda: self._driver.power(uuid, action), keep_alive)
            return {"power_state": state.value} | self._console(uuid)

        return run

    def _start(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        return self._attached(payload, keep_alive) | self._power(PowerAction.START)(payload, keep_alive)

    def _reboot_hard(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        return self._attached(payload, keep_alive) | self._power(PowerAction.REBOOT_HARD)(payload, keep_alive)

    def _stop(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        result = self._power(PowerAction.STOP)(payload, keep_alive)
        if not self._releases_on_stop:
            return result
        released = self._builder.detach(decode(payload, ServerJob).server, keep_alive)
        return result | self._released(released) | _devices(Built(()))

    def _soft_delete(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        """One that could not be built is not here: that is as good as off."""
        try:
            return self._power(PowerAction.STOP)(payload, keep_alive)
        except NoSuchDomain:
            return {}

    def _attached(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        """What is to run has its devices: they may have been released when it was stopped."""
        built = self._builder.attach(decode(payload, BuildOrder), keep_alive)
        if not built.devices:
            return {}
        self._devices_changed()
        return _devices(built)

    # -------------------------------------------------------------------------- what goes on in it

    def _rescue(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, RescueOrder)
        attached = self._attached(payload, keep_alive)
        self._builder.meanwhile(
            lambda: self._driver.rescue(order.server.id, order.image_id, order.password), keep_alive
        )
        return attached | self._console(order.server.id)

    def _unrescue(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        uuid = decode(payload, ServerJob).server.id
        self._builder.meanwhile(lambda: self._driver.unrescue(uuid), keep_alive)
        return self._console(uuid)

    def _set_password(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, PasswordOrder)
        self._builder.meanwhile(lambda: self._driver.set_password(order.server.id, order.password), keep_alive)
        return {}

    def _crash_dump(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        uuid = decode(payload, ServerJob).server.id
        self._driver.crash_dump(uuid)
        return self._console(uuid)

    def _snapshot(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, SnapshotOrder)
        self._builder.meanwhile(lambda: self._snapshots.take(order), keep_alive)
        return {}

    # -------------------------------------------------------------------------------- comes and goes

    def _shelve(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, SnapshotOrder)
        self._moves.shelve(order, keep_alive)
        return self._console(order.server.id)

    def _move_out(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        return self._released(self._moves.out(decode(payload, SnapshotOrder), keep_alive))

    def _move_back(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, StartOrder)
        built = self._moves.back(order, keep_alive)
        self._devices_changed()
        return _devices(built) | self._console(order.server.id)

    def _remade(self, work: Callable[[RebuildOrder, KeepAlive], Built]) -> Callable[[Payload, KeepAlive], Result]:
        def run(payload: Payload, keep_alive: KeepAlive) -> Result:
            order = decode(payload, RebuildOrder)
            try:
                built = work(order, keep_alive)
            finally:
                self._devices_changed()
            return _devices(built) | self._console(order.server.id)

        return run

    def _strip(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        return self._released(self._moves.strip(decode(payload, ServerJob).server, keep_alive))

    def _come(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        order = decode(payload, StartOrder)
        try:
            built = self._moves.come(order, keep_alive)
        finally:
            self._devices_changed()
        return _devices(built) | self._console(order.server.id)

    def _receive(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        return self._moves.receive(decode(payload, BuildOrder))

    def _hand_over(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        self._moves.hand_over(decode(payload, HandOverOrder), keep_alive)
        return {}

    def _take_over(self, payload: Payload, keep_alive: KeepAlive) -> Result:
        return self._moves.take_over(decode(payload, ServerJob).server.id)

    # ----------------------------------------------------------------------------------- in common

    def _released(self, count: int) -> Result:
        if count:
            self._devices_changed()
        return {"released": count}

    def _console(self, uuid: str) -> Result:
        return {"console": self._driver.console(uuid)[-MAX_CONSOLE_CHARACTERS:]}


def _devices(built: Built) -> Result:
    return {"devices": [dict(device) for device in built.devices]}


class AcceleratorAgentApi(Protocol):
    """The host's accelerator agent."""

    def bind(self, order: Mapping[str, Any]) -> Mapping[str, str]:
        """By accelerator request the address of what was attached for it."""
        ...

    def unbind(self, instance_uuid: str) -> Mapping[str, Mapping[str, str]]:
        """How the handles of the deployables are that it had something of."""
        ...

    def states(self, pci_ids: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """The same of the deployables that have these handles."""
        ...

    def program(self, order: Mapping[str, Any]) -> str | None:
        """The image that the region carries now; None: it is blank."""
        ...

    def heed(self, wishes: Mapping[str, Any]) -> None:
        """All that an operator wants of this host's devices, instead of what he wanted before."""
        ...


class AcceleratorRunner:
    def __init__(self, accelerators: AcceleratorAgentApi, *, keep_alive_period_s: float) -> None:
        self._accelerators = accelerators
        self._period_s = keep_alive_period_s
        self._kinds: dict[str, Callable[[Mapping[str, Any]], Result]] = {
            "bind": self._bind,
            "unbind": lambda payload: {"states": accelerators.unbind(payload["instance_uuid"])},
            "program": lambda payload: {"bitstream_id": accelerators.program(payload)},
            "wishes": self._heed,
        }

    def run(self, kind: str, payload: Mapping[str, Any], keep_alive: Callable[[], None]) -> Result:
        """Raises `MoorageError` with the sentence for the report."""
        if kind not in self._kinds:
            raise MoorageError(
                f"this agent has no job of kind {kind!r}; it has {', '.join(self._kinds)}. Upgrade the agent",
                code="agent.kind",
            )
        return meanwhile(lambda: self._kinds[kind](payload), keep_alive, self._period_s)

    def _bind(self, order: Mapping[str, Any]) -> Result:
        handles = dict(self._accelerators.bind(order))
        return {"handles": handles, "states": self._accelerators.states(handles.values())}

    def _heed(self, wishes: Mapping[str, Any]) -> Result:
        self._accelerators.heed(wishes)
        return {}
