"""Building and destroying a server: the order of effects, the state after a failure, and repetition."""

import re
import threading
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from moorage.agent.jobs.server_build import BuildFailed, JobLost, ServerBuilder, failure_report
from moorage.agent.model import PowerAction
from moorage.agent.virt.driver import DomainInterface, DomainSpec, VirtError
from moorage.agent.virt.host_description import HostDescription
from moorage.agent.virt.simulated import SimulatedDriver
from moorage.core.clock import VirtualClock
from moorage.core.errors import Conflict, Invalid
from moorage.jobs.contract import (
    DEVICE,
    PORT_REFUSED_CODE,
    BuildJob,
    FlavorPayload,
    InterfaceJob,
    InterfacePayload,
    JobKind,
    PortDevice,
    ServerPayload,
    ServerRef,
    payload_of,
)
from os_acc.exception import CyborgAgentUnavailable

A = "aaaaaaaa-0000-4000-8000-000000000000"
FPGA = {"resources:CUSTOM_ACCELERATOR_FPGA": "1"}


class RecordingAcceleration:
    """Stands in for os_acc: plugs its devices for every server, and records all calls in order."""

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
def acceleration():
    return RecordingAcceleration("0000:3b:00.1")


class BoundPorts:
    """Binds ports, and keeps the requests."""

    def __init__(self):
        self.requests = []
        self.fails = None
        self.is_gone = False

    def __call__(self, server_id, port_id, device):
        self.requests.append((server_id, port_id, device))
        if self.fails is not None:
            raise self.fails
        if self.is_gone:
            return None
        return InterfacePayload(port_id, "fa:16:3e:00:00:01", "network", DEVICE, "", segmentation_id=100)


@pytest.fixture
def bound():
    return BoundPorts()


@pytest.fixture
def builder(driver, acceleration, bound):
    return ServerBuilder(
        driver,
        acceleration,
        lambda extra_specs: any("CUSTOM_ACCELERATOR" in name for name in extra_specs),
        lambda uuids: frozenset({"compute-1_NUMA_1"} if "rp" in uuids else ()),
        bound,
        keep_alive_period_s=0.01,
    )


def order(extra_specs=FPGA):
    flavor = FlavorPayload("f", 2, 1024, 10, extra_specs)
    server = ServerPayload(A, "web", "project", flavor, "image")
    return BuildJob(server=server, action_id="", request_id="", selected_rp={"": ("rp",)})


def claim_is_valid():
    """The check of the job's claim: never raises, so the claim is valid."""


