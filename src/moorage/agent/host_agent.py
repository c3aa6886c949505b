"""The agent of one host: its start, and its tasks afterwards.

start:  read and check files -> publish provider tree -> os_acc.initialize() -> register with compute
tasks:  heartbeat, provider tree, one `JobsTask` per worker
"""

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from moorage.agent.jobs.job_runner import JobRunner, JobWork
from moorage.agent.jobs.job_task import HostQueue, JobEnded, JobsTask, JobsWhileReady, PollerElection, worker_name
from moorage.agent.jobs.server_build import Acceleration, RefersToAccelerators, ServerBuilder
from moorage.agent.jobs.snapshots import Snapshots
from moorage.agent.tracker.resource_tracker import ResourcesTask, ResourceTracker, resources_topic
from moorage.agent.virt.driver import VirtDriver
from moorage.compute.client.compute_client import ComputeClient, HostFactsDocument
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, StartError, Unavailable
from moorage.jobs.background_tasks import Task, Wakeups

log = logging.getLogger(__name__)

#: Between attempts of a start while a service is unavailable.
START_BACKOFF = Backoff(first_s=0.5, longest_s=5.0)


@dataclass(frozen=True)
class AgentSettings:
    """The options of the section [agent] that the agent itself needs."""

    workers: int = 4
    heartbeat_period_s: float = 10.0
    update_period_s: float = 60.0
    poll_period_s: float = 2.0
    #: Seconds between reports of a running job; much shorter than the lease of a job.
    keep_alive_period_s: float = 10.0
    #: Seconds for which the start waits for Placement and the compute service.
    start_timeout_s: float = 60.0
    #: Whether stopping a server releases its accelerators (see `JobRunner`).
    releases_on_stop: bool = False


@dataclass(frozen=True)
class HostAgentDeps:
    driver: VirtDriver
    tracker: ResourceTracker
    acceleration: Acceleration
    refers_to_accelerators: RefersToAccelerators
    compute: ComputeClient
    clock: Clock
    wakeups: Wakeups
    snapshots: Snapshots | None = None
    job_ended: JobEnded = lambda _kind, _outcome, _seconds: None
    others: Mapping[str, JobWork] = field(default_factory=dict)  #: see `JobRunner`


