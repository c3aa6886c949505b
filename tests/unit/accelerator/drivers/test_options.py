"""Each driver can be created from its options, and finds nothing on a machine without its cards."""

import re
from types import SimpleNamespace

import pytest

from moorage.core.errors import StartError
from moorage.options.services import AcceleratorOptions
from moorage.wiring.host import _accelerator_drivers

NAMES = ["simulated", "pci", "nvidia", "qat", "fpga_dfl", "fpga_manager", "opae", "xrt"]


def made(tmp_path, clock, **options):
    config = SimpleNamespace(accelerator=AcceleratorOptions(**options), source=tmp_path / "moorage.conf")
    return _accelerator_drivers(SimpleNamespace(config=config, clock=clock), tmp_path)


def test_every_driver_of_the_option_can_be_created_and_run_on_this_machine(tmp_path, clock):
    drivers = made(tmp_path, clock, drivers=", ".join(NAMES))
    assert [driver.name for driver in drivers] == NAMES
    for driver in drivers[1:]:
        for device in driver.discover():  # none on most machines
            assert device.pci_id
    (option,) = (one for one in AcceleratorOptions.__dataclass_fields__.values() if one.name == "drivers")
    assert re.findall(r"[a-z_]+(?=[,.])", option.metadata["help"].partition(":")[2]) == NAMES


def test_an_unknown_driver_name_is_refused_with_the_list_of_known_ones(tmp_path, clock):
    with pytest.raises(StartError, match="names toaster; there are simulated, pci, nvidia"):
        made(tmp_path, clock, drivers="toaster")


@pytest.mark.parametrize(
    ("name", "option"),
    [("pci", "pci"), ("nvidia", "nvidia"), ("qat", "qat"), ("fpga_dfl", "fpga"), ("opae", "fpga"), ("xrt", "xrt")],
)
def test_an_invalid_device_spec_is_a_start_error_that_names_the_option(tmp_path, clock, name, option):
    with pytest.raises(StartError, match=rf"\[accelerator\] {option}_devices, spec 0: vendor is"):
        made(tmp_path, clock, drivers=name, **{f"{option}_devices": '[{"vendor": "Intel"}]'})


def test_the_option_every_kind_simulates_additional_types_of_devices(tmp_path, clock):
    usual, every = (
        {str(device.type) for device in made(tmp_path, clock, simulated_devices=which)[0].discover()}
        for which in ("usual", "every_kind")
    )
    assert every - usual == {"HPTS", "VGPU", "QAT", "NIC"}
