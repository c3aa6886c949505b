"""The audit in the background: it reports findings and repairs nothing.

It exports metrics (`export_metrics`), and logs each finding that was not in this process's previous audit.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, Engine

from moorage.audit.model import Finding, FindingKind
from moorage.audit.schedule import AuditSchedule, last_round
from moorage.core.errors import MoorageError
from moorage.jobs.store import JobStore
from moorage.telemetry.metrics import DatabaseGauges, GaugeFamily, GaugeSample

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
