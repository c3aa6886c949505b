"""Audit findings about jobs that no host claims, in examples; tests/system/audit/test_stuck_jobs.py has a plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.model import AuditedAccelerators, AuditedRequest, AuditSnapshot, BusyServer, Compute, FindingKind
from moorage.audit.rules.findings import all_findings
from moorage.audit.rules.servers import LONG

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
OLD = NOW - LONG
COMPUTE = Compute(
    frozenset({"s"}), frozenset(), frozenset({"h1", "h2"}), nodes={"up": "h1", "off": "h2"}, down=frozenset({"off"})
)
REQUEST = AuditedRequest("arq", "s", "d", "off", OLD, is_made_here=True, is_waiting=True)


def found(grace: timedelta = timedelta(0), busy: BusyServer | None = None, request: AuditedRequest | None = None):
    compute = replace(COMPUTE, busy={} if busy is None else {"s": busy})
    requests = () if request is None else (request,)
    return all_findings(
        AuditSnapshot(NOW, {}, {}, compute, AuditedAccelerators(frozenset(), frozenset(), (), requests)), grace
    )


@pytest.mark.parametrize(
    ("node", "away"),
    [("off", "off is down"), ("gone", "compute knows no host gone"), (None, "it is on no host"), ("up", None)],
)
def test_a_server_whose_task_waits_for_a_missing_host_is_stuck(node, away):
    stuck = found(busy=BusyServer(node, "powering-off", OLD))
    assert [(one.kind, one.subject, one.action, one.why.partition(", and ")[2]) for one in stuck] == (
        [(FindingKind.STUCK_SERVER, "s", None, away)] if away else []
    )


@pytest.mark.parametrize(("host", "away"), [("off", "off is down"), ("up", "its host has not reported it")])
def test_an_accelerator_request_that_waits_too_long_for_its_binding_is_stuck(host, away):
    (stuck,) = found(request=replace(REQUEST, host=host))
    assert (stuck.kind, stuck.subject, stuck.why.partition(", and ")[2]) == (FindingKind.STUCK_REQUEST, "arq", away)
    assert found(request=replace(REQUEST, is_waiting=False)) == []


def test_a_wait_shorter_than_an_hour_or_the_grace_period_is_not_stuck():
    young = OLD + timedelta(seconds=1)
    assert found(busy=BusyServer("off", "powering-off", young), request=replace(REQUEST, changed_at=young)) == []
    assert found(2 * LONG, BusyServer("off", "powering-off", OLD), REQUEST) == []
