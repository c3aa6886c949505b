"""Each alert fires on the series of its problem, and is silent on those of a healthy plane."""

import json
import subprocess

import pytest
import yaml

from tests.servers import installed_program
from tests.system.telemetry.judged import RULES, Case, judge, rules

pytestmark = pytest.mark.slow


def stays(value):
    """A series with a constant value for an hour and a half."""
    return f"{value}+0x90"


def grows(by):
    """A series that grows by this amount per minute."""
    return f"0+{by}x90"


#: {alert: (series on which it fires, series on which it does not)}
CASES = {
    "MoorageProcessDown": ({'up{job="moorage"}': "1+0x60 0+0x5"}, {'up{job="moorage"}': stays(1)}),
    "MoorageRequestsFail": (
        {'moorage_http_request_duration_seconds_count{service="compute",status="503"}': grows(3)},
        {
            'moorage_http_request_duration_seconds_count{service="compute",status="409"}': grows(30),
            'moorage_http_request_duration_seconds_count{service="compute",status="500"}': stays(7),
        },
    ),
    "MoorageSlow": (
        {
            'moorage_http_request_duration_seconds_bucket{service="placement",route="/",le="1"}': grows(90),
            'moorage_http_request_duration_seconds_bucket{service="placement",route="/",le="5"}': grows(100),
            'moorage_http_request_duration_seconds_bucket{service="placement",route="/",le="+Inf"}': grows(100),
        },
        {
            'moorage_http_request_duration_seconds_bucket{service="placement",route="/",le="0.1"}': grows(100),
            'moorage_http_request_duration_seconds_bucket{service="placement",route="/",le="+Inf"}': grows(100),
            # The requests of watchers are long by design.
            'moorage_http_request_duration_seconds_bucket{service="placement",route="/moorage/v1/events",le="1"}': stays(
                0
            ),
            'moorage_http_request_duration_seconds_bucket{service="placement",route="/moorage/v1/events",le="+Inf"}': grows(
                9
            ),
        },
    ),
    "MoorageThreadsBusy": (
        {
            'moorage_http_requests_in_flight{instance="a",service="compute"}': stays(15),
            'moorage_http_requests_in_flight{instance="a",service="placement"}': stays(15),
            'moorage_http_threads{instance="a"}': stays(32),
        },
        {
            'moorage_http_requests_in_flight{instance="a",service="compute"}': stays(15),
            'moorage_http_requests_in_flight{instance="b",service="compute"}': stays(15),
            'moorage_http_threads{instance="a"}': stays(32),
            'moorage_http_threads{instance="b"}': stays(32),
        },
    ),
    "MoorageFilesUsedUp": (
        {'process_open_fds{job="moorage"}': stays(900), 'process_max_fds{job="moorage"}': stays(1024)},
        {'process_open_fds{job="moorage"}': stays(90), 'process_max_fds{job="moorage"}': stays(1024)},
    ),
    "MoorageDatabaseAway": (
        {'moorage_database_errors_total{service="compute",kind="unavailable"}': grows(1)},
        {
            'moorage_database_errors_total{service="compute",kind="unavailable"}': stays(5),
            'moorage_database_errors_total{service="compute",kind="other"}': grows(9),
        },
    ),
    "MoorageDatabaseRetries": (
        {'moorage_database_errors_total{service="compute",kind="retryable"}': grows(120)},
        {'moorage_database_errors_total{service="compute",kind="retryable"}': grows(2)},
    ),
    "MoorageConnectionsUsedUp": (
        {
            'moorage_database_connections_in_use{service="compute"}': stays(20),
            'moorage_database_connections_max{service="compute"}': stays(20),
        },
        {
            'moorage_database_connections_in_use{service="compute"}': stays(19),
            'moorage_database_connections_max{service="compute"}': stays(20),
        },
    ),
    "MooragePlacementCommitsSlow": (
        {
            'moorage_placement_commit_duration_seconds_bucket{le="0.5"}': stays(0),
            'moorage_placement_commit_duration_seconds_bucket{le="2.5"}': grows(10),
            'moorage_placement_commit_duration_seconds_bucket{le="+Inf"}': grows(10),
        },
        {
            'moorage_placement_commit_duration_seconds_bucket{le="0.01"}': grows(10),
            'moorage_placement_commit_duration_seconds_bucket{le="+Inf"}': grows(10),
        },
    ),
    "MooragePlacementReadsFromMemory": (
        {"moorage_placement_reads_from_memory_total": grows(1)},
        {"moorage_placement_reads_from_memory_total": stays(40)},
    ),
    "MooragePlacementBehind": (
        {"moorage_placement_sequence_lag": stays(5000)},
        {"moorage_placement_sequence_lag": "5000+0x3 0+0x90"},
    ),
    "MoorageDutyFails": (
        {'moorage_duty_failures_total{duty="compute.build"}': grows(2)},
        {'moorage_duty_failures_total{duty="compute.build"}': "0+0x80 1+0x10"},
    ),
    "MoorageDutyLate": (
        {'moorage_duty_due_timestamp_seconds{duty="reservation"}': stays(600)},
        {
            # One task runs each minute, and another waits until it is woken.
            'moorage_duty_due_timestamp_seconds{duty="reservation"}': "60+60x90",
            'moorage_duty_due_timestamp_seconds{duty="history"}': " ".join(["+Inf"] * 91),
        },
    ),
    "MoorageHintsLost": (
        {'moorage_hints_interruptions_total{role="listener"}': grows(2)},
        {'moorage_hints_interruptions_total{role="listener"}': "0+0x80 3+0x10"},
    ),
    "MoorageJobsStuck": (
        {'moorage_accelerator_jobs_oldest_seconds{state="ready"}': "0+60x90"},
        {
            'moorage_accelerator_jobs_oldest_seconds{state="ready"}': stays(40),
            'moorage_compute_jobs_oldest_seconds{state="claimed"}': stays(900),
        },
    ),
    "MoorageHostsDown": (
        {'moorage_compute_hosts{state="down",job="moorage"}': "0+0x60 1+0x10"},
        {
            'moorage_compute_hosts{state="down",job="moorage"}': "1+0x3 0+0x30",
            'moorage_compute_hosts{state="disabled",job="moorage"}': stays(4),
        },
    ),
    "MoorageAgentJobsFail": (
        {
            'moorage_agent_job_duration_seconds_count{kind="build",outcome="failed"}': grows(3),
            'moorage_agent_job_duration_seconds_count{kind="build",outcome="done"}': grows(6),
        },
        {
            'moorage_agent_job_duration_seconds_count{kind="build",outcome="failed"}': grows(1),
            'moorage_agent_job_duration_seconds_count{kind="build",outcome="done"}': grows(30),
        },
    ),
    "MoorageNoValidHost": (
        {
            'moorage_compute_scheduled_total{outcome="no_capacity"}': grows(1),
            'moorage_compute_scheduled_total{outcome="placed"}': grows(2),
        },
        {
            # A flavor requests something that no host has: users see the reason, and no alert fires.
            'moorage_compute_scheduled_total{outcome="refused"}': grows(2),
            'moorage_compute_scheduled_total{outcome="no_capacity"}': grows(1),
            'moorage_compute_scheduled_total{outcome="placed"}': grows(30),
        },
    ),
    "MoorageSchedulingGivesUp": (
        {'moorage_compute_scheduled_total{outcome="gave_up"}': "0+0x80 1+0x10"},
        {'moorage_compute_scheduled_total{outcome="gave_up"}': stays(1)},
    ),
    "MooragePlacementSearchOverLimit": (
        {'moorage_placement_searches_total{outcome="over_limit"}': "0+0x80 1+0x5"},
        {'moorage_placement_searches_total{outcome="empty"}': grows(4)},
    ),
    "MoorageCapacityLow": (
        {
            'moorage_placement_used{resource_class="VCPU"}': stays(95),
            'moorage_placement_capacity{resource_class="VCPU"}': stays(100),
        },
        {
            'moorage_placement_used{resource_class="VCPU"}': stays(50),
            'moorage_placement_capacity{resource_class="VCPU"}': stays(100),
            # A fully used lease is normal.
            'moorage_placement_used{resource_class="CUSTOM_RESERVATION_*"}': stays(4),
            'moorage_placement_capacity{resource_class="CUSTOM_RESERVATION_*"}': stays(4),
            'moorage_placement_used{resource_class="CUSTOM_GONE"}': stays(0),
            'moorage_placement_capacity{resource_class="CUSTOM_GONE"}': stays(0),
        },
    ),
    "MoorageDevicesFailed": (
        {'moorage_accelerator_devices{health="failed"}': stays(1)},
        {
            'moorage_accelerator_devices{health="failed"}': stays(0),
            'moorage_accelerator_devices{health="ok"}': stays(6),
        },
    ),
    "MoorageDevicesWithheld": (
        {'moorage_accelerator_handles{state="quarantined"}': stays(1)},
        {
            'moorage_accelerator_handles{state="cleaning"}': "0+0x20 1+0x5 0+0x40",
            'moorage_accelerator_handles{state="attached"}': stays(9),
        },
    ),
    "MoorageLeaseEventsLate": (
        {'moorage_reservation_events_late_seconds{event="start_lease"}': "0+60x90"},
        {'moorage_reservation_events_late_seconds{event="start_lease"}': stays(20)},
    ),
    "MoorageLeasesInError": (
        {'moorage_reservation_leases{status="ERROR"}': stays(1)},
        {
            'moorage_reservation_leases{status="ERROR"}': stays(0),
            'moorage_reservation_leases{status="ACTIVE"}': stays(9),
        },
    ),
    "MoorageAuditFindings": (
        {'moorage_audit_findings{kind="over capacity"}': stays(1)},
        {'moorage_audit_findings{kind="over capacity"}': stays(0)},
    ),
    "MoorageAuditOld": (
        {"moorage_audit_last_round_timestamp_seconds": stays(60), "moorage_audit_period_seconds": stays(600)},
        {"moorage_audit_last_round_timestamp_seconds": "0+60x90", "moorage_audit_period_seconds": stays(600)},
    ),
    "MoorageLeasesDegraded": (
        {"moorage_reservation_leases_degraded": stays(1)},
        {"moorage_reservation_leases_degraded": stays(0)},
    ),
}


def test_promtool_accepts_the_rules():
    done = subprocess.run(
        [installed_program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_on_its_problem_and_is_silent_without_it(tmp_path):
    assert set(CASES) == set(rules())
    judge(
        [
            Case(alert, series, fires=fires)
            for alert, (bad, good) in CASES.items()
            for series, fires in ((bad, True), (good, False))
        ],
        tmp_path,
    )


def test_every_expression_of_the_dashboard_is_promql(tmp_path):
    dashboard = json.loads((RULES.parents[1] / "grafana" / "moorage.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(expressions) > 30
    recorded = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = subprocess.run(
        [installed_program("promtool"), "check", "rules", path], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
