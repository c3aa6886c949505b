"""The audit in the background: it reports findings and repairs nothing.

It exports metrics (`export_metrics`), and logs each finding that was not in this process's previous audit.

`AuditSchedule` lets one process at a time run an audit, by a job in a service's table. Time is divided into periods,
the same in all processes. Each process that sees a period begin enqueues the period's audit under the same id, so there
is one job. The process that claims it runs it; its result is the job's result, which every process can show.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine, select

from moorage.audit.model import Finding, FindingKind
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.core.json import Json
from moorage.db.session import in_transaction
from moorage.jobs.contract import JobKind
from moorage.jobs.model import Job, JobState, NewJob
from moorage.jobs.store import JobStore
from moorage.telemetry.metrics import DatabaseGauges, GaugeFamily, GaugeSample

QUEUE = KEY = "audit"

#: Minimum lease of an audit: after the lease, another process may run it. If the period is longer, the lease is as long
#: as the period.
_MIN_LEASE_S = 600.0
#: Pause before a failed audit is tried again.
_PAUSE = timedelta(seconds=60)


@dataclass(frozen=True)
class LastRound:
    """`findings`: {kind: number}."""

    ended_at: datetime
    duration_s: float
    findings: Mapping[str, int]


class AuditSchedule:
    """`jobs` are in the database of `engine`. `worker` must be unique, and the same after a restart."""

    def __init__(self, engine: Engine, jobs: JobStore, clock: Clock, worker: str, period_s: float) -> None:
        self._engine = engine
        self._jobs = jobs
        self._clock = clock
        self._worker = worker
        self._period_s = period_s
        self._begun = self._number(clock.now())

    def _number(self, moment: datetime) -> int:
        return int(moment.timestamp() // self._period_s)

    def claim(self) -> Job | None:
        """Claim the audit that is due; None if there is none for this process.

        A process does not enqueue the audit of the period in which it started: a cloud that has just started needs
        none.
        """
        now = self._clock.now()
        number = self._number(now)

        def enqueue_and_claim(connection: Connection) -> list[Job]:
            if number > self._begun:
                self._jobs.enqueue(connection, NewJob(f"audit:{number}", QUEUE, JobKind.AUDIT, KEY, {}), now)
            lease_s = max(_MIN_LEASE_S, self._period_s)
            return self._jobs.claim(connection, QUEUE, self._worker, now, lease_s)

        claimed = in_transaction(self._engine, enqueue_and_claim)
        self._begun = max(self._begun, number)
        return claimed[0] if claimed else None

    def finish(self, job: Job, result: Mapping[str, Json]) -> None:
        """Raises `Conflict` if another process has finished it."""
        in_transaction(
            self._engine,
            lambda connection: self._jobs.finish(
                connection, job.id, job.epoch, JobState.DONE, result, self._clock.now()
            ),
        )

    def postpone(self, job: Job) -> datetime:
        """Give the audit back, to be tried again by any process; returns when."""
        again = self._clock.now() + _PAUSE
        in_transaction(self._engine, lambda connection: self._jobs.release(connection, job.id, job.epoch, again))
        return again

    def next_due(self) -> datetime:
        return datetime.fromtimestamp((self._number(self._clock.now()) + 1) * self._period_s, UTC)


def last_round(connection: Connection, jobs: JobStore) -> LastRound | None:
    """The last finished audit of any process; None before the first."""
    job = jobs.table.c
    asked = (
        select(job.finished_at, job.result)
        .where(job.serial_key == KEY, job.state == JobState.DONE)
        .order_by(job.position.desc())
        .limit(1)
    )
    row = connection.execute(asked).one_or_none()
    return None if row is None else LastRound(row.finished_at, row.result["duration_s"], row.result["findings"])


log = logging.getLogger(__name__)

#: Younger consumers are not judged; the default of `moorage audit` too.
GRACE = timedelta(minutes=10)
#: Number of new findings of one audit that are logged one by one.
MAX_LOGGED = 100
#: Number of findings that are remembered until the next audit.
MAX_REMEMBERED_FINDINGS = 10_000

_FINDINGS, _ENDED = "moorage_audit_findings", "moorage_audit_last_round_timestamp_seconds"
_DURATION, _PERIOD = "moorage_audit_round_duration_seconds", "moorage_audit_period_seconds"

_FAMILIES = (
    GaugeFamily(_FINDINGS, "Findings of the last audit, by kind.", ("kind",)),
    GaugeFamily(_ENDED, "When the last audit ended, in any process."),
    GaugeFamily(_DURATION, "Duration of the last audit."),
    GaugeFamily(_PERIOD, "Configured time between audits: [audit] period_s."),
)

#: Identifies a finding from one audit to the next.
_Key = tuple[str, str, str, str]


class AuditTask:
    name = "audit"

    def __init__(self, schedule: AuditSchedule, find_all: Callable[[], Sequence[Finding]]) -> None:
        """`find_all` reads all services and returns the findings; it raises the clients' errors."""
        self._schedule = schedule
        self._find_all = find_all
        self._known: frozenset[_Key] = frozenset()

    def run_once(self) -> datetime | None:
        job = self._schedule.claim()
        if job is None:
            return self._schedule.next_due()
        began = time.perf_counter()
        try:
            found = self._find_all()
        except MoorageError as error:
            again = self._schedule.postpone(job)
            log.warning("audit postponed: a service does not answer", extra={"reason": error.message})
            return again
        duration_s = round(time.perf_counter() - began, 3)
        counts = Counter(str(finding.kind) for finding in found)
        self._schedule.finish(job, {"duration_s": duration_s, "findings": dict(counts)})
        self._log_findings(found, duration_s)
        return self._schedule.next_due()

    def _log_findings(self, found: Sequence[Finding], duration_s: float) -> None:
        new = [finding for finding in found if _key(finding) not in self._known]
        for finding in new[:MAX_LOGGED]:
            log.warning(
                "audit finding",
                extra={
                    "kind": finding.kind,
                    "subject": finding.subject,
                    "where": finding.where,
                    "why": finding.why,
                    "advice": finding.advice,
                },
            )
        log.info("audit done", extra={"findings": len(found), "new": len(new), "duration_s": duration_s})
        self._known = frozenset(_key(finding) for finding in found[:MAX_REMEMBERED_FINDINGS])


def _key(finding: Finding) -> _Key:
    return finding.kind, finding.subject, finding.resource_class or "", finding.host or ""


def export_metrics(registry: CollectorRegistry, engine: Engine, jobs: JobStore, period_s: float) -> None:
    """Export the result of the last audit of any process at each scrape; before the first one, only the period."""

    def samples(connection: Connection) -> Iterator[GaugeSample]:
        yield _PERIOD, (), period_s
        last = last_round(connection, jobs)
        if last is None:
            return
        yield _ENDED, (), last.ended_at.timestamp()
        yield _DURATION, (), last.duration_s
        for kind in FindingKind:
            yield _FINDINGS, (kind,), last.findings.get(kind, 0)

    DatabaseGauges(registry, engine, _FAMILIES, samples)
