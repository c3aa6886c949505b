"""A whole host against the APIs of placement and compute: start, servers, devices, crashes."""

from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest

from moorage.accelerator.drivers.simulated import FaultControl, SimulatedAccelerators, default_simulated_host
from moorage.agent.host_agent import AgentSettings
from moorage.agent.model import DomainPowerState
from moorage.agent.tracker.resource_tracker import UPDATE_BACKOFF, resources_topic
from moorage.agent.virt.host_description import HostDescription
from moorage.core.errors import StartError, Unavailable
from moorage.core.inventories import Inventory
from moorage.core.names import RESERVED_HOST_TRAIT
from os_acc.exception import CyborgAgentUnavailable
from tests.plane import failing
from tests.unit.accelerator.rig import fault

GPU = {"resources__CUSTOM_ACCELERATOR_GPU": "1"}


class Died(BaseException):
    """The process ends here: nothing is undone, and nothing is reported."""


def devices_of(plane, server_id):
    root = ET.parse(plane.state / "domains" / f"{server_id}.xml").getroot()
    return [element.attrib for element in root.iterfind("devices/hostdev/source/address")]


def held(plane, server_id):
    """{class: units} of a server, over all providers."""
    return {name: units for taken in plane.placement.allocations(server_id).values() for name, units in taken.items()}


def test_a_started_host_registers_with_compute_and_placement(plane):
    plane.start_agent()
    hypervisor = plane.compute.hypervisor("compute-1")
    assert (hypervisor.vcpus, hypervisor.memory_mb, hypervisor.local_gb) == (16, 32768, 500)
    assert (hypervisor.type, hypervisor.state) == ("simulated", "up")
    root = plane.placement.provider_by_name("compute-1")
    below = {provider.name for provider in plane.placement.tree(root.uuid)}
    assert {"compute-1_NUMA_1", "compute-1_0000:3b:00.0_R1", "compute-1_0000:17:00.0"} <= below
    assert len(below) == 10


def test_a_host_is_up_only_while_it_sends_heartbeats(plane):
    def states():
        (service,) = plane.http.get("/v2.1/os-services")["services"]
        return plane.compute.hypervisor("compute-1").state, service["state"]

    plane.start_agent()
    plane.run_for(600)
    assert states() == ("up", "up")
    plane.clock.sleep(600)
    assert states() == ("down", "down")
    plane.settle()
    assert states() == ("up", "up")


def test_a_server_is_built_operated_and_deleted(plane):
    plane.start_agent()
    server_id = plane.create("web")
    plane.settle()
    assert plane.server(server_id)["status"] == "ACTIVE"
    assert plane.driver.domains()[server_id].power is DomainPowerState.RUNNING
    assert held(plane, server_id) == {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10}
    for action, status, power in (
        ({"pause": None}, "PAUSED", "paused"),
        ({"unpause": None}, "ACTIVE", "running"),
        ({"os-stop": None}, "SHUTOFF", "shutoff"),
        ({"os-start": None}, "ACTIVE", "running"),
        ({"reboot": {"type": "SOFT"}}, "ACTIVE", "running"),
    ):
        plane.act(server_id, **action)
        assert plane.server(server_id)["status"] == status
        assert plane.driver.domains()[server_id].power == power
    plane.compute.delete_server(server_id)
    plane.settle()
    assert plane.driver.domains() == {}
    assert held(plane, server_id) == {}


def test_a_server_gets_the_address_of_its_accelerator_and_releases_it(plane):
    """The domain's definition has the device, and the guest's memory is on the device's NUMA node."""
    plane.start_agent()
    server_id = plane.create("gpu", flavor="gpu", **GPU)
    plane.settle()
    assert plane.server(server_id)["status"] == "ACTIVE"
    (address,) = plane.driver.domains()[server_id].spec.pci_addresses
    (attributes,) = devices_of(plane, server_id)
    assert attributes["bus"] == f"0x{address[5:7]}"
    assert f"pci {address}: attached" in plane.driver.console(server_id)
    node = {"17": "0", "65": "0", "ca": "1", "e3": "1"}[address[5:7]]
    definition = ET.parse(plane.state / "domains" / f"{server_id}.xml").getroot()
    assert definition.find("numatune/memory").get("nodeset") == node
    plane.compute.delete_server(server_id)
    plane.settle()
    assert plane.acceleration.unplug({"uuid": server_id, "name": "gpu"}) == 0
    assert held(plane, server_id) == {}


def test_four_gpus_serve_four_servers_and_the_fifth_fails_with_the_reason(plane):
    plane.start_agent()
    servers = [plane.create(f"gpu-{number}", flavor="gpu", **GPU) for number in range(5)]
    plane.settle()
    statuses = [plane.server(server_id)["status"] for server_id in servers]
    assert sorted(statuses) == ["ACTIVE"] * 4 + ["ERROR"]
    given = [domain.spec.pci_addresses for domain in plane.driver.domains().values()]
    assert len(set(given)) == 4


