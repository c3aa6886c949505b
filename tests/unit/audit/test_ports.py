"""Audit findings about ports of servers, in small examples; tests/system/audit/test_ports.py uses a real plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.audit.model import (
    AuditedPort,
    AuditedProvider,
    AuditedServer,
    AuditSnapshot,
    Compute,
    FindingKind,
    Repair,
)
from moorage.audit.rules.findings import all_findings
from moorage.audit.rules.ports import doubtful_servers, port_findings

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
GRACE = timedelta(minutes=10)
OLD = NOW - GRACE
SERVER = AuditedServer("one", OLD, None, is_plain=False, macs=frozenset({"aa"}))
PORT = AuditedPort("p", "s", "lab", "one", "aa", True, OLD)


def snapshot(*ports, server=SERVER, listed=None, lost=(), servers=frozenset({"s"})):
    states = {} if server is None else {"s": server}
    return AuditSnapshot(
        NOW,
        {"h": AuditedProvider("h", "one", None, "h")},
        {},
        Compute(servers, frozenset(), frozenset({"h"}), states=states, nodes={"one": "h"}),
        ports={port.uuid: port for port in ports},
        interfaces={} if listed is None else {"s": frozenset(listed)},
        lost_ports=frozenset(lost),
    )


def kinds(given):
    return [one.kind for one in port_findings(given, GRACE)]


def test_a_port_that_its_server_lists_is_no_finding_and_asks_for_nothing():
    assert list(port_findings(snapshot(PORT), GRACE)) == []
    assert doubtful_servers(snapshot(PORT)) == frozenset()


@pytest.mark.parametrize(
    ("ports", "server"),
    [
        ([], SERVER),
        ([PORT, replace(PORT, uuid="q", mac="bb")], SERVER),
        ([replace(PORT, mac="bb")], SERVER),
        ([replace(PORT, has_address=False)], replace(SERVER, macs=frozenset())),
    ],
    ids=["no port", "one more port", "another port", "a port without an address"],
)
def test_a_server_whose_addresses_are_not_those_of_its_ports_is_read(ports, server):
    assert doubtful_servers(snapshot(*ports, server=server)) == {"s"}


def test_servers_that_operations_change_or_that_are_on_no_host_are_not_read():
    assert doubtful_servers(snapshot(server=None)) == frozenset()
    assert doubtful_servers(snapshot(server=replace(SERVER, node=None))) == frozenset()


def test_a_port_of_a_server_that_is_gone_is_released_safely_after_the_grace_period():
    gone = snapshot(PORT, server=None, servers=frozenset())
    (found,) = all_findings(replace(gone, compute=replace(gone.compute, hypervisors=frozenset({"h"}))), GRACE)
    assert (found.kind, found.subject, found.where) == (FindingKind.PORT_WITHOUT_SERVER, "p", "one")
    assert (found.action, found.is_safe) == (Repair.RELEASE_PORT, True)
    young = replace(PORT, changed_at=NOW - GRACE / 2)
    assert kinds(snapshot(young, server=None, servers=frozenset())) == []


def test_a_port_that_its_server_does_not_list_is_released_only_by_name():
    (found,) = port_findings(snapshot(PORT, listed=()), GRACE)
    assert (found.kind, found.action, found.is_safe) == (FindingKind.UNLISTED_PORT, Repair.RELEASE_PORT, False)
    assert kinds(snapshot(replace(PORT, changed_at=NOW), listed=())) == []
    assert kinds(snapshot(PORT, listed=(), server=replace(SERVER, updated_at=NOW))) == []
    assert kinds(snapshot(PORT, listed={"p"})) == []


def test_a_server_that_lists_a_lost_port_is_found_and_not_repaired():
    (found,) = port_findings(snapshot(listed={"p"}, lost={"p"}), GRACE)
    assert (found.kind, found.subject, found.action) == (FindingKind.SERVER_WITHOUT_PORT, "s", None)
    assert "openstack server remove port s p" in found.advice
    assert kinds(snapshot(listed={"p"}, lost={"p"}, server=replace(SERVER, updated_at=NOW))) == []
    assert kinds(snapshot(listed={"p"})) == []


def test_without_compute_or_the_network_service_nothing_is_judged():
    given = snapshot(PORT, listed=(), lost={"p"})
    assert kinds(replace(given, compute=None)) == kinds(replace(given, ports=None)) == []
