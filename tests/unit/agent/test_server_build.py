"""Build and destroy: the order of effects, the state after a failure, and repetitions."""

import re
import threading
from datetime import UTC, datetime

import pytest

from moorage.agent.jobs.server_build import BuildFailed, JobLost, ServerBuilder, failure_report
from moorage.agent.model.job_payloads import BuildPayload, FlavorPayload, ServerPayload, ServerRef, decode_payload
from moorage.agent.virt.driver import DomainSpec, VirtError
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.core.clock import VirtualClock
from moorage.core.errors import Invalid
from os_acc.exception import CyborgAgentUnavailable

A = "aaaaaaaa-0000-4000-8000-000000000000"
FPGA = {"resources:CUSTOM_ACCELERATOR_FPGA": "1"}


class Bench:
    """Plugs the same devices for the same server, like the library; records all effects in order."""

    def __init__(self, *devices):
        self.devices = devices
        self.plugged = {}
        self.calls = []
        self.fails = {}
        self.before_plug = lambda: None

    def initialize(self):
        self.calls.append("initialize")

    def plug(self, instance_info, selected_rp, flavor_extra_specs):
        self.calls.append(("plug", dict(instance_info), dict(selected_rp), dict(flavor_extra_specs)))
        self.before_plug()
        if "plug" in self.fails:
            raise self.fails["plug"]
        self.plugged[instance_info["uuid"]] = self.devices
        return [device if isinstance(device, dict) else {"pci_id": device} for device in self.devices]

    def unplug(self, instance_info):
        self.calls.append(("unplug", dict(instance_info)))
        if "unplug" in self.fails:
            raise self.fails["unplug"]
        return len(self.plugged.pop(instance_info["uuid"], ()))


@pytest.fixture
def driver(tmp_path):
    return SimulatedDriver(HostDescription(), tmp_path, VirtualClock(datetime(2030, 1, 1, tzinfo=UTC)))


@pytest.fixture
def bench():
    return Bench("0000:3b:00.1")


@pytest.fixture
def builder(driver, bench):
    return ServerBuilder(
        driver,
        bench,
        lambda extra_specs: any("CUSTOM_ACCELERATOR" in name for name in extra_specs),
        lambda uuids: frozenset({"compute-1_NUMA_1"} if "rp" in uuids else ()),
        keep_alive_period_s=0.01,
    )


def order(extra_specs=FPGA):
    flavor = FlavorPayload("f", 2, 1024, 10, extra_specs)
    return BuildPayload(ServerPayload(A, "web", "project", flavor, "image"), {"": ("rp",)})


def alive():
    """The claim on the job is still valid."""


def test_devices_are_plugged_before_the_domain_is_defined_and_stand_in_it(builder, driver, bench):
    """R33 (accelerator-attach)."""
    built = builder.build(order(), alive)
    assert built.devices == ({"pci_id": "0000:3b:00.1"},)
    assert bench.calls == [
        (
            "plug",
            {"uuid": A, "name": "web", "project_id": "project", "user_id": None, "image_id": "image"},
            {"": ["rp"]},
            FPGA,
        )
    ]
    assert driver.domains()[A].spec == DomainSpec(
        A,
        "web",
        2,
        1024,
        10,
        "image",
        ("0000:3b:00.1",),
        frozenset({"compute-1_NUMA_1"}),
        project_id="project",
        flavor="f",
    )


def test_a_mediated_device_stands_in_the_definition_by_its_uuid(builder, driver, bench):
    """R20, R33 (accelerator-attach): the answer of plug suffices to write the definition, for each kind of handle."""
    share = {"type": "MDEV", "mdev": "c2177883-f1bb-47f0-914d-32a22e3a8804", "parent": "0000:17:00.0"}
    bench.devices = (share, "0000:3b:00.1")
    assert builder.build(order(), alive).devices == (share, {"pci_id": "0000:3b:00.1"})
    spec = driver.domains()[A].spec
    assert (spec.mdev_uuids, spec.pci_addresses) == ((share["mdev"],), ("0000:3b:00.1",))


def test_a_flavor_without_accelerators_does_not_reach_the_library(builder, driver, bench):
    """R15 (accelerator-attach): os_acc is called only for flavors with accelerators."""
    assert builder.build(order({"resources:CUSTOM_LLC": "2"}), alive).devices == ()
    assert bench.calls == []
    assert A in driver.domains()


def test_building_again_after_a_crash_changes_nothing(builder, driver):
    builder.build(order(), alive)
    console = driver.console(A)
    assert builder.build(order(), alive).devices == ({"pci_id": "0000:3b:00.1"},)
    assert driver.console(A) == console


def test_when_plug_fails_nothing_is_left_and_the_reason_is_told(builder, driver, bench):
    bench.fails["plug"] = VirtError("bitstreams 1 and 2 both provide function sha")
    with pytest.raises(BuildFailed, match="bitstreams 1 and 2 both provide function sha"):
        builder.build(order(), alive)
    assert driver.domains() == {}
    assert bench.calls[-1][0] == "unplug"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (VirtError("no room"), ("no room", "virt.failed")),
        (CyborgAgentUnavailable("nobody answers", A), ("nobody answers", "accelerator.not_ready")),
    ],
)
def test_a_report_has_the_sentence_and_the_code_of_the_error(error, expected):
    assert failure_report(error) == expected


