"""A host reports its domains: those that stopped or vanished, console output of guests, and domains left over."""

import pytest

from moorage.agent.host_reports import LONGEST_REPORT_PAUSE, DomainsTask, HostBoot
from moorage.agent.model import PowerAction
from moorage.agent.virt.driver import DomainSpec, HypervisorUnavailable
from moorage.core.errors import Unavailable
from tests.plane import failing

STRANGE = "5e7a4e00-0000-4000-8000-000000000000"


@pytest.fixture
def task(plane, clock):
    plane.start_agent()
    return DomainsTask(host="compute-1", driver=plane.driver, compute=plane.own_compute, clock=clock, period_s=10)


@pytest.fixture
def server(plane, task):
    server_id = plane.create("web")
    plane.settle()
    task.run_once()
    plane.to_compute.clear()
    return server_id


def test_a_guest_that_shut_down_is_shown_as_shutoff_and_can_be_started(plane, task, server):
    plane.driver.power(server, PowerAction.STOP)
    task.run_once()
    shown = plane.server(server)
    assert (shown["status"], shown["OS-EXT-STS:power_state"]) == ("SHUTOFF", 4)
    plane.act(server, **{"os-start": None})
    assert plane.server(server)["status"] == "ACTIVE"
    task.run_once()
    assert plane.server(server)["status"] == "ACTIVE"


def test_a_server_whose_domain_vanished_is_in_error_with_the_reason(plane, task, server):
    plane.driver.destroy(server)
    task.run_once()
    shown = plane.server(server)
    assert shown["status"] == "ERROR"
    assert "vanished from host compute-1" in shown["fault"]["message"]
    assert "compute-1" in shown["fault"]["details"]


def test_unchanged_domains_cause_no_request_until_the_longest_pause(plane, task, server, clock):
    task.run_once()
    assert plane.to_compute.requests == []
    clock.sleep(LONGEST_REPORT_PAUSE.total_seconds())
    task.run_once()
    assert [request.method for request in plane.to_compute.requests] == ["GET", "PUT"]


def test_the_console_output_of_a_guest_is_shown(plane, task, server):
    (plane.state / "consoles" / f"{server}.log").write_text("hello from inside\n")
    task.run_once()
    action = {"os-getConsoleOutput": {}}
    output = plane.http.request("POST", f"/v2.1/servers/{server}/action", json=action)["output"]
    assert output.strip() == "hello from inside"


def test_a_report_older_than_the_servers_last_change_has_no_effect(plane, server, clock):
    mark = plane.compute.expected_servers("compute-1")[server]
    clock.sleep(1)
    plane.act(server, pause=None)
    plane.compute.report_domains("compute-1", {server: (mark, "gone")}, {})
    assert plane.server(server)["status"] == "PAUSED"
    mark = plane.compute.expected_servers("compute-1")[server]
    plane.compute.report_domains("compute-1", {server: (mark, "gone")}, {})
    assert plane.server(server)["status"] == "ERROR"


def test_a_server_with_an_operation_in_progress_is_not_expected_in_reports(plane, server):
    plane.http.request("POST", f"/v2.1/servers/{server}/action", json={"pause": None})
    assert plane.compute.expected_servers("compute-1") == {server: None}


def test_a_report_of_another_host_has_no_effect(plane, server):
    mark = plane.compute.expected_servers("compute-1")[server]
    plane.compute.report_domains("compute-2", {server: (mark, "gone")}, {server: "not yours"})
    assert plane.server(server)["status"] == "ACTIVE"
    assert plane.compute.expected_servers("compute-2") == {}


def test_a_domain_unknown_to_compute_is_logged_once_and_not_touched(plane, task, server, caplog):
    plane.driver.spawn(DomainSpec(STRANGE, "strange", 1, 64))
    task.run_once()
    task.run_once()
    said = [record for record in caplog.records if STRANGE in getattr(record, "domains", ())]
    assert len(said) == 1
    assert "the agent does not change them" in said[0].getMessage()
    assert STRANGE in plane.driver.domains()


def test_an_unavailable_hypervisor_changes_no_server_and_is_queried_again(plane, task, server, caplog):
    domains = plane.driver.domains

    def away():
        raise HypervisorUnavailable("libvirt does not answer")

    plane.driver.domains = away
    task.run_once()
    assert [record.why for record in caplog.records if hasattr(record, "why")] == ["libvirt does not answer"]
    assert plane.server(server)["status"] == "ACTIVE"
    plane.driver.domains = domains
    plane.driver.destroy(server)
    task.run_once()
    assert plane.server(server)["status"] == "ERROR"


@pytest.fixture
def booted(plane, clock, tmp_path):
    """The task of an agent that starts on a host with this boot id."""

    def booted(boot_id: str) -> DomainsTask:
        (tmp_path / "current").write_text(boot_id)
        boot = HostBoot(
            host="compute-1",
            boot_id_file=tmp_path / "remembered",
            compute=plane.own_compute,
            kernel_file=tmp_path / "current",
        )
        return DomainsTask(
            host="compute-1", driver=plane.driver, compute=plane.own_compute, clock=clock, period_s=10, boot=boot
        )

    return booted


def test_after_a_boot_of_the_host_only_the_servers_that_were_running_are_started(plane, server, booted):
    off, paused = plane.create("off"), plane.create("paused")
    plane.settle()
    plane.act(off, **{"os-stop": None})
    plane.act(paused, pause=None)
    booted("one").run_once()
    for each in (server, paused):
        plane.driver.power(each, PowerAction.STOP)
    booted("two").run_once()
    plane.settle()
    assert [plane.server(each)["status"] for each in (server, off, paused)] == ["ACTIVE", "SHUTOFF", "SHUTOFF"]
    assert plane.driver.domains()[server].power == "running"
    action = plane.http.get(f"/v2.1/servers/{server}/os-instance-actions")["instanceActions"][0]
    assert action["action"] == "reboot"


def test_without_a_boot_of_the_host_a_stopped_guest_stays_off(plane, server, booted):
    """Only the agent was down, and the guest shut itself down meanwhile."""
    booted("one").run_once()
    plane.driver.power(server, PowerAction.STOP)
    booted("one").run_once()
    plane.settle()
    assert plane.server(server)["status"] == "SHUTOFF"


def test_servers_are_started_once_per_boot_and_again_if_compute_was_unavailable(plane, server, booted):
    booted("one").run_once()
    plane.driver.power(server, PowerAction.STOP)
    task = booted("two")
    plane.to_compute.around = failing(Unavailable("compute is away"))
    task.run_once()
    plane.to_compute.clear()
    task.run_once()
    plane.settle()
    assert plane.server(server)["status"] == "ACTIVE"
    plane.driver.power(server, PowerAction.STOP)
    task.run_once()
    plane.settle()
    assert plane.server(server)["status"] == "SHUTOFF"