def test_a_failed_build_leaves_nothing_behind_and_gives_the_reason(plane):
    plane.start_agent()
    plane.faults.fail("spawn", "no space left on the disk")
    server_id = plane.create("gpu", flavor="gpu", **GPU)
    plane.settle()
    server = plane.server(server_id)
    assert server["status"] == "ERROR"
    assert "no space left on the disk" in server["fault"]["message"]
    assert plane.driver.domains() == {}
    assert held(plane, server_id) == {}
    assert plane.acceleration.unplug({"uuid": server_id, "name": "gpu"}) == 0


def test_an_unexpected_error_is_logged_on_the_host_and_the_owner_sees_only_a_number(plane, monkeypatch, caplog):
    plane.start_agent()

    def fails(*_arguments, **_named):
        raise OSError("/srv/pool on storage-7 (key geheim) is gone")

    server_id = plane.create("gpu", flavor="gpu", **GPU)
    with monkeypatch.context() as patch:
        patch.setattr(plane.driver, "spawn", fails)
        plane.settle()
    server = plane.server(server_id)
    assert server["status"] == "ERROR"
    (record,) = [record for record in caplog.records if hasattr(record, "reference")]
    assert record.reference in server["fault"]["message"]
    assert "geheim" in record.why
    answers = [plane.http.request("GET", path) for path in (f"/v2.1/servers/{server_id}", *_actions(plane, server_id))]
    assert record.reference in str(answers)
    assert not any(word in str(answers) for word in ("geheim", "storage-7", "OSError"))


def _actions(plane, server_id):
    """The paths of its actions."""
    path = f"/v2.1/servers/{server_id}/os-instance-actions"
    listed = plane.http.request("GET", path)["instanceActions"]
    return [f"{path}/{one['request_id']}" for one in listed]


@pytest.mark.parametrize("when", ["before plug", "after plug", "after spawn"])
def test_a_build_interrupted_by_the_death_of_the_agent_is_finished_by_the_next_agent(plane, monkeypatch, when):
    """R27 (accelerator-attach): wherever the agent died, the server becomes ACTIVE with one device, claimed once."""
    plane.start_agent()

    def die(*_arguments, **_named):
        raise Died

    def then_die(call):
        def both(*arguments, **named):
            call(*arguments, **named)
            raise Died

        return both

    with monkeypatch.context() as patch:
        if when == "before plug":
            patch.setattr(plane.acceleration, "plug", die)
        elif when == "after plug":
            patch.setattr(plane.driver, "spawn", die)
        else:
            patch.setattr(plane.driver, "spawn", then_die(plane.driver.spawn))
        server_id = plane.create("gpu", flavor="gpu", **GPU)
        with pytest.raises(Died):
            plane.settle()
    assert plane.server(server_id)["status"] == "BUILD"
    plane.start_agent()
    plane.run_for(120)  # until the lease of the job has expired
    plane.control.wakeups.wake("compute-1")
    plane.settle()
    assert plane.server(server_id)["status"] == "ACTIVE"
    assert len(plane.driver.domains()[server_id].spec.pci_addresses) == 1
    assert plane.acceleration.unplug({"uuid": server_id, "name": "gpu"}) == 1


def test_a_deletion_interrupted_by_the_death_of_the_agent_is_finished_by_the_next_agent(plane, monkeypatch):
    plane.start_agent()
    server_id = plane.create("gpu", flavor="gpu", **GPU)
    plane.settle()

    def die(*_arguments):
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(plane.acceleration, "unplug", die)
        plane.compute.delete_server(server_id)
        with pytest.raises(Died):
            plane.settle()
    plane.start_agent()
    plane.run_for(120)
    plane.control.wakeups.wake("compute-1")
    plane.settle()
    assert held(plane, server_id) == {}
    assert plane.acceleration.unplug({"uuid": server_id, "name": "gpu"}) == 0


def test_servers_keep_running_while_the_agent_is_down(plane):
    """R51 (accelerator-attach): servers keep running during a restart of the host's agent."""
    plane.start_agent()
    server_id = plane.create("web")
    plane.settle()
    plane.act(server_id, pause=None)
    plane.start_agent()
    assert plane.driver.domains()[server_id].power is DomainPowerState.PAUSED
    plane.act(server_id, unpause=None)
    assert plane.server(server_id)["status"] == "ACTIVE"