def test_devices_are_plugged_before_the_domain_is_defined_and_are_in_its_definition(builder, driver, acceleration):
    """R33 (accelerator-attach)."""
    built = builder.build(order(), claim_is_valid)
    assert built.devices == ({"pci_id": "0000:3b:00.1"},)
    assert acceleration.calls == [
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


def test_a_mediated_device_is_in_the_domain_definition_with_its_uuid(builder, driver, acceleration):
    """R20, R33 (accelerator-attach): the answer of plug suffices for the definition, for each type of handle."""
    share = {"pci_id": "0000:17:00.0", "mdev": "c2177883-f1bb-47f0-914d-32a22e3a8804", "mdev_type": "nvidia-63"}
    acceleration.devices = (share, "0000:3b:00.1")
    assert builder.build(order(), claim_is_valid).devices == (share, {"pci_id": "0000:3b:00.1"})
    spec = driver.domains()[A].spec
    assert (spec.mdev_uuids, spec.pci_addresses) == ((share["mdev"],), ("0000:3b:00.1",))


def test_a_flavor_without_accelerators_does_not_call_os_acc(builder, driver, acceleration):
    """R15 (accelerator-attach)."""
    assert builder.build(order({"resources:CUSTOM_LLC": "2"}), claim_is_valid).devices == ()
    assert acceleration.calls == []
    assert A in driver.domains()


def test_building_an_existing_server_again_changes_nothing(builder, driver):
    builder.build(order(), claim_is_valid)
    console = driver.console(A)
    assert builder.build(order(), claim_is_valid).devices == ({"pci_id": "0000:3b:00.1"},)
    assert driver.console(A) == console


def test_when_plug_fails_the_build_is_undone_and_the_error_has_the_reason(builder, driver, acceleration):
    acceleration.fails["plug"] = VirtError("bitstreams 1 and 2 both provide function sha")
    with pytest.raises(BuildFailed, match="bitstreams 1 and 2 both provide function sha"):
        builder.build(order(), claim_is_valid)
    assert driver.domains() == {}
    assert acceleration.calls[-1][0] == "unplug"


class TestPortsThatAreDevices:
    PORT = "01234567-89ab-4000-8000-000000000000"
    FUNCTION = (("pci_id", "0000:c1:00.2"), ("group", f"port_{PORT}"), ("physical_network", "fast"))

    def order(self):
        plain = InterfacePayload("port-2", "fa:16:3e:00:00:02", "network", "bridge", "br0")
        device = InterfacePayload(self.PORT, "", "network", DEVICE, "")
        made = order()
        return replace(made, server=replace(made.server, interfaces=(plain, device)))

    def test_the_port_is_bound_to_the_device_that_was_plugged_for_it(self, builder, driver, acceleration, bound):
        acceleration.devices = ("0000:3b:00.1", dict(self.FUNCTION))
        builder.build(self.order(), claim_is_valid)
        assert bound.requests == [(A, self.PORT, PortDevice("0000:c1:00.2", "fast"))]
        spec = driver.domains()[A].spec
        assert spec.interfaces[1] == DomainInterface("fa:16:3e:00:00:01", "", False, vlan=100, device="0000:c1:00.2")
        assert (spec.interfaces[0].device, spec.pci_addresses) == (None, ("0000:3b:00.1",))

    def test_a_device_without_a_physical_network_is_refused_and_given_back(self, builder, driver, acceleration, bound):
        acceleration.devices = ("0000:3b:00.1", "0000:c1:00.2")
        with pytest.raises(
            BuildFailed, match=f"the device of port {self.PORT} is no virtual function with a physical network"
        ):
            builder.build(self.order(), claim_is_valid)
        assert (acceleration.plugged, driver.domains(), bound.requests) == ({}, {}, [])

    def test_when_the_port_is_refused_the_build_is_undone(self, builder, driver, acceleration, bound):
        acceleration.devices = (dict(self.FUNCTION),)
        bound.fails = Conflict("Port is still in use.")
        with pytest.raises(BuildFailed, match="Port is still in use") as caught:
            builder.build(self.order(), claim_is_valid)
        assert caught.value.error_code == PORT_REFUSED_CODE
        assert (acceleration.plugged, driver.domains()) == ({}, {})

    def test_a_start_binds_the_port_to_the_device_that_the_server_has_now(self, builder, driver, acceleration, bound):
        acceleration.devices = (dict(self.FUNCTION),)
        builder.build(self.order(), claim_is_valid)
        driver.power(A, PowerAction.STOP)
        acceleration.devices = ({**dict(self.FUNCTION), "pci_id": "0000:c1:00.3"},)
        builder.attach(self.order(), claim_is_valid)
        assert bound.requests[1:] == [(A, self.PORT, PortDevice("0000:c1:00.3", "fast"))]
        spec = driver.domains()[A].spec
        assert (spec.interfaces[1].device, spec.pci_addresses) == ("0000:c1:00.3", ())

    def test_a_port_that_is_gone_is_no_device_of_the_next_start(self, builder, driver, acceleration, bound):
        acceleration.devices = (dict(self.FUNCTION),)
        builder.build(self.order(), claim_is_valid)
        bound.is_gone = True
        builder.attach(self.order(), claim_is_valid)
        spec = driver.domains()[A].spec
        assert ([one.device for one in spec.interfaces], spec.pci_addresses) == ([None], ())

    @pytest.mark.parametrize("restarts", [False, True])
    def test_a_function_whose_port_is_gone_is_taken_from_the_guest(
        self, builder, driver, acceleration, bound, restarts
    ):
        """Whatever else of the server cannot be plugged or bound. A repetition ends as the first attempt should have."""
        acceleration.devices = (dict(self.FUNCTION),)
        builder.build(self.order(), claim_is_valid)
        bound.fails = acceleration.fails["plug"] = Conflict("refused")
        built = self.order()
        plain, function = built.server.interfaces
        order = InterfaceJob(
            server=replace(built.server, interfaces=(plain,)), action_id="", request_id="", interface=function,
            restarts=restarts,
        )  # fmt: skip
        for _ in range(2):
            builder.remove_functions(order, claim_is_valid)
            domain = driver.domains()[A]
            assert [one.device for one in domain.spec.interfaces] == [None]
            assert domain.power == ("running" if restarts else "shutoff")
            driver.power(A, PowerAction.STOP)

    def test_plain_interfaces_of_a_guest_stay_as_they_are(self, builder, driver, acceleration):
        """The job may still have an interface that was detached after it was written."""
        acceleration.devices = (dict(self.FUNCTION),)
        builder.build(self.order(), claim_is_valid)
        driver.detach_interface(A, "fa:16:3e:00:00:02")
        builder.attach(self.order(), claim_is_valid)
        assert [one.device for one in driver.domains()[A].spec.interfaces] == ["0000:c1:00.2"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (VirtError("no space left"), ("no space left", "virt.failed")),
        (CyborgAgentUnavailable("nobody answers", A), ("nobody answers", "accelerator.not_ready")),
    ],
)
def test_the_report_of_a_failure_has_the_message_and_the_code_of_the_error(error, expected):
    assert failure_report(error) == expected


