"""The contract that all drivers must meet (`moorage.accelerator.drivers.base`), tested with each of them."""

import re
from dataclasses import fields

import pytest

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.host.device_registry import DeviceRegistry
from moorage.accelerator.model.devices import Health, RegionState, check_handle
from moorage.options.services import AcceleratorOptions
from tests.unit.accelerator.drivers import benches, page
from tests.unit.accelerator.drivers.benches import NOBODY
from tests.unit.accelerator.drivers.bits import opened

PROGRAMMABLE = [
    benches.simulated,
    benches.fpga_dfl,
    benches.fpga_dfl_virtual,
    benches.fpga_manager,
    benches.opae,
    benches.xrt,
]
BENCHES = [benches.pci, benches.qat, benches.nvidia, benches.nvidia_shares, page.timecard, *PROGRAMMABLE]


@pytest.fixture(params=BENCHES, ids=lambda make: make.__name__)
def bench(request, tmp_path, clock):
    return request.param(tmp_path, clock)


@pytest.fixture(params=PROGRAMMABLE, ids=lambda make: make.__name__)
def programmable(request, tmp_path, clock):
    return request.param(tmp_path, clock)


def found(driver):
    return {device.pci_id: device for device in driver.discover()}


def test_every_driver_of_the_options_has_a_device_here(tmp_path, clock):
    """R54: recorded from a card, or simulated below the driver."""
    names = {make(tmp_path / make.__name__, clock).driver.name for make in BENCHES if make is not page.timecard}
    (named,) = [field.metadata["help"] for field in fields(AcceleratorOptions) if field.name == "drivers"]
    assert names == set(re.findall(r"\w+", named.split(":")[1]))


def test_discovery_changes_nothing_and_finds_the_same_each_time(bench):
    """R6"""
    before = bench.snapshot()
    first = found(bench.driver)
    assert found(bench.driver) == first
    assert found(bench.again()) == first
    assert bench.snapshot() == before
    assert bench.card in first


def test_discovered_devices_have_unique_names_and_valid_handles(bench):
    """R3, R28"""
    devices = found(bench.driver)
    parts = [part for device in devices.values() for part in device.deployables]
    handles = [handle for part in parts for handle in part.handles]
    assert bench.handle in handles
    assert bench.deployable in {part.name for part in parts}
    assert len(handles) == len(set(handles))
    assert len(parts) == len({part.name for part in parts})
    for handle in handles:
        check_handle(handle)
    for device in devices.values():
        assert device.numa_node >= 0
        assert device.vendor
        assert device.model


def test_prepare_and_release_can_be_repeated(bench):
    assert not bench.is_attachable()
    for _ in range(2):
        bench.driver.prepare(bench.handle, "instance")
        assert bench.is_attachable()
    for _ in range(2):
        bench.driver.release(bench.handle)
    bench.driver.clean(bench.handle)
    assert not bench.is_attachable()


def test_a_restarted_agent_can_release_and_clean_a_handle_that_was_prepared_before(bench):
    bench.driver.prepare(bench.handle, "instance")
    driver = bench.again()
    driver.discover()
    driver.prepare(bench.handle, "instance")
    driver.release(bench.handle)
    driver.clean(bench.handle)
    assert not bench.is_attachable()


def test_a_prepared_device_is_discovered_with_the_same_handles(bench):
    before = {name: device.deployables for name, device in found(bench.driver).items()}
    bench.driver.prepare(bench.handle, "instance")
    for driver in (bench.driver, bench.again()):
        assert {name: device.deployables for name, device in found(driver).items()} == before


def test_clean_can_be_repeated(bench):
    bench.driver.prepare(bench.handle, "instance")
    bench.driver.release(bench.handle)
    for _ in range(2):
        bench.driver.clean(bench.handle)


def test_release_or_clean_fails_if_the_device_cannot_be_cleaned(bench):
    bench.driver.prepare(bench.handle, "instance")
    bench.resist_cleaning()
    with pytest.raises(DriverError):
        bench.driver.release(bench.handle)
        bench.driver.clean(bench.handle)


@pytest.mark.parametrize("verb", ["prepare", "release", "clean"])
def test_an_unknown_handle_is_a_driver_error_that_names_it(bench, verb):
    arguments = [NOBODY, "instance"] if verb == "prepare" else [NOBODY]
    with pytest.raises(DriverError, match=NOBODY):
        getattr(bench.driver, verb)(*arguments)


@pytest.mark.parametrize("verb", ["prepare", "release", "clean"])
def test_a_removed_device_is_a_driver_error(bench, verb):
    bench.vanish()
    arguments = [bench.handle, "instance"] if verb == "prepare" else [bench.handle]
    with pytest.raises(DriverError):
        getattr(bench.driver, verb)(*arguments)


def test_a_removed_device_is_not_discovered_and_its_health_is_not_ok(bench):
    assert bench.driver.health(bench.card) is Health.OK
    bench.vanish()
    assert bench.card not in found(bench.driver)
    try:
        health = bench.driver.health(bench.card)
    except DriverError:
        return
    assert health in (Health.GONE, Health.UNKNOWN, Health.FAILED)


def test_the_registry_keeps_a_removed_device_that_is_in_use_with_health_gone(bench):
    fleet = DeviceRegistry([bench.driver])
    before = fleet.discover((), frozenset())
    bench.vanish()
    after = {device.pci_id: device for device in fleet.discover(before, frozenset({bench.handle}))}
    assert after[bench.card].health is Health.GONE


def test_programming_a_device_that_cannot_be_programmed_is_refused(bench):
    part = next(part for part in found(bench.driver)[bench.card].deployables if part.name == bench.deployable)
    if part.programmable:
        assert bench.bitstreams, "the bench of a programmable device must have bitstreams"
        return
    with pytest.raises(DriverError, match="cannot be programmed"):
        bench.driver.program(bench.deployable, None, None)


def test_an_unknown_deployable_is_a_driver_error(bench):
    for verb, more in (("program", (None, None)), ("identify", ())):
        with pytest.raises(DriverError):
            getattr(bench.driver, verb)(f"{NOBODY}_R1", *more)


# ------------------------------------------------------------------------------------------ programming


def program(bench, index, driver=None):
    bitstream, data = bench.bitstreams[index]
    (driver or bench.driver).program(bench.deployable, bitstream, opened(data))
    return bitstream


def test_identify_returns_the_programmed_bitstream_also_after_a_restart(programmable):
    """R23"""
    for index in range(2):
        bitstream = program(programmable, index)
        for driver in (programmable.driver, programmable.again()):
            identified = driver.identify(programmable.deployable)
            assert (identified.state, identified.bitstream) == (RegionState.IDLE, bitstream)


def test_data_that_does_not_match_the_digest_is_not_programmed(programmable):
    program(programmable, 0)
    bitstream, data = programmable.bitstreams[1]
    for wrong in (data + b"!", data[:-1], b""):
        with pytest.raises(DriverError):
            programmable.driver.program(programmable.deployable, bitstream, opened(wrong))
    assert programmable.driver.identify(programmable.deployable).bitstream == programmable.bitstreams[0][0]


def test_programming_without_data_is_refused(programmable):
    with pytest.raises(DriverError):
        programmable.driver.program(programmable.deployable, programmable.bitstreams[0][0], None)


def test_after_failed_programming_the_region_is_unknown(programmable):
    """R23: unverified data does not count as loaded."""
    program(programmable, 0)
    programmable.fail_programming()
    with pytest.raises(DriverError):
        program(programmable, 1)
    for driver in (programmable.driver, programmable.again()):
        assert driver.identify(programmable.deployable).state is RegionState.UNKNOWN
