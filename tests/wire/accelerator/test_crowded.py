"""More concurrent requests than devices, on each database.

All requests want one of the 16 handles of one card, below one resource provider.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import select

import os_acc
from moorage.accelerator.drivers import simulated
from moorage.accelerator.host.agent_api import SocketServer, wsgi_app
from moorage.accelerator.model.errors import NoCapacity
from moorage.accelerator.store import tables
from moorage.agent.jobs.job_runner import AcceleratorRunner
from moorage.agent.jobs.job_task import HostQueue, JobsTask
from moorage.core.ids import RandomIds
from os_acc import exception
from tests.unit.accelerator.rig import GPU, HOST, PROJECT, Rig, gpu, in_threads, new_instance, rp
from tests.wire.accelerator.conftest import Wire, process_in

HANDLES = [f"{GPU[:-4]}{slot}.{function}" for slot in ("01", "02") for function in range(8)]
PLUGS = 2 * len(HANDLES)


def card_of_16():
    card = simulated.default_simulated_host()[2]
    part = replace(card.deployables[0], name=GPU, handles=tuple(HANDLES))
    return (replace(card, pci_id=GPU, deployables=(part,)),)


@pytest.fixture
def wire(tmp_path, database_url, clock, hints) -> Iterator[Wire]:
    database = {"accelerator": database_url}
    with process_in(tmp_path / "service", hints, clock=clock, ids=RandomIds(), database=database) as process:
        yield Wire(process.transport("/accelerator"))


@pytest.fixture
def rig(tmp_path, wire, clock) -> Rig:
    rig = Rig(tmp_path / "host", devices=card_of_16(), clock=clock)
    rig.agent._reports = wire.client()
    rig.agent.run_once()
    return rig


def bound_addresses(wire):
    """The PCI addresses of all requests that the service records as bound."""
    bound = [arq for arq in wire("GET", "/v2/accelerator_requests").body["arqs"] if arq["state"] == "Bound"]
    return sorted("{domain}:{bus}:{device}.{function}".format(**arq["attach_handle_info"]) for arq in bound)


def test_of_32_plugs_on_16_handles_half_succeed_and_half_fail_with_the_reason(tmp_path, wire, rig):
    """R16, R31: each caller uses the library in an executor with one worker, as Nova does, while the agent reports."""
    server = SocketServer(wsgi_app(rig.agent, RandomIds()), tmp_path / "acc.sock")
    server.start()
    os_acc.configure(str(tmp_path / "acc.sock"))
    instances = [{"uuid": new_instance(), "name": f"vm-{number}", "project_id": PROJECT} for number in range(PLUGS)]
    executors = [ThreadPoolExecutor(max_workers=1) for _ in instances]
    done = threading.Event()
    reports = threading.Thread(target=lambda: [rig.agent.run_once() for _ in iter(done.is_set, True)])
    reports.start()
    try:
        futures = [
            executor.submit(os_acc.plug, instance, {"uuid": rp(GPU)}, gpu())
            for executor, instance in zip(executors, instances, strict=True)
        ]
        answers = [future.exception() or future.result() for future in futures]
    finally:
        done.set()
        reports.join()
        server.stop()
        for executor in executors:
            executor.shutdown()
    given = [answer[0]["pci_id"] for answer in answers if isinstance(answer, list)]
    assert sorted(given) == sorted(HANDLES)
    assert [type(answer) for answer in answers if not isinstance(answer, list)] == [exception.NoCapacity] * 16
    rig.agent.run_once()
    assert bound_addresses(wire) == sorted(HANDLES)
    rig.check()


def test_of_32_requests_bound_at_once_half_get_the_16_handles(engine, wire, rig, clock):
    """The same through the API: 32 clients bind at once, and four workers of the host do the jobs. The service refuses
    a request if it already knows that all handles are in use; the host refuses the others.
    """
    groups = [{"resources:CUSTOM_ACCELERATOR_GPU": "1"}]
    assert wire("POST", "/v2/device_profiles", body=[{"name": "card", "groups": groups}]).status == 201

    def ask(instance):
        made = wire("POST", "/v2/accelerator_requests", role="member", body={"device_profile_name": "card"})
        (arq,) = made.body["arqs"]
        fields = {"hostname": HOST, "device_rp_uuid": rp(GPU), "instance_uuid": instance}
        body = {arq["uuid"]: [{"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()]}
        return wire("PATCH", "/v2/accelerator_requests", role="service", body=body)

    instances = [new_instance() for _ in range(PLUGS)]
    answers = in_threads([lambda instance=instance: ask(instance) for instance in instances])
    refused = [answer.fault for answer in answers if answer.status == 409]
    taken = [answer.status for answer in answers].count(202)
    assert (taken >= 16, taken + len(refused)) == (True, PLUGS)
    assert all(" has 0 free of 16 accelerators (" in fault for fault in refused)

    def work(number):
        runner = AcceleratorRunner(rig.agent, keep_alive_period_s=10)
        jobs = JobsTask(HostQueue(HOST, wire.client(), poll_period_s=1), number, runner, clock)
        while jobs.run_once() <= clock.now():
            pass

    assert in_threads([lambda number=number: work(number) for number in range(1, 5)]) == [None] * 4
    assert bound_addresses(wire) == sorted(HANDLES)
    with engine.connect() as connection:
        results = connection.execute(select(tables.jobs.c.result).where(tables.jobs.c.kind == "bind")).scalars().all()
    assert sorted(result.get("code", "") for result in results) == [""] * 16 + [NoCapacity.code] * (taken - 16)
    late = ask(new_instance())
    assert (late.status, "0 free of 16" in late.fault) == (409, True)
    rig.check()
