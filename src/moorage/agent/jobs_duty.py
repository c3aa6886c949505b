"""Jobs of this host: claimed from the compute service one at a time, done, reported with their epoch."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from moorage.agent.build import Builder, BuildFailed, JobLost, told
from moorage.agent.orders import BuildOrder, PowerOrder, decode
from moorage.agent.virt.driver import PowerAction, VirtDriver
from moorage.compute.client import AgentJob, ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, NotFound, Unavailable
from moorage.telemetry.logs import request_context

log = logging.getLogger(__name__)

Result = dict[str, Any]

BUILD = "build"
DESTROY = "destroy"
#: Of what a guest wrote, the end goes into a report.
MAX_CONSOLE_CHARACTERS = 1 << 16
KINDS = (BUILD, DESTROY, *(action.value for action in PowerAction))


class JobRunner:
    """One job from its payload to its result. `devices_changed` is called when accelerators were given or taken."""

    def __init__(self, driver: VirtDriver, builder: Builder, devices_changed: Callable[[], None]) -> None:
        self._driver = driver
        self._builder = builder
        self._devices_changed = devices_changed

    def run(self, kind: str, payload: Mapping[str, object], keep_alive: Callable[[], None]) -> Result:
        """Raises `MoorageError` with the sentence for the report."""
        if kind == BUILD:
            return self._build(decode(payload, BuildOrder), keep_alive)
        if kind == DESTROY:
            released = self._builder.destroy(decode(payload, PowerOrder).server, keep_alive)
            if released:
                self._devices_changed()
            return {"released": released}
        if kind in KINDS:
            uuid = decode(payload, PowerOrder).server.id
            state = self._driver.power(uuid, PowerAction(kind))
            return {"power_state": state.value, "console": self._console(uuid)}
        raise MoorageError(
            f"this agent has no job of kind {kind!r}; it has {', '.join(KINDS)}. Upgrade the agent", code="agent.kind"
        )

    def _build(self, order: BuildOrder, keep_alive: Callable[[], None]) -> Result:
        try:
            built = self._builder.build(order, keep_alive)
        except BuildFailed:
            self._devices_changed()
            raise
        if built.devices:
            self._devices_changed()
        devices = [{"pci_id": address} for address in built.devices]
        return {"devices": devices, "console": self._console(order.server.id)}

    def _console(self, uuid: str) -> str:
        return self._driver.console(uuid)[-MAX_CONSOLE_CHARACTERS:]


class JobsDuty:
    """One worker. Several of them share the queue; `number` tells them apart, the same after a restart."""

    def __init__(
        self, *, host: str, number: int, compute: ComputeClient, runner: JobRunner, clock: Clock, poll_period_s: float
    ) -> None:
        self.name = f"jobs of {host}, worker {number}"
        #: The hint that there is a job goes to the queue's name.
        self.listens_to = (host,)
        self._host = host
        self._worker = f"{host}/{number}"
        self._compute = compute
        self._runner = runner
        self._clock = clock
        self._poll_period = timedelta(seconds=poll_period_s)

    def tick(self) -> datetime:
        try:
            jobs = self._compute.claim_jobs(self._host, self._worker, limit=1)
            for job in jobs:
                self._work(job)
        except MoorageError as error:
            log.warning("no job to be had from the compute service; asking again", extra={"why": str(error)})
            return self._clock.now() + self._poll_period
        return self._clock.now() if jobs else self._clock.now() + self._poll_period

    def _work(self, job: AgentJob) -> None:
        # The request that caused the job: its id goes through all logs and into our calls.
        context = request_context.set((f"agent {self._host}", str(job.payload.get("request_id", ""))))
        log.info("job claimed", extra={"job": job.id, "kind": job.kind, "key": job.key, "attempt": job.attempt})
        try:
            self._report(job, *self._outcome(job))
        except JobLost as lost:
            log.warning("job lost to another worker; left as it is", extra={"why": str(lost)})
        finally:
            request_context.reset(context)

    def _outcome(self, job: AgentJob) -> tuple[str, Result]:
        try:
            return "done", self._runner.run(job.kind, job.payload, lambda: self._keep_alive(job))
        except JobLost:
            raise
        except Exception as error:  # the top of a job: its server must not hang in a transition
            sentence, code = told(error)
            unexpected = not isinstance(error, MoorageError)
            log.warning("job failed", extra={"kind": job.kind, "why": sentence}, exc_info=unexpected)
            return "failed", {"error": sentence, "code": code}

    def _keep_alive(self, job: AgentJob) -> None:
        """Raises `JobLost`. A compute service that is away for a moment is no reason to undo the work."""
        try:
            self._report(job, "running", {})
        except Unavailable as error:
            log.warning("a job could not be kept alive", extra={"job": job.id, "why": error.message})

    def _report(self, job: AgentJob, state: str, result: Result) -> None:
        try:
            self._compute.report_job(job.id, job.epoch, state, result)
        except (Conflict, NotFound) as error:
            raise JobLost(f"job {job.id} is not ours any more: {error}") from error
