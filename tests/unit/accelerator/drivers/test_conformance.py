"""The contract of all drivers: `moorage.accelerator.drivers.base`."""

import pytest

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.host.device_registry import DeviceRegistry
from moorage.accelerator.model.devices import Health, RegionState, check_handle
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


def test_discovery_only_looks_and_finds_the_same_each_time(bench):
    """R6"""
    before = bench.snapshot()
    first = found(bench.driver)
    assert found(bench.driver) == first
    assert found(bench.again()) == first
    assert bench.snapshot() == before
    assert bench.card in first


def test_what_is_found_can_be_published_and_attached(bench):
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


def test_prepare_twice_is_prepare_once_and_so_is_release(bench):
    assert not bench.is_attachable()
    for _ in range(2):
        bench.driver.prepare(bench.handle, "instance")
        assert bench.is_attachable()
    for _ in range(2):
        bench.driver.release(bench.handle)
    bench.driver.clean(bench.handle)
    assert not bench.is_attachable()


def test_a_restarted_agent_takes_back_what_the_last_one_handed_over(bench):
    bench.driver.prepare(bench.handle, "instance")
    driver = bench.again()
    driver.discover()
    driver.prepare(bench.handle, "instance")
    driver.release(bench.handle)
    driver.clean(bench.handle)
    assert not bench.is_attachable()


def test_a_device_in_a_guests_hands_is_still_found_with_the_same_handles(bench):
    before = {name: device.deployables for name, device in found(bench.driver).items()}
    bench.driver.prepare(bench.handle, "instance")
    for driver in (bench.driver, bench.again()):
        assert {name: device.deployables for name, device in found(driver).items()} == before


def test_cleaning_may_be_repeated_and_is_looked_at(bench):
    bench.driver.prepare(bench.handle, "instance")
    bench.driver.release(bench.handle)
    for _ in range(2):
        bench.driver.clean(bench.handle)


def test_what_could_not_be_cleaned_is_never_called_clean(bench):
    bench.driver.prepare(bench.handle, "instance")
    bench.resist_cleaning()
    with pytest.raises(DriverError):
        bench.driver.release(bench.handle)
        bench.driver.clean(bench.handle)


@pytest.mark.parametrize("verb", ["prepare", "release", "clean"])
def test_a_handle_of_nobody_is_a_typed_error_that_names_it(bench, verb):
    arguments = [NOBODY, "instance"] if verb == "prepare" else [NOBODY]
    with pytest.raises(DriverError, match=NOBODY):
        getattr(bench.driver, verb)(*arguments)


@pytest.mark.parametrize("verb", ["prepare", "release", "clean"])
def test_a_device_that_has_vanished_is_a_typed_error(bench, verb):
    bench.vanish()
    arguments = [bench.handle, "instance"] if verb == "prepare" else [bench.handle]
    with pytest.raises(DriverError):
        getattr(bench.driver, verb)(*arguments)


def test_a_device_that_has_vanished_is_found_no_more_and_its_health_is_not_good(bench):
    assert bench.driver.health(bench.card) is Health.OK
    bench.vanish()
    assert bench.card not in found(bench.driver)
    try:
        health = bench.driver.health(bench.card)
    except DriverError:
        return
    assert health in (Health.GONE, Health.UNKNOWN, Health.FAILED)


def test_what_was_vanished_with_an_instance_on_it_stays_known_to_the_fleet(bench):
    fleet = DeviceRegistry([bench.driver])
    before = fleet.discover((), frozenset())
    bench.vanish()
    after = {device.pci_id: device for device in fleet.discover(before, frozenset({bench.handle}))}
    assert after[bench.card].health is Health.GONE


def test_what_cannot_be_programmed_says_so(bench):
    part = next(part for part in found(bench.driver)[bench.card].deployables if part.name == bench.deployable)
    if part.programmable:
        assert bench.bitstreams, "a bench of a programmable device brings bitstreams"
        return
    with pytest.raises(DriverError, match="cannot be programmed"):
        bench.driver.program(bench.deployable, None, None)


def test_a_deployable_of_nobody_is_a_typed_error(bench):
    for verb, more in (("program", (None, None)), ("identify", ())):
        with pytest.raises(DriverError):
            getattr(bench.driver, verb)(f"{NOBODY}_R1", *more)


# ------------------------------------------------------------------------------------------ programming


def program(bench, index, driver=None):
    bitstream, data = bench.bitstreams[index]
    (driver or bench.driver).program(bench.deployable, bitstream, opened(data))
    return bitstream


def test_what_was_programmed_is_read_back_and_outlives_the_process(programmable):
    """R23"""
    for index in range(2):
        bitstream = program(programmable, index)
        for driver in (programmable.driver, programmable.again()):
            identified = driver.identify(programmable.deployable)
            assert (identified.state, identified.bitstream) == (RegionState.IDLE, bitstream)


def test_data_that_is_not_what_was_promised_is_not_programmed(programmable):
    program(programmable, 0)
    bitstream, data = programmable.bitstreams[1]
    for wrong in (data + b"!", data[:-1], b""):
        with pytest.raises(DriverError):
            programmable.driver.program(programmable.deployable, bitstream, opened(wrong))
    assert programmable.driver.identify(programmable.deployable).bitstream == programmable.bitstreams[0][0]


def test_programming_without_data_is_refused(programmable):
    with pytest.raises(DriverError):
        programmable.driver.program(programmable.deployable, programmable.bitstreams[0][0], None)


def test_after_a_failure_nothing_is_claimed_to_be_loaded(programmable):
    """R23: unverified data does not count as loaded."""
    program(programmable, 0)
    programmable.fail_programming()
    with pytest.raises(DriverError):
        program(programmable, 1)
    for driver in (programmable.driver, programmable.again()):
        assert driver.identify(programmable.deployable).state is RegionState.UNKNOWN