def test_a_restart_of_the_agent_writes_nothing_to_placement(plane):
    plane.start_agent()
    server_id = plane.create("gpu", flavor="gpu", **GPU)
    plane.settle()
    plane.to_placement.clear()
    plane.start_agent()
    assert plane.to_placement.writes == []
    assert held(plane, server_id)["CUSTOM_ACCELERATOR_GPU"] == 1


def test_the_result_of_a_job_whose_lease_expired_is_dropped(plane, monkeypatch):
    """Another worker has claimed the job meanwhile, so the first one drops its result."""
    plane.start_agent()
    spawn, others = plane.driver.spawn, []

    def slow(spec, **named):
        if not others:
            plane.clock.sleep(120)
            others.extend(plane.compute.claim_jobs("compute-1", "another", limit=1))
        return spawn(spec, **named)

    monkeypatch.setattr(plane.driver, "spawn", slow)
    server_id = plane.create("web")
    plane.settle()
    (job,) = others
    assert (job.key, job.epoch) == (server_id, 2)
    assert plane.server(server_id)["status"] == "BUILD"
    assert server_id in plane.driver.domains()
    plane.compute.report_job(job.id, job.epoch, "done", {"devices": []})
    assert plane.server(server_id)["status"] == "ACTIVE"


def test_an_unavailable_compute_service_delays_jobs_by_a_poll_period(plane):
    plane.start_agent()
    plane.to_compute.around = failing(Unavailable("nobody answers"))
    server_id = plane.create("web")
    plane.settle()
    assert plane.server(server_id)["status"] == "BUILD"
    plane.to_compute.clear()
    plane.run_for(3700)
    assert plane.server(server_id)["status"] == "ACTIVE"


@pytest.mark.parametrize("verb", ["POST", "PUT"])
def test_a_failed_claim_or_report_is_retried_within_seconds(plane, verb):
    """The hint was used: without a retry, a single 503 under heavy load would cost a whole poll period (an hour
    here).
    """
    plane.start_agent()
    failed = []

    def busy(request, send):
        is_one = request.path.endswith("/jobs") if verb == "POST" else "/jobs" in request.path
        if request.method == verb and is_one and len(failed) < 4:
            failed.append(request)
            raise Unavailable("all connections to the database are in use")
        return send()

    plane.to_compute.around = busy
    server_id = plane.create("web")
    plane.run_for(20)
    assert failed
    assert plane.server(server_id)["status"] == "ACTIVE"


def test_a_failed_extension_of_the_lease_does_not_undo_the_build(plane):
    plane.start_agent()
    plane.to_compute.on("PUT /agent/v1/jobs/", failing(Unavailable("nobody answers")), times=1)
    server_id = plane.create("gpu", flavor="gpu", **GPU)  # the lease is extended after the device was attached
    plane.settle()
    assert "/agent/v1/jobs/" in "".join(request.path for request in plane.to_compute.requests)
    assert plane.server(server_id)["status"] == "ACTIVE"


def test_a_reserved_host_keeps_its_trait_through_updates_and_restarts(plane):
    plane.start_agent()
    root = plane.placement.provider_by_name("compute-1").uuid
    plane.placement.ensure_trait(RESERVED_HOST_TRAIT)
    generation, traits = plane.placement.traits(root)
    plane.placement.set_traits(root, generation, traits | {RESERVED_HOST_TRAIT})
    plane.run_for(4000)
    plane.start_agent()
    assert RESERVED_HOST_TRAIT in plane.placement.traits(root)[1]


def test_an_invalid_provider_file_stops_the_agent_before_it_registers_the_host(plane):
    """R16 (provider-config)"""
    path = plane.files / "a.yaml"
    path.write_text("meta: {schema_version: 1.0}\nproviders: [{identification: {}}]\n")
    path.chmod(0o644)
    with pytest.raises(StartError, match=r"a\.yaml:2:14: providers\[0\]\.identification"):
        plane.start_agent()
    assert plane.to_compute.requests == []
    assert plane.compute.hypervisor("compute-1") is None


def test_a_starting_agent_waits_for_services_and_fails_with_a_message(plane):
    begin = plane.clock.now()
    plane.to_placement.around = failing(Unavailable("placement does not answer"))
    with pytest.raises(StartError, match="placement does not answer; start that service, then this agent"):
        plane.start_agent()
    waited = (plane.clock.now() - begin).total_seconds()
    patience_s = AgentSettings().start_timeout_s
    assert patience_s <= waited < patience_s + 30


def test_a_start_without_the_accelerator_agent_fails_with_a_message(plane, monkeypatch):
    """R14, R52 (accelerator-attach): `initialize` is always called, and its error stops the start."""

    def away(self):
        raise CyborgAgentUnavailable("nobody listens")

    monkeypatch.setattr("os_acc.Client.initialize", away)
    with pytest.raises(StartError, match=r"os_acc\.initialize\(\): nobody listens"):
        plane.start_agent()


