"""The accelerator agent of one host: it discovers devices, serves `os_acc` and jobs, and reports to the service.

It starts with discovery and recovery, and is ready when the providers of its devices are published. The host's resource
tracker publishes them, and makes the agent discover again in each of its updates.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.drivers.base import AcceleratorDriver
from moorage.accelerator.host.attach import AttachEngine
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.cleaning import HandleCleaner
from moorage.accelerator.host.device_registry import DeviceRegistry
from moorage.accelerator.host.programming import BitstreamSource, RegionProgrammer
from moorage.accelerator.host.reporting import ReportSender
from moorage.accelerator.model import attach_state as h
from moorage.accelerator.model.attach_state import ClaimedHandle
from moorage.accelerator.model.binding import (
    expected_content,
    extra_specs_of,
    handles_by_request,
    wanted_content,
)
from moorage.accelerator.model.device_history import Requester
from moorage.accelerator.model.devices import PHYSICAL_NETWORK, HandleState, mdev_of, plug_answer
from moorage.accelerator.model.errors import NotReady
from moorage.accelerator.model.inventory import DeployableNode, provider_nodes
from moorage.accelerator.model.naming import NameScheme
from moorage.accelerator.model.reports import Superseded
from moorage.accelerator.model.request import decode_plug, instance_in_logs, instance_name_of, instance_uuid_of
from moorage.core.clock import Clock
from moorage.jobs.contract import BindJob, OperatorOverridesJob, ProgramJob
from moorage.telemetry import tracing

log = logging.getLogger(__name__)

#: Pause between full reports to the central service, even without changes.
REPORT_INTERVAL = timedelta(seconds=30)
#: Pause before the next report if a job ended during each attempt to send one.
PAUSE_IF_JOBS_END = timedelta(seconds=1)
#: Pause between two calls of the drivers of devices that are still being cleaned.
CLEANING_PERIOD = timedelta(seconds=5)
MAX_RECORDS_PER_REPORT = 200


def _ignore() -> None:
    return


@dataclass(frozen=True)
class AcceleratorListener:
    """Callbacks that wake other tasks. They must not block."""

    offer_changed: Callable[[], None] = (
        _ignore  #: traits or inventories are not those that the resource tracker saw last
    )
    report_wanted: Callable[[], None] = _ignore  #: a full report to the central service is due
    history_recorded: Callable[[], None] = _ignore  #: only the history must be reported
    faults_changed: Callable[[], None] = _ignore  #: `failed_devices` has changed


@dataclass(frozen=True)
class AcceleratorSettings:
    report_every: timedelta = REPORT_INTERVAL
    names: NameScheme = NameScheme.SPEC


class AcceleratorAgent:
    """The agent is also a `moorage.jobs.background_tasks.Task`: each run reports to the central service, if `reports`
    is given.
    """

    def __init__(
        self,
        host: str,
        drivers: Sequence[AcceleratorDriver],
        checkpoint: Checkpoint,
        bitstreams: BitstreamSource,
        clock: Clock,
        *,
        reports: AcceleratorClient | None = None,
        listener: AcceleratorListener = AcceleratorListener(),
        settings: AcceleratorSettings = AcceleratorSettings(),
    ) -> None:
        self.name = f"accelerator-agent@{host}"
        self._host = host
        self._clock = clock
        self._reports = reports
        self._settings = settings
        self._listener = listener
        self._registry = DeviceRegistry(drivers)
        self._checkpoint = checkpoint
        self._programmer = RegionProgrammer(self._registry, checkpoint, bitstreams, self._announce_changes)
        self._cleaner = HandleCleaner(self._registry, checkpoint, clock)
        self._engine = AttachEngine(self._registry, checkpoint, self._programmer, self._cleaner)
        self._sender = ReportSender(host, settings.names)
        self._discovering = threading.Lock()
        #: `offered_state` at the last call of `nodes`.
        self._offered: object = None
        self._failed: Mapping[str, Sequence[str]] = {}  #: the last `failed_devices` that was announced
        self._started = False
        self._ready = threading.Event()

    @property
    def host(self) -> str:
        return self._host

    @property
    def attach_state(self) -> h.AttachState:
        return self._checkpoint.state

    def start(self) -> None:
        """Discovers devices, and finishes or undoes operations that a crash interrupted. Serve no request before it
        returns.
        """
        with self._discovering:
            if self._started:
                return
            self._discover_devices()
            self._engine.recover()
            self._started = True
        if not self.attach_state.devices:
            self._ready.set()  # nothing to publish, so nothing to wait for

    def close(self) -> None:
        """Releases the checkpoint, so that another process can become the agent of this host.

        Call nothing afterwards.
        """
        self._checkpoint.close()

    # ---------------------------------------------------------- what the host's resource tracker calls

    def nodes(self) -> Sequence[DeployableNode]:
        """Discover again; returns one provider node per deployable, each below its NUMA node."""
        self.start()
        with self._discovering:
            before = self.attach_state.regions.keys()
            self._discover_devices()
            for deployable in self.attach_state.regions.keys() - before:
                self._programmer.recover_region(deployable)
        for deployable in h.unknown_regions(self.attach_state):
            self._programmer.blank_if_needed(deployable)
        self._announce_faults()
        held = self.attach_state
        self._offered = h.offered_state(held)
        return provider_nodes(
            self._host,
            h.devices_as_loaded(held),
            held.states(),
            h.withheld_deployables(held),
            held.overrides.traits,
            self._settings.names,
        )

    def published(self, uuids: Mapping[str, str]) -> None:
        """Called once all nodes and their traits are in Placement. `uuids` is by provider name."""
        prefix = f"{self._host}_"
        known = {part.name for device in self.attach_state.devices for part in device.deployables}
        rp_uuids = {
            deployable: uuid for name, uuid in uuids.items() if (deployable := name.removeprefix(prefix)) in known
        }
        before = self.attach_state.rp_uuids
        self._checkpoint.step(partial(h.with_providers, rp_uuids=rp_uuids))
        self._ready.set()
        if rp_uuids != before:
            self._listener.report_wanted()  # the service binds requests by provider, so it needs the new uuids

    def _discover_devices(self) -> None:
        held = self.attach_state
        devices = self._registry.discover(held.devices, frozenset(held.handles))
        offered = self._checkpoint.step(partial(h.with_devices, devices=devices)).devices
        self._registry.adopt(offered)
        before = {device.pci_id: device.withheld for device in held.devices}
        for device in offered:
            if device.withheld and device.withheld != before.get(device.pci_id):
                log.warning("handles of a card are not offered", extra={"card": device.pci_id, "why": device.withheld})

    # ----------------------------------------------------------------------------- what os_acc calls

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s`; returns whether all devices are discovered and their traits published."""
        return self._ready.wait(timeout_s)

    def plug(self, instance_info: object, selected_rp: object, extra_specs: object) -> list[dict[str, str]]:
        with _logging_failure("plug", instance_info):
            return self._plug(instance_info, selected_rp, extra_specs)

    def _plug(self, instance_info: object, selected_rp: object, extra_specs: object) -> list[dict[str, str]]:
        request = decode_plug(instance_info, selected_rp, extra_specs)
        self._check_started()
        if (why := self._sender.superseded) is not None:
            raise NotReady(why)  # the other agent may give the same devices to other instances
        with tracing.span("accelerators plug"), self._announcing_changes():
            handles = self._engine.plug(request)
            return [plug_answer(handle.pci_id) | self._place_of(handle) for handle in handles]

    def _place_of(self, handle: ClaimedHandle) -> dict[str, str]:
        """For a virtual function of a network card: the request group that it is for, and the network that it is on."""
        for device in self.attach_state.devices:
            network = dict(device.details).get(PHYSICAL_NETWORK)
            is_virtual = bool(device.part_of) or handle.pci_id != device.pci_id
            is_its_own = any(part.name == handle.deployable for part in device.deployables)
            if is_its_own and is_virtual and network is not None and mdev_of(handle.pci_id) is None:
                return {"group": handle.group, PHYSICAL_NETWORK: network}
        return {}

    def unplug(self, instance_info: object) -> int:
        with _logging_failure("unplug", instance_info):
            instance_uuid = instance_uuid_of(instance_info)
            self._check_started()
            with tracing.span("accelerators unplug"), self._announcing_changes():
                return self._engine.unplug(instance_uuid, instance_name_of(instance_info))

    def bind_requests(self, order: BindJob) -> dict[str, str]:
        """Returns {accelerator request: address of its handle}. A repetition returns the same."""
        selected = {group: [provider] for group, provider in order.providers.items()}
        info = {"uuid": order.instance_uuid, "project_id": order.project_id, "user_id": order.user_id}
        request = decode_plug(info, selected, extra_specs_of(order))
        self._check_started()
        with self._announcing_changes(is_job=True):
            self._engine.plug(request)
        return handles_by_request(order, self.attach_state.attachments[request.instance_uuid])

    def unbind_instance(self, instance_uuid: str) -> dict[str, dict[str, str]]:
        """Same as `unplug`; returns the handle states of each deployable involved."""
        self._check_started()
        attachment = self.attach_state.attachments.get(instance_uuid)
        with self._announcing_changes(is_job=True):
            self._engine.unplug(instance_uuid)
        return self.handle_states(handle.pci_id for handle in attachment.handles) if attachment else {}

    def handle_states(self, pci_ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """States of all handles of each deployable that has one of `pci_ids`: {deployable: {handle: state}}."""
        wanted, states = set(pci_ids), self.attach_state.states()
        return {
            part.name: {handle: str(states.get(handle, HandleState.FREE)) for handle in part.handles}
            for device in self.attach_state.devices
            for part in device.deployables
            if wanted.intersection(part.handles)
        }

    @contextmanager
    def _announcing_changes(self, *, is_job: bool = False) -> Iterator[None]:
        """If the body changes the attach state, wake the tasks that need to know. With `is_job`, the job's own report
        informs the central service, so only the history is reported separately (unless the body fails).
        """
        before, is_reported = self.attach_state, False
        try:
            yield
            is_reported = is_job
        finally:
            if self.attach_state is not before:
                self._announce_changes(is_reported=is_reported)

    def _announce_changes(self, *, is_reported: bool = False) -> None:
        self._announce_faults()
        # Placement needs no update when a handle is attached, but when one cannot be given out again.
        if h.offered_state(self.attach_state) != self._offered:
            self._listener.offer_changed()
        if is_reported:
            self._listener.history_recorded()
        else:
            self._listener.report_wanted()

    def _announce_faults(self) -> None:
        if (failed := self.failed_devices()) != self._failed:
            self._failed = failed
            self._listener.faults_changed()

    def failed_devices(self) -> Mapping[str, Sequence[str]]:
        """{instance: descriptions of its devices that have failed or are gone}, as of the last discovery."""
        return h.failed_devices(self.attach_state)

    def program_region(self, order: ProgramJob) -> str | None:
        """Loads an image or the blank into a region, for an operator. Returns the id of the region's image afterwards,
        or None.
        """
        self._check_started()
        unit = self._registry.deployable(order.deployable)
        by = Requester("", order.project_id, order.user_id)
        wanted = wanted_content(order)
        if not wanted:
            return self._programmer.load_blank(order.deployable, by, expected_content(order))
        chosen = self._programmer.find_bitstream(wanted, unit, order.project_id)
        self._programmer.load_bitstream(order.deployable, chosen, "", by)
        return chosen.image.id

    def apply_operator_overrides(self, overrides: OperatorOverridesJob) -> None:
        """Replaces all earlier settings of operators."""
        wanted = h.OperatorOverrides(frozenset(overrides.withdrawn), overrides.traits)
        before = self.attach_state.overrides
        if self._checkpoint.step(partial(h.with_operator_overrides, overrides=wanted)).overrides != before:
            self._announce_changes()

    def is_quarantined(self, pci_id: str) -> bool:
        record = self.attach_state.handles.get(pci_id)
        return record is not None and record.state is HandleState.QUARANTINED

    def release_quarantined(self, pci_id: str, reason: str = "", user_id: str = "", *, is_clean: bool = False) -> None:
        """See `AttachEngine.release_quarantined`. `user_id`: the operator; empty for a command on this host."""
        self._check_started()
        with self._announcing_changes():
            self._engine.release_quarantined(pci_id, reason, Requester(user_id=user_id), is_clean=is_clean)

    def _check_started(self) -> None:
        if not self._started:
            raise NotReady(f"the accelerator agent of {self._host} is still discovering its devices")

    def check_counts(self) -> None:
        """Raises `Superseded` if another agent of this host started later, as far as the last report told."""
        if (why := self._sender.superseded) is not None:
            raise Superseded(why)

    # ------------------------------------------------------------------------------------- reporting

    def run_once(self) -> datetime | None:
        """Continue the cleaning of devices. Report all attachments and devices to the central service, then the
        history that it does not have yet.

        Harmless to repeat: the service stores each history record once, even if an earlier answer was lost.
        """
        is_cleaning = self._continue_cleaning()
        if self._reports is None:
            return self._clock.now() + CLEANING_PERIOD if is_cleaning else None
        pause = min(self._settings.report_every, CLEANING_PERIOD) if is_cleaning else self._settings.report_every
        try:
            if not self._sender.send(self._reports, lambda: self.attach_state):
                pause = PAUSE_IF_JOBS_END
        except Superseded as error:
            log.error("another accelerator agent has replaced this one", extra={"why": error.message})
        self.report_history()
        return self._clock.now() + pause

    def _continue_cleaning(self) -> bool:
        """Returns whether a device is still being cleaned."""
        begun = h.still_cleaning(self.attach_state) if self._started else {}
        if not begun:
            return False
        with self._announcing_changes(is_job=True):  # the report that follows informs the central service
            self._cleaner.continue_cleaning()
            left = h.still_cleaning(self.attach_state)
            for deployable in {record.deployable for handle, record in begun.items() if handle not in left}:
                self._programmer.blank_if_needed(deployable)
        return bool(left)

    def report_history(self) -> None:
        """Report the history records that the central service does not have yet."""
        while self._reports is not None and (records := self.attach_state.journal.pending[:MAX_RECORDS_PER_REPORT]):
            self._reports.report_history(self._host, records)
            self._checkpoint.step(partial(h.drop_reported_records, upto=records[-1].sequence))


@contextmanager
def _logging_failure(verb: str, instance_info: object) -> Iterator[None]:
    """Logs a failed call with the instance's uuid and name, as far as the caller has given them."""
    try:
        yield
    except Exception as error:  # every failure is logged; raised again
        uuid, name = instance_in_logs(instance_info)
        log.warning("%s failed", verb, extra={"instance": uuid, "instance_name": name, "why": str(error)})
        raise


class HistoryReportTask:
    """Reports the history of changes made by jobs. Nothing waits for these records, so they are reported in batches."""

    #: Short, because records stay in the checkpoint until they are reported, and make every write of it larger.
    min_pause_s = 0.2

    def __init__(self, agent: AcceleratorAgent) -> None:
        self.name = device_history_topic(agent.host)
        self._agent = agent

    def run_once(self) -> None:
        self._agent.report_history()


def device_history_topic(host: str) -> str:
    """The wake-up topic for new history records."""
    return f"device history of {host}"
