"""One job from its payload to its result."""

from datetime import UTC, datetime

import pytest

from moorage.agent.jobs.job_runner import MAX_CONSOLE_CHARACTERS, JobRunner
from moorage.agent.jobs.server_build import NoAcceleration, ServerBuilder
from moorage.agent.virt.driver import DomainSpec, NoSuchDomain
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.core.clock import VirtualClock
from moorage.core.errors import Invalid, MoorageError

A = "aaaaaaaa-0000-4000-8000-000000000000"
SERVER = {"id": A, "name": "web", "project_id": "p", "flavor": {"name": "f", "vcpus": 1, "ram_mb": 512}}
JOB = {"server": SERVER, "action_id": "", "request_id": ""}


@pytest.fixture
def driver(tmp_path):
    return SimulatedDriver(HostDescription(), tmp_path, VirtualClock(datetime(2030, 1, 1, tzinfo=UTC)))


@pytest.fixture
def runner(driver):
    def refers(extra_specs):
        return "resources:CUSTOM_ACCELERATOR_FPGA" in extra_specs

    return JobRunner(driver, ServerBuilder(driver, NoAcceleration(), refers, lambda _: frozenset(), None), lambda: None)


def claim_is_valid():
    """The check of the job's claim: never raises, so the claim is valid."""


def test_each_kind_of_job_changes_the_power_state_and_build_returns_the_console(runner):
    built = runner.run_job("build", JOB, claim_is_valid)
    assert list(built["devices"]) == []
    assert "booting" in built["console"]
    for kind, state in (
        ("pause", "paused"),
        ("unpause", "running"),
        ("stop", "shutoff"),
        ("start", "running"),
        ("reboot", "running"),
    ):
        assert runner.run_job(kind, JOB, claim_is_valid)["power_state"] == state
    assert runner.run_job("destroy", JOB, claim_is_valid) == {"released": 0}


class OneDevice(NoAcceleration):
    """Stands in for os_acc with one device for the server."""

    is_plugged = False

    def plug(self, instance_info, selected_rp, flavor_extra_specs):
        self.is_plugged = True
        return [{"pci_id": "0000:3b:00.1"}]

    def unplug(self, instance_info):
        released, self.is_plugged = int(self.is_plugged), False
        return released


def test_jobs_that_attach_or_release_devices_wake_the_resource_tracker(driver):
    """R7, R35, R44, R45 (accelerator-attach): Placement and the reports of the host follow at once."""
    woken = []
    builder = ServerBuilder(driver, OneDevice(), bool, lambda _: frozenset(), None)
    runner = JobRunner(driver, builder, lambda: woken.append(True), releases_on_stop=True)
    flavor = SERVER["flavor"] | {"extra_specs": {"resources:CUSTOM_ACCELERATOR_FPGA": "1"}}
    job = JOB | {"server": SERVER | {"flavor": flavor}, "start": True}
    seen = {}
    for kind in (
        "build",
        "pause",
        "unpause",
        "stop",
        "start",
        "reboot-hard",
        "soft-delete",
        "restore",
        "move-back",
        "destroy",
    ):
        woken.clear()
        runner.run_job(kind, job, claim_is_valid)
        seen[kind] = bool(woken)
    assert [kind for kind, is_woken in seen.items() if not is_woken] == ["pause", "unpause"]
    woken.clear()
    runner.run_job("move-in", job, claim_is_valid)
    assert woken.pop()
    with pytest.raises(MoorageError):  # this runner has no place for images; the devices may be released all the same
        runner.run_job("move-out", job | {"image": {"id": A, "name": "disk", "properties": {}}}, claim_is_valid)
    assert woken


def test_each_job_of_the_power_state_has_its_own_action(driver, monkeypatch):
    """R35, R36, R37, R41, R42 (accelerator-attach): a start is no reboot, which would destroy a running guest."""
    actions = []
    power = driver.power
    monkeypatch.setattr(driver, "power", lambda uuid, action: actions.append(action) or power(uuid, action))
    runner = JobRunner(driver, ServerBuilder(driver, NoAcceleration(), bool, lambda _: frozenset(), None), lambda: None)
    runner.run_job("build", JOB, claim_is_valid)
    for kind in (
        "pause",
        "unpause",
        "suspend",
        "resume",
        "reboot",
        "reboot-hard",
        "stop",
        "start",
        "soft-delete",
        "restore",
    ):
        runner.run_job(kind, JOB, claim_is_valid)
    assert actions == [
        "pause", "unpause", "suspend", "resume", "reboot", "reboot-hard", "stop", "start", "stop", "start",
    ]  # fmt: skip


def test_a_job_of_an_unknown_kind_fails_with_the_list_of_known_kinds(runner):
    with pytest.raises(
        MoorageError, match="no job of kind 'dance'; it has build, destroy, soft-delete, restore, start"
    ) as caught:
        runner.run_job("dance", JOB, claim_is_valid)
    assert caught.value.error_code == "agent.kind"


def test_a_job_for_a_server_that_is_not_on_the_host_fails(runner):
    with pytest.raises(NoSuchDomain):
        runner.run_job("stop", JOB, claim_is_valid)


@pytest.mark.parametrize("payload", [{}, JOB | {"server": 5}, JOB | {"server": {"name": "n"}}])
def test_a_payload_that_cannot_be_read_is_refused(runner, payload):
    with pytest.raises(
        Invalid, match=r"the job's payload cannot be read: .*server.*, in a job of kind stop. .* upgrade the older one"
    ):
        runner.run_job("stop", payload, claim_is_valid)


def test_building_a_server_with_accelerators_fails_on_a_host_without_accelerator_agent(runner, driver):
    flavor = SERVER["flavor"] | {"extra_specs": {"resources:CUSTOM_ACCELERATOR_FPGA": "1"}}
    with pytest.raises(MoorageError, match="runs no accelerator agent"):
        runner.run_job("build", JOB | {"server": SERVER | {"flavor": flavor}}, claim_is_valid)
    assert driver.domains() == {}


def test_the_result_of_a_job_contains_the_end_of_a_long_console_log(runner, driver, tmp_path):
    driver.spawn(DomainSpec(A, "web", 1, 512))
    with (tmp_path / "consoles" / f"{A}.log").open("a") as file:
        file.write("x" * 200_000)
    console = runner.run_job("reboot", JOB, claim_is_valid)["console"]
    assert len(console) == MAX_CONSOLE_CHARACTERS
    assert console.endswith("login:\n")
