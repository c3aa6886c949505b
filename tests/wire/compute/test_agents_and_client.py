"""The agents' API, and the use of `ComputeClient` by other services."""

import pytest

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import Conflict, NotFound, RemoteError, Unavailable
from moorage.wire.client import ServiceClient
from tests.plane import Bearer
from tests.wire.compute.conftest import Host

FLAVOR = ("f1", "reservation:f1", 2, 1024, 5)


def test_only_services_and_administrators_may_use_the_agents_api(plane, host):
    status, _, _ = plane.send("POST", "/agent/v1/hosts/compute-1/jobs", {"worker": "w"})
    assert status == 403
    assert plane.send("POST", "/agent/v1/hosts/compute-1/jobs", {"worker": "w"}, roles="service")[0] == 200


def test_a_host_that_is_not_registered_gets_no_jobs(plane):
    with pytest.raises(NotFound, match="an agent registers it first"):
        plane.agent.claim_jobs("nope", "w")


def test_a_provider_belongs_to_one_host(plane, host):
    with pytest.raises(RemoteError, match="belongs to host compute-1"):
        facts = {"vcpus": 1, "memory_mb": 1, "local_gb": 1, "devices": 0}
        plane.agent.register_host(
            "compute-2",
            provider_uuid=host.provider.uuid,
            hypervisor_type="t",
            hypervisor_version=1,
            host_ip="",
            **facts,
        )


def test_a_host_cannot_have_the_name_of_the_builders_queue(plane):
    body = {"provider_uuid": plane.ids.uuid(), "hypervisor_type": "t", "vcpus": 1, "memory_mb": 1, "local_gb": 1}
    assert plane.admin("PUT", "/agent/v1/hosts/compute-build", body)[0] == 400


def test_a_running_job_keeps_its_lease(plane, host):
    plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    job = host.claim()[0]
    for _ in range(3):
        plane.clock.sleep(50)
        plane.agent.report_job(job.id, job.epoch, "running")
    host.register()
    assert host.claim(worker=2) == []
    host.report(job)


def test_a_report_on_a_job_of_no_host_is_not_found(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    for job_id in ("nope", f"schedule:{server_id}"):
        with pytest.raises(NotFound):
            plane.agent.report_job(job_id, 1, "done")


def test_a_finished_job_cannot_fail_afterwards(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    job = host.claim()[0]
    host.report(job)
    with pytest.raises(Conflict):
        plane.agent.report_job(job.id, job.epoch, "failed", {"error": "late"})
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_a_report_with_a_malformed_result_changes_nothing_and_says_where_the_fault_is(plane, host):
    server_id = plane.boot(plane.flavor("small"))
    plane.builder.run_once()
    job = host.claim()[0]
    with pytest.raises(RemoteError, match=r"\$\.devices.*a job of kind build.*upgrade the older one") as caught:
        plane.agent.report_job(job.id, job.epoch, "done", {"devices": "all"})
    assert caught.value.status == 400
    assert plane.show(server_id)["status"] == "BUILD"
    host.report(job)
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_a_hint_wakes_the_host_that_waits_for_jobs(plane, host):
    builder, agent = plane.wakeups.listen("compute-build"), plane.wakeups.listen("compute-1")
    plane.boot(plane.flavor("small"))
    assert (builder.is_set(), agent.is_set()) == (True, False)
    plane.builder.run_once()
    assert agent.is_set()


def test_the_client_finds_a_hypervisor_by_its_exact_name(plane, host):
    Host(plane, "compute-10")
    found = plane.agent.hypervisor("compute-1")
    assert (found.hostname, found.vcpus, found.memory_mb, found.local_gb) == ("compute-1", 16, 32768, 500)
    assert (found.id, found.service_host, found.state, found.running_servers) == (
        host.provider.uuid,
        "compute-1",
        "up",
        "",
    )
    assert plane.agent.hypervisor("compute") is None
    assert plane.agent.hypervisor("zzz") is None


def test_the_client_creates_and_deletes_a_reservations_flavor(plane, host):
    """The requests of the reservation service, each of which may be repeated after a crash."""
    client = plane.agent
    for _ in range(2):
        client.create_flavor(*FLAVOR)
        client.set_extra_specs("f1", {"resources:VCPU": "1"})
        client.add_flavor_access("f1", "red")
    assert plane.send("GET", "/v2.1/flavors/f1")[2]["flavor"]["vcpus"] == 2
    server_id = plane.boot("f1")
    plane.boot(plane.flavor("other"))
    plane.settle(host)
    servers = client.servers_of_flavor("f1")
    assert [(one.id, one.name, one.project_id, one.status, one.host, one.flavor_id) for one in servers] == [
        (server_id, "vm", "red", "ACTIVE", "compute-1", "f1")
    ]
    client.delete_server(server_id)
    plane.settle(host)
    client.delete_server(server_id)
    assert client.servers_of_flavor("f1") == []
    for _ in range(2):
        client.remove_flavor_access("f1", "red")
    for _ in range(2):
        client.delete_flavor("f1")
    assert plane.admin("GET", "/v2.1/flavors/f1")[0] == 404


class DelayingTransport:
    """A transport that does not answer the first write; the write is carried out when `deliver` is called."""

    def __init__(self, inner):
        self.base_url = inner.base_url
        self._inner = inner
        self._late = None

    def send(self, *request):
        if request[0] != "GET" and self._late is None:
            self._late = request
            raise Unavailable("nobody answers")
        return self._inner.send(*request)

    def deliver(self):
        return self._inner.send(*self._late)


def test_creating_a_flavor_is_repeated_if_there_was_no_answer(plane):
    """The flavor's id shows that it is ours, so the reservation continues, and the delayed request finds it."""
    late = DelayingTransport(plane.process.transport("/compute"))
    client = ComputeClient(ServiceClient(late, service_type="compute", credentials=Bearer(), clock=plane.clock))
    client.create_flavor(*FLAVOR)
    assert plane.agent.has_flavor("f1")
    assert late.deliver().status == 409


def test_a_flavor_with_the_name_of_another_one_is_refused(plane):
    plane.agent.create_flavor(*FLAVOR)
    with pytest.raises(RemoteError, match="already exists"):
        plane.agent.create_flavor("f2", *FLAVOR[1:])


def test_the_client_finds_aggregates_by_name(plane, host):
    client = plane.agent
    assert client.aggregate_by_name("freepool") is None
    made = client.create_aggregate("freepool")
    for _ in range(2):
        client.add_host(made.id, "compute-1")
    assert client.aggregate_by_name("freepool").hosts == ("compute-1",)
    for _ in range(2):
        client.remove_host(made.id, "compute-1")
    assert client.aggregate_by_name("freepool").hosts == ()


def test_the_client_reads_all_pages_of_a_list_of_servers(plane, monkeypatch):
    monkeypatch.setattr("moorage.compute.client.compute_client._PAGE", 2)
    plane.flavor("small")
    made = {plane.boot("small", f"vm{number}") for number in range(5)}
    assert {one.id for one in plane.agent.servers_of_flavor("small")} == made