def test_an_unexpected_error_is_reported_with_a_number_under_which_the_log_has_its_cause(caplog):
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


def test_when_spawn_fails_the_devices_are_released(builder, driver, acceleration):
    driver.faults.fail("spawn", "no space left on the disk")
    with pytest.raises(BuildFailed, match="no space left on the disk") as caught:
        builder.build(order(), claim_is_valid)
    assert caught.value.error_code == "virt.failed"
    assert acceleration.plugged == {}


def test_when_the_domain_cannot_be_destroyed_its_devices_are_not_unplugged(builder, driver, acceleration):
    builder.build(order(), claim_is_valid)
    acceleration.fails["plug"] = VirtError("first reason")
    driver.faults.fail("destroy", "the guest does not let go")
    with pytest.raises(BuildFailed, match="first reason; and it could not be undone: the guest does not let go"):
        builder.build(order(), claim_is_valid)
    assert acceleration.plugged == {A: ("0000:3b:00.1",)}


@pytest.mark.parametrize("is_left", [False, True])
def test_a_failed_build_says_whether_its_devices_are_still_plugged(builder, driver, acceleration, is_left):
    """The service has them released later, so the agent does not wait for it."""
    driver.faults.fail("spawn", "no space left on the disk")
    if is_left:
        acceleration.fails["unplug"] = OSError("no space left on the disk")
    with pytest.raises(BuildFailed) as caught:
        builder.build(order(), claim_is_valid)
    assert caught.value.is_left is is_left
    assert bool(acceleration.plugged) is is_left


def test_a_build_whose_job_was_lost_to_another_worker_undoes_nothing(builder, driver, acceleration):
    """R20 (accelerator-attach): the claim is checked after the plug, which may take long, before the definition."""

    def lost():
        raise JobLost("epoch 1 is over")

    with pytest.raises(JobLost):
        builder.build(order(), lost)
    assert acceleration.plugged == {A: ("0000:3b:00.1",)}
    assert driver.domains() == {}


def test_the_claim_on_the_job_is_extended_during_a_long_plug(builder, acceleration):
    often = threading.Event()
    beats = []

    def beat():
        beats.append(1)
        if len(beats) >= 3:
            often.set()

    acceleration.before_plug = lambda: often.wait(10)
    builder.build(order(), beat)
    assert len(beats) >= 3


def test_a_job_that_is_lost_during_plug_ends_the_build_after_the_plug(builder, driver, acceleration):
    told = threading.Event()

    def lost():
        told.set()
        raise JobLost("epoch 1 is over")

    acceleration.before_plug = lambda: told.wait(10)
    with pytest.raises(JobLost):
        builder.build(order(), lost)
    assert acceleration.plugged == {A: ("0000:3b:00.1",)}


def test_destroy_removes_the_domain_before_its_devices_are_unplugged(builder, driver, acceleration):
    builder.build(order(), claim_is_valid)
    assert builder.destroy(ServerRef(A, "web"), claim_is_valid) == 1
    assert driver.domains() == {}
    assert acceleration.calls[-1] == ("unplug", {"uuid": A, "name": "web"})


def test_devices_are_not_unplugged_from_a_domain_that_cannot_be_destroyed(builder, driver, acceleration):
    builder.build(order(), claim_is_valid)
    driver.faults.fail("destroy", "the guest does not let go")
    with pytest.raises(Exception, match="does not let go"):
        builder.destroy(ServerRef(A, "web"), claim_is_valid)
    assert A in acceleration.plugged


def test_destroying_a_missing_server_succeeds(builder):
    assert builder.destroy(ServerRef(A, "web"), claim_is_valid) == 0


def test_a_build_payload_is_decoded_and_unknown_fields_are_ignored():
    payload = {
        "server": {
            "id": A, "name": "web", "project_id": "p", "user_id": "u", "image_id": None, "tags": [],
            "flavor": {"name": "f", "vcpus": 1, "ram_mb": 2, "disk_gb": 3, "extra_specs": FPGA, "swap": 0},
        },
        "selected_rp": {"": ["rp1", "rp2"], "_F": ["rp3"]},
        "allocations": {"rp1": {"resources": {"VCPU": 1}}}, "action_id": "a", "request_id": "r", "news": 1,
    }  # fmt: skip
    read = payload_of(JobKind.BUILD, payload, BuildJob)
    assert read.selected_rp == {"": ("rp1", "rp2"), "_F": ("rp3",)}
    assert read.server.flavor.extra_specs == FPGA


def test_an_invalid_payload_is_refused_with_the_path_of_the_invalid_field():
    with pytest.raises(Invalid, match=r"server\.flavor"):
        payload_of(JobKind.BUILD, {"server": {"id": A, "name": "n", "project_id": "p", "flavor": 5}}, BuildJob)
