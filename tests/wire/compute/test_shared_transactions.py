"""Requests that arrive during a transaction share the next one and its statements; each has its own result."""

import threading
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from moorage.core.errors import Conflict
from moorage.db.session import write
from tests.wire.compute.conftest import IMAGE, Host


@pytest.fixture
def hosts(plane):
    found = [Host(plane, f"compute-{number}") for number in range(4)]
    for one in found:
        one.offer(VCPU=2, MEMORY_MB=32768, DISK_GB=500)
    return found


@contextmanager
def statements(engine):
    seen = []
    event.listen(engine, "before_cursor_execute", note := lambda *call: seen.append(call[2]))
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def at_once(plane, group, calls):
    """Calls the first function, whose transaction waits for the database, and then the others, so that these wait for
    each other in `group`. Returns what each returned or raised.
    """
    outcomes = [None] * len(calls)

    def call(at):
        try:
            outcomes[at] = calls[at]()
        except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
            outcomes[at] = error

    threads = [threading.Thread(target=call, args=(at,)) for at in range(len(calls))]
    with write(plane.engine):
        for at, thread in enumerate(threads):
            thread.start()
            while not group._has_leader or len(group._waiting) < at:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join(30)
    return outcomes


def create(plane, **server):
    body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"} | server}
    return lambda: plane.send("POST", "/v2.1/servers", body)[0]


def build_jobs(plane, hosts):
    """A claimed build job of each host."""
    plane.flavor("small", vcpus=2)
    for _ in hosts:
        plane.boot("small")
    plane.builder.run_once()
    return [job for host in hosts for job in host.claim()]


def test_servers_of_several_requests_are_inserted_together(plane, hosts):
    plane.flavor("small")
    with statements(plane.engine) as seen:
        outcomes = at_once(plane, plane.service.creation._orders, [create(plane) for _ in range(4)])
    assert outcomes == [202] * 4
    for table in ("servers", "actions", "action_events", "jobs"):
        assert len([one for one in seen if one.startswith(f"INSERT INTO {table} ")]) == 2, "the first, then the others"
    plane.settle(*hosts)
    _, _, listed = plane.send("GET", "/v2.1/servers/detail")
    assert [one["status"] for one in listed["servers"]] == ["ACTIVE"] * 4


def test_a_request_over_the_limit_is_refused_and_the_others_of_its_transaction_are_not(plane):
    plane.flavor("small")
    plane.flavor("large", vcpus=40)
    plane.admin("PUT", "/v2.1/os-quota-sets/red", {"quota_set": {"cores": 42}})
    requests = [create(plane), create(plane), create(plane, flavorRef="large"), create(plane, flavorRef="large")]
    assert at_once(plane, plane.service.creation._orders, requests) == [202, 202, 202, 403]


def test_requests_of_one_server_group_see_each_others_members(plane):
    plane.flavor("small")
    plane.admin("PUT", "/v2.1/os-quota-sets/red", {"quota_set": {"server_group_members": 2}})
    body = {"server_group": {"name": "g", "policy": "anti-affinity"}}
    group = plane.send("POST", "/v2.1/os-server-groups", body)[2]["server_group"]["id"]
    hinted = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": "none"}}
    hinted |= {"os:scheduler_hints": {"group": group}}
    requests = [create(plane), *[lambda: plane.send("POST", "/v2.1/servers", hinted)[0]] * 3]
    assert at_once(plane, plane.service.creation._orders, requests) == [202, 202, 202, 403]


def test_jobs_of_several_hosts_are_claimed_together(plane, hosts):
    plane.flavor("small", vcpus=2)
    for _ in hosts:
        plane.boot("small")
    plane.builder.run_once()
    with statements(plane.engine) as seen:
        claimed = at_once(plane, plane.service.agents._jobs._claims, [host.claim for host in hosts])
    assert [len(jobs) for jobs in claimed] == [1] * 4
    assert len([one for one in seen if one.startswith("UPDATE jobs SET")]) == 2


def test_reports_of_several_hosts_are_applied_together(plane, hosts):
    jobs = build_jobs(plane, hosts)
    reports = [lambda job=job, host=host: host.report(job) for job, host in zip(jobs, hosts, strict=True)]
    with statements(plane.engine) as seen:
        outcomes = at_once(plane, plane.service.agents._jobs._reports, reports)
    assert outcomes == [None] * 4
    for table in ("jobs", "servers", "action_events", "actions"):
        assert len([one for one in seen if one.startswith(f"UPDATE {table} SET")]) == 2, table
    assert {plane.show(job.key)["status"] for job in jobs} == {"ACTIVE"}


def test_a_late_report_is_refused_and_the_others_of_its_transaction_are_not(plane, hosts):
    jobs = build_jobs(plane, hosts)
    hosts[1].fails["build"] = "the disk is full"

    def report_late():
        plane.agent.report_job(jobs[3].id, jobs[3].epoch - 1, "done", {})

    reports = [lambda job=job, host=host: host.report(job) for job, host in zip(jobs[:3], hosts, strict=False)]
    *good, late = at_once(plane, plane.service.agents._jobs._reports, [*reports, report_late])
    assert good == [None] * 3
    assert isinstance(late, Conflict), late
    assert late.error_code == "jobs.fenced"
    states = [(plane.show(job.key)["status"], plane.show(job.key)["OS-EXT-STS:task_state"]) for job in jobs]
    assert states == [("ACTIVE", None), ("BUILD", "scheduling"), ("ACTIVE", None), ("BUILD", "spawning")]
