"""The simulated devices: their stored state and injected faults."""

import hashlib
import io

import pytest

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.drivers.simulated import (
    FaultControl,
    SimulatedAccelerators,
    default_simulated_host,
    simulated_host_with_every_device_type,
)
from moorage.accelerator.model.devices import Bitstream, DeviceType, Health, RegionState, check_handle, pci_parts
from moorage.core.errors import Invalid, StartError
from tests.unit.accelerator.rig import GPU, R1, fault

DATA = b"bits"


@pytest.fixture
def driver(tmp_path, clock) -> SimulatedAccelerators:
    return SimulatedAccelerators(default_simulated_host(), tmp_path, clock)


def bitstream() -> Bitstream:
    return Bitstream(hashlib.sha512(DATA).hexdigest(), "image")


def test_a_simulated_device_keeps_its_bitstream_after_a_restart(driver, tmp_path, clock):
    driver.program(R1, bitstream(), io.BytesIO(DATA))
    again = SimulatedAccelerators(default_simulated_host(), tmp_path, clock)
    assert again.identify(R1).bitstream == bitstream()
    again.program(R1, None, None)
    assert again.identify(R1).bitstream is None


def test_programming_takes_the_configured_time(driver, clock):
    begin = clock.now()
    driver.order(FaultControl({"program": 90.0}))
    driver.program(R1, None, None)
    assert (clock.now() - begin).total_seconds() == 90


def test_a_simulated_device_refuses_data_with_another_digest(driver):
    with pytest.raises(DriverError, match="was sent data"):
        driver.program(R1, bitstream(), io.BytesIO(b"other"))
    with pytest.raises(DriverError, match="no data"):
        driver.program(R1, bitstream(), None)
    with pytest.raises(DriverError, match="cannot be programmed"):
        driver.program(GPU, bitstream(), io.BytesIO(DATA))


def test_a_fault_happens_as_often_as_ordered_even_after_a_restart(driver, tmp_path, clock):
    driver.order(FaultControl(faults=(fault("clean", times=2),)))
    for attempt in (driver, SimulatedAccelerators(default_simulated_host(), tmp_path, clock)):
        with pytest.raises(DriverError, match="as requested"):
            attempt.clean(GPU)
    driver.clean(GPU)
    driver.order(FaultControl(faults=(fault("clean", times=2),)))
    with pytest.raises(DriverError):  # the same order counts again
        driver.clean(GPU)


def test_a_region_whose_programming_was_interrupted_is_unknown(driver):
    driver.order(FaultControl(faults=(fault("program", "dies", at=R1),)))
    with pytest.raises(DriverError, match="half-way"):
        driver.program(R1, None, None)
    assert driver.identify(R1).state is RegionState.UNKNOWN


def test_faults_of_health_and_discovery_make_devices_failed_or_missing(driver):
    driver.order(
        FaultControl(faults=(fault("health", "sick", at=GPU), fault("discover", "vanishes", at="0000:3b:00.0")))
    )
    assert driver.health(GPU) is Health.FAILED
    assert len(driver.discover()) == 5
    with pytest.raises(DriverError, match="has vanished"):
        driver.prepare("0000:3b:00.1", "somebody")


def test_an_unknown_handle_or_deployable_is_a_driver_error(driver):
    for call in (lambda: driver.prepare("0000:00:00.0", "x"), lambda: driver.program("R9", None, None)):
        with pytest.raises(DriverError, match="there is no"):
            call()


def test_a_control_file_that_cannot_be_read_is_an_error_that_names_it(driver, tmp_path):
    (tmp_path / "control.json").write_text("{")
    with pytest.raises(StartError, match=r"control\.json"):
        driver.discover()


def test_a_pci_address_is_split_into_four_parts():
    assert pci_parts("0000:3b:00.1") == {"domain": "0000", "bus": "3b", "device": "00", "function": "1"}
    for text in ("3b:00.1", "0000:3b:20.1", "0000:3b:00.8", ""):
        with pytest.raises(Invalid):
            pci_parts(text)


def test_all_handles_of_the_default_simulated_host_are_different():
    handles = [handle for device in default_simulated_host() for part in device.deployables for handle in part.handles]
    assert len(handles) == len(set(handles)) == 8
    for handle in handles:
        pci_parts(handle)


def test_a_host_with_every_device_type_can_be_simulated(tmp_path, clock):
    """R1, R2: whole devices, mediated devices, regions and virtual functions, including a time card."""
    devices = SimulatedAccelerators(simulated_host_with_every_device_type(), tmp_path, clock).discover()
    assert {device.type for device in devices} == {
        DeviceType.FPGA, DeviceType.GPU, DeviceType.VGPU, DeviceType.HPTS, DeviceType.QAT,
        DeviceType.NIC,
    }  # fmt: skip
    handles = [handle for device in devices for part in device.deployables for handle in part.handles]
    assert len(handles) == len(set(handles))
    for handle in handles:
        check_handle(handle)