def test_of_an_error_that_nobody_foresaw_the_owner_has_a_number_and_the_log_what_it_was(caplog):
    sentence, code = failure_report(ConnectionError("amqp://nova:geheim@10.0.0.1 refused"))
    found = re.fullmatch(
        r"Unexpected error on the host; its log has the cause under (err-[0-9a-f]{10}), for the operator", sentence
    )
    assert found, sentence
    assert code == "agent.failed"
    (record,) = caplog.records
    assert record.reference == found.group(1)
    assert "geheim" in record.why
    assert record.exc_info


def test_when_spawn_fails_the_devices_are_released(builder, driver, bench):
    driver.faults.fail("spawn", "no room on the disk")
    with pytest.raises(BuildFailed, match="no room on the disk") as caught:
        builder.build(order(), alive)
    assert caught.value.error_code == "virt.failed"
    assert bench.plugged == {}


def test_when_the_domain_cannot_be_removed_its_devices_are_not_given_to_others(builder, driver, bench):
    builder.build(order(), alive)
    bench.fails["plug"] = VirtError("first reason")
    driver.faults.fail("destroy", "the guest does not let go")
    with pytest.raises(BuildFailed, match="first reason; and it could not be undone: the guest does not let go"):
        builder.build(order(), alive)
    assert bench.plugged == {A: ("0000:3b:00.1",)}


@pytest.mark.parametrize("is_left", [False, True])
def test_a_failure_says_whether_anything_is_left(builder, driver, bench, is_left):
    """The service has leftovers cleaned up later; nobody waits for it here."""
    driver.faults.fail("spawn", "no room on the disk")
    if is_left:
        bench.fails["unplug"] = OSError("no room on the disk")
    with pytest.raises(BuildFailed) as caught:
        builder.build(order(), alive)
    assert caught.value.is_left is is_left
    assert bool(bench.plugged) is is_left


def test_a_job_lost_to_another_worker_is_left_as_it_is(builder, driver, bench):
    def lost():
        raise JobLost("epoch 1 is over")

    with pytest.raises(JobLost):
        builder.build(order(), lost)
    assert bench.plugged == {A: ("0000:3b:00.1",)}
    assert driver.domains() == {}


def test_a_long_plug_keeps_the_job_alive(builder, bench):
    often = threading.Event()
    beats = []

    def beat():
        beats.append(1)
        if len(beats) >= 3:
            often.set()

    bench.before_plug = lambda: often.wait(10)
    builder.build(order(), beat)
    assert len(beats) >= 3


def test_a_job_lost_while_plugging_is_told_when_plug_has_ended(builder, driver, bench):
    told = threading.Event()

    def lost():
        told.set()
        raise JobLost("epoch 1 is over")

    bench.before_plug = lambda: told.wait(10)
    with pytest.raises(JobLost):
        builder.build(order(), lost)
    assert bench.plugged == {A: ("0000:3b:00.1",)}


def test_destroy_takes_the_guest_away_before_its_devices(builder, driver, bench):
    builder.build(order(), alive)
    assert builder.destroy(ServerRef(A, "web"), alive) == 1
    assert driver.domains() == {}
    assert bench.calls[-1] == ("unplug", {"uuid": A, "name": "web"})


def test_devices_stay_with_a_guest_that_cannot_be_destroyed(builder, driver, bench):
    builder.build(order(), alive)
    driver.faults.fail("destroy", "the guest does not let go")
    with pytest.raises(Exception, match="does not let go"):
        builder.destroy(ServerRef(A, "web"), alive)
    assert A in bench.plugged


def test_destroying_what_is_not_there_is_done(builder):
    assert builder.destroy(ServerRef(A, "web"), alive) == 0


def test_an_order_is_read_from_the_payload_and_what_is_unknown_is_passed_over():
    payload = {
        "server": {
            "id": A, "name": "web", "project_id": "p", "user_id": "u", "image_id": None, "tags": [],
            "flavor": {"name": "f", "vcpus": 1, "ram_mb": 2, "disk_gb": 3, "extra_specs": FPGA, "swap": 0},
        },
        "selected_rp": {"": ["rp1", "rp2"], "_F": ["rp3"]},
        "allocations": {"rp1": {"resources": {"VCPU": 1}}},
    }  # fmt: skip
    read = decode_payload(payload, BuildPayload)
    assert read.selected_rp == {"": ("rp1", "rp2"), "_F": ("rp3",)}
    assert read.server.flavor.extra_specs == FPGA


def test_a_payload_that_cannot_be_read_is_refused_with_its_place():
    with pytest.raises(Invalid, match=r"server\.flavor"):
        decode_payload({"server": {"id": A, "name": "n", "project_id": "p", "flavor": 5}}, BuildPayload)
