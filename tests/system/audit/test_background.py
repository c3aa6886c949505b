"""The audit in the background: in one process at a time, with metrics and log, and with few requests."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.audit_task import AuditSchedule, AuditTask, last_round
from moorage.audit.collector import collect_snapshot
from moorage.audit.model import Finding, FindingKind
from moorage.audit.rules import findings
from moorage.compute.store.tables import jobs
from moorage.core.clock import VirtualClock
from moorage.core.errors import Unavailable
from moorage.db.session import read as reading
from moorage.jobs.store import JobStore
from tests.migrated import open_migrated
from tests.system.audit.rig import AuditedPlane
from tests.system.planes import VirtualPlane
from tests.system.telemetry.judged import Case, from_scrapes, judge

START = datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
PERIOD_S = 3600.0
LOST = Finding(FindingKind.OVER_CAPACITY, "provider", "here", "too much", "nothing")


class SimulatedAudit:
    """Stands for an audit: returns `found` and counts its runs."""

    def __init__(self):
        self.found, self.runs = [], 0

    def __call__(self):
        self.runs += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def clock():
    return VirtualClock(START)


@pytest.fixture
def engine(tmp_path):
    engine = open_migrated("compute", tmp_path)
    yield engine
    engine.dispose()


def task(engine, clock, look, worker="one"):
    return AuditTask(AuditSchedule(engine, JobStore(jobs), clock, worker, PERIOD_S), look)


def last(engine):
    with reading(engine) as connection:
        return last_round(connection, JobStore(jobs))


def test_one_of_two_processes_audits_in_each_period(engine, clock):
    looks = SimulatedAudit(), SimulatedAudit()
    tasks = [task(engine, clock, look, worker) for look, worker in zip(looks, "ab", strict=True)]
    for one in tasks:  # a process that just started does not audit
        assert one.run_once() == datetime(2026, 3, 1, 13, 0, tzinfo=UTC)
    for hour in range(13, 17):
        clock.advance_to(datetime(2026, 3, 1, hour, 0, 5, tzinfo=UTC))
        for one in tasks if hour % 2 else reversed(tasks):
            assert one.run_once() == datetime(2026, 3, 1, hour + 1, 0, tzinfo=UTC)
    assert [look.runs for look in looks] == [2, 2]
    assert last(engine).ended_at == clock.now()


def test_an_audit_whose_process_died_is_repeated_by_another_process(engine, clock):
    clock.advance_to(START)
    dead = AuditSchedule(engine, JobStore(jobs), clock, "dead", PERIOD_S)
    look = SimulatedAudit()
    other = task(engine, clock, look, "other")
    clock.advance_to(START + timedelta(hours=1))
    assert dead.claim() is not None
    other.run_once()
    assert look.runs == 0
    clock.advance_to(START + timedelta(hours=3))
    while look.runs < 2:  # the interrupted audit, and the one of this period
        other.run_once()
    assert last(engine) is not None


def test_an_audit_is_retried_after_a_minute_if_a_service_does_not_answer(engine, clock):
    look = SimulatedAudit()
    one = task(engine, clock, look)
    look.found = Unavailable("compute does not answer")
    clock.advance_to(START + timedelta(hours=1))
    again = one.run_once()
    assert again == clock.now() + timedelta(seconds=60)
    assert last(engine) is None
    look.found = [LOST]
    clock.advance_to(again)
    one.run_once()
    assert last(engine).findings == {FindingKind.OVER_CAPACITY: 1}


def test_each_new_finding_is_logged_once(engine, clock, caplog):
    look = SimulatedAudit()
    one = task(engine, clock, look)
    caplog.set_level(logging.INFO, logger="moorage.audit")

    def told(hours):
        caplog.clear()
        clock.advance_to(START + timedelta(hours=hours))
        one.run_once()
        return [record.kind for record in caplog.records if record.getMessage() == "audit finding"]

    look.found = [LOST]
    assert told(1) == [FindingKind.OVER_CAPACITY]
    assert told(2) == []
    look.found = []
    assert told(3) == []
    look.found = [LOST]
    assert told(4) == [FindingKind.OVER_CAPACITY]


def test_reading_providers_by_tree_gives_the_same_snapshot(tmp_path):
    with AuditedPlane(tmp_path) as plane:
        plane.create_server(flavor=plane.create_fpga_flavor())
        plane.settle()
        usual = collect_snapshot(plane.services, plane.clock, lambda *_: None)
        by_tree = collect_snapshot(plane.services, plane.clock, lambda *_: None, by_tree=True)
        assert by_tree.providers.keys() == usual.providers.keys()
        for uuid, one in usual.providers.items():
            other = by_tree.providers[uuid]
            assert (other.inventories, other.held, other.is_device) == (one.inventories, one.held, one.is_device)
        assert findings.all_findings(by_tree, timedelta(0)) == findings.all_findings(usual, timedelta(0)) == []
        assert [one.is_made_here for one in usual.accelerators.requests] == [False], "plugged, not bound by the API"
        assert usual.accelerators.parts


def test_findings_on_a_plane_are_shown_as_metrics_and_fire_alerts(tmp_path):
    with VirtualPlane(tmp_path, START, audit={"period_s": PERIOD_S}) as plane:
        plane.run_until(START + timedelta(hours=1))
        clean = plane.plane.metrics.render().decode()
        assert 'moorage_audit_findings{kind="unknown consumer"} 0.0' in clean
        host = next(
            row
            for row in plane.placement.get("/resource_providers")["resource_providers"]
            if row["name"] == "compute-1"
        )
        body = {
            "allocations": {host["uuid"]: {"resources": {"VCPU": 1}}},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        }
        plane.placement.request("PUT", "/allocations/00000001-0000-4000-8000-000000000000", json=body)
        plane.run_until(START + timedelta(hours=2))
        found = plane.plane.metrics.render().decode()
        assert 'moorage_audit_findings{kind="unknown consumer"} 1.0' in found
    began = START.timestamp()
    for alert, before, after in (("MoorageAuditFindings", [clean], [clean, found]),):
        judge(
            [
                Case(alert, from_scrapes(before, alert, began=began), fires=False),
                Case(alert, from_scrapes(after, alert, began=began), fires=True),
            ],
            tmp_path,
        )
    stale = from_scrapes([found], "MoorageAuditOld", began=began, minutes=400)
    judge([Case("MoorageAuditOld", stale, fires=True)], tmp_path)