def test_discovery_updates_providers_inventories_and_traits_in_placement(plane):
    """R7 (accelerator-attach): at the start and in each later update; a card that vanished is no provider any more."""
    card, region, gpu = "0000:3b:00.0", "compute-1_0000:3b:00.0_R1", "compute-1_0000:17:00.0"
    simulated = SimulatedAccelerators(
        default_simulated_host(), plane.process.directory / "accelerators" / "simulated", plane.clock
    )

    def published(*faults):
        """{provider: (inventories, traits)} after the next update, of the region and the GPU."""
        simulated.order(FaultControl({}, faults))
        plane.run_for(plane.process.config.agent.update_period_s + 60)
        found = {name: plane.placement.provider_by_name(name) for name in (region, gpu)}
        return {
            name: (plane.placement.inventories(provider.uuid)[1], plane.placement.traits(provider.uuid)[1])
            for name, provider in found.items()
            if provider is not None
        }

    plane.start_agent()
    gpus, fpgas = Inventory(1, max_unit=1), Inventory(2, max_unit=2)
    whole = {
        region: (
            {"CUSTOM_ACCELERATOR_FPGA": fpgas},
            {
                "OWNER_CYBORG",
                "CUSTOM_FPGA_INTEL",
                "CUSTOM_FPGA_INTEL_REGION_9926AB6D_6C92_5A68_AABC_A7D84C545738",
            },
        ),
        gpu: ({"CUSTOM_ACCELERATOR_GPU": gpus}, {"OWNER_CYBORG", "CUSTOM_GPU_NVIDIA"}),
    }
    assert published() == whole
    sick = {"CUSTOM_ACCELERATOR_FPGA": replace(fpgas, reserved=2)}
    assert published(fault("health", "sick", at=card)) == whole | {region: (sick, whole[region][1])}
    assert published(fault("discover", "vanishes", at=card)) == {gpu: whole[gpu]}
    assert published() == whole


@pytest.mark.parametrize("drivers", ["", "simulated"])
def test_initialize_is_called_at_every_start_before_the_host_registers(plane, drivers):
    """R13, R52 (accelerator-attach): also on a host without devices, whatever the flavors of its servers ask for."""
    calls = []

    def recorded(request, send):
        calls.append(request.path.partition("?")[0])
        return send()

    plane.to_compute.around = plane.process.ways["os_acc"].around = recorded
    for _ in range(2):
        calls.clear()
        plane.process.restart(accelerator={"drivers": drivers})
        assert calls[:2] == ["/v1/ready", "/agent/v1/hosts/compute-1"]


def test_a_host_whose_description_has_another_name_does_not_start(plane):
    with pytest.raises(StartError, match="its hypervisor is called other"):
        plane.start_agent(HostDescription(name="other"))


def test_updates_are_retried_with_growing_random_pauses_while_placement_is_unavailable(plane, caplog):
    plane.start_agent()
    plane.to_placement.around = failing(Unavailable("placement does not answer"))
    task = plane.process.task(resources_topic("compute-1"))
    pauses = []
    for _ in range(12):
        due = task.run_once()
        pauses.append((due - plane.clock.now()).total_seconds())
        plane.clock.advance_to(due)
    middles_s = [min(UPDATE_BACKOFF.first_s * 2**number, UPDATE_BACKOFF.longest_s) for number in range(12)]
    for middle_s, pause_s in zip(middles_s, pauses, strict=True):
        assert middle_s / 2 <= pause_s < middle_s * 1.5
    assert len({pause_s / middle_s for middle_s, pause_s in zip(middles_s, pauses, strict=True)}) > 6
    assert "the provider tree could not be updated" in caplog.text
    plane.to_placement.clear()
    plane.driver._host = HostDescription(vcpus=32)
    assert task.run_once() == plane.clock.now() + timedelta(seconds=plane.process.config.agent.update_period_s)
    root = plane.placement.provider_by_name("compute-1").uuid
    assert plane.placement.inventories(root)[1]["VCPU"].total == 32


def test_a_build_costs_its_host_one_claim_and_one_report(plane):
    """The second worker does not ask after the first one has got the only job."""
    plane.start_agent()
    plane.settle()
    plane.to_compute.clear()
    server_id = plane.create("web")
    plane.settle()
    assert plane.server(server_id)["status"] == "ACTIVE"
    asked = [(request.method, request.path.partition("/agent/v1/")[2]) for request in plane.to_compute.requests]
    assert [(method, path.split("/")[0]) for method, path in asked if "jobs" in path] == [
        ("POST", "hosts"),
        ("PUT", "jobs"),
    ]