class HostAgent:
    """Call `start` once, then run `tasks`. Keeps no state in memory that must survive a restart."""

    def __init__(self, host: str, deps: HostAgentDeps, settings: AgentSettings) -> None:
        self._host = host
        self._deps = deps
        self._settings = settings
        clock, compute = deps.clock, deps.compute
        builder = ServerBuilder(
            deps.driver,
            deps.acceleration,
            deps.refers_to_accelerators,
            deps.tracker.ancestor_names,
            partial(compute.bind_device, host),
            keep_alive_period_s=settings.keep_alive_period_s,
        )
        runner = JobRunner(
            deps.driver,
            builder,
            lambda: deps.wakeups.wake(resources_topic(host)),
            snapshots=deps.snapshots,
            releases_on_stop=settings.releases_on_stop,
            others=deps.others,
        )
        election = PollerElection(lambda number: deps.wakeups.wake(worker_name(host, number)))
        deps.wakeups.call(election.hear_hint, host)
        queue = HostQueue(host, JobsWhileReady(compute, deps.driver.facts), settings.poll_period_s)
        self.tasks: list[Task] = [
            HeartbeatTask(host, self._facts, compute, election, clock, settings.heartbeat_period_s),
            ResourcesTask(deps.tracker, host=host, clock=clock, period_s=settings.update_period_s),
            *(
                JobsTask(queue, number, runner, clock, election=election, ended=deps.job_ended)
                for number in range(1, settings.workers + 1)
            ),
        ]

    def start(self) -> None:
        """Raises `StartError` if the host cannot run servers. Claims no jobs."""
        self._retry_until_available(self._check_name)
        self._retry_until_available(self._deps.tracker.start)
        self._initialize_acceleration()
        self._retry_until_available(self._register)
        domains = self._deps.driver.domains().values()
        log.info(
            "agent started",
            extra={
                "host": self._host,
                "providers": len(self._deps.tracker.tree),
                "domains": len(domains),
                "running": sum(domain.power == "running" for domain in domains),
            },
        )

    def _check_name(self) -> None:
        if (name := self._deps.driver.facts().name) != self._host:
            raise StartError(
                f"the agent is for host {self._host}, but its hypervisor is called {name}; give both the same name"
            )

    def _initialize_acceleration(self) -> None:
        try:
            self._deps.acceleration.initialize()
        except Exception as error:  # os_acc's errors are no `MoorageError`s, and a driver can raise any exception
            raise StartError(
                f"host {self._host} cannot start: os_acc.initialize(): {error}; repair the accelerator agent of this "
                "host, then start this agent again"
            ) from error

    def _register(self) -> None:
        self._deps.compute.register_host(self._host, **self._facts())

    def _facts(self) -> HostFactsDocument:
        """Facts of the host, as compute registers them."""
        facts = self._deps.driver.facts()
        return {
            "provider_uuid": self._deps.tracker.provider_uuid(facts.name),
            "hypervisor_type": facts.hypervisor_type,
            "hypervisor_version": facts.hypervisor_version,
            "host_ip": facts.host_ip,
            "vcpus": facts.vcpus,
            "memory_mb": facts.memory_mb,
            "local_gb": facts.local_gb,
            "devices": self._deps.tracker.devices,
            "capabilities": sorted(facts.capabilities),
        }

    def _retry_until_available(self, step: Callable[[], object]) -> None:
        """Retries `step` while a service is unavailable, because the services of a plane may start in any order."""
        until = self._deps.clock.now() + timedelta(seconds=self._settings.start_timeout_s)
        for failures in itertools.count(1):
            try:
                step()
                return
            except Unavailable as error:
                if self._deps.clock.now() >= until:
                    raise StartError(
                        f"host {self._host} cannot start: {error.message}; start that service, then this agent"
                    ) from error
                log.info("waiting for a service", extra={"why": error.message})
            except StartError:
                raise
            except MoorageError as error:
                raise StartError(f"host {self._host} cannot start: {error.message}") from error
            self._deps.clock.sleep(START_BACKOFF.pause_s(failures))


#: Number of periods after which a heartbeat is sent in any case: another agent of this name may have sent other facts.
MAX_SILENT_PERIODS = 6


class HeartbeatTask:
    """Tells compute that the host is alive, and the host's facts. A failed heartbeat is not repeated before the next.

    A successful request for jobs also shows that the host is alive; after one, no heartbeat is sent unless the facts
    have changed.
    """

    def __init__(
        self,
        host: str,
        facts: Callable[[], HostFactsDocument],
        compute: ComputeClient,
        election: PollerElection,
        clock: Clock,
        period_s: float,
    ) -> None:
        self.name = f"heartbeat of {host}"
        self._host = host
        self._facts = facts
        self._compute = compute
        self._election = election
        self._clock = clock
        self._period = timedelta(seconds=period_s)
        self._sent: tuple[HostFactsDocument, datetime] | None = None

    def run_once(self) -> datetime:
        try:
            facts = self._facts()
            if self._is_needed(facts):
                self._compute.register_host(self._host, **facts)
                self._sent = facts, self._clock.now()
        except MoorageError as error:
            log.warning("heartbeat failed: the compute service did not accept it", extra={"why": error.message})
        return self._clock.now() + self._period

    def _is_needed(self, facts: HostFactsDocument) -> bool:
        now, answered = self._clock.now(), self._election.answered_at
        if answered is None or now - answered > self._period or self._sent is None:
            return True
        sent, at = self._sent
        return sent != facts or now - at >= MAX_SILENT_PERIODS * self._period
