"""Each driver can be created from its options, and finds nothing on a machine without its cards."""

import re
from types import SimpleNamespace

import pytest

from moorage.core.errors import StartError
from moorage.options import AcceleratorOptions
from moorage.wiring.host import _accelerator_drivers

NAMES = ["simulated", "pci", "nvidia", "qat", "fpga_dfl", "fpga_manager", "opae", "xrt"]


def made(tmp_path, clock, **options):
    config = SimpleNamespace(accelerator=AcceleratorOptions(**options), source=tmp_path / "moorage.conf")
    return _accelerator_drivers(SimpleNamespace(config=config, clock=clock), tmp_path)


def test_every_driver_can_be_named_and_looks_at_this_machine(tmp_path, clock):
    drivers = made(tmp_path, clock, drivers=", ".join(NAMES))
    assert [driver.name for driver in drivers] == NAMES
    for driver in drivers[1:]:
        for device in driver.discover():  # none, as a rule
            assert device.pci_id
    (option,) = (one for one in AcceleratorOptions.__dataclass_fields__.values() if one.name == "drivers")
    assert re.findall(r"[a-z_]+(?=[,.])", option.metadata["help"].partition(":")[2]) == NAMES


def test_a_name_that_is_none_is_refused_with_those_that_there_are(tmp_path, clock):
    with pytest.raises(StartError, match="names toaster; there are simulated, pci, nvidia"):
        made(tmp_path, clock, drivers="toaster")


@pytest.mark.parametrize(
    ("name", "option"),
    [("pci", "pci"), ("nvidia", "nvidia"), ("qat", "qat"), ("fpga_dfl", "fpga"), ("opae", "fpga"), ("xrt", "xrt")],
)
def test_a_bad_spec_is_refused_at_the_start_by_the_name_of_its_option(tmp_path, clock, name, option):
    with pytest.raises(StartError, match=rf"\[accelerator\] {option}_devices, spec 0: vendor is"):
        made(tmp_path, clock, drivers=name, **{f"{option}_devices": '[{"vendor": "Intel"}]'})


def test_a_host_with_every_kind_is_simulated_where_that_is_asked_for(tmp_path, clock):
    usual, every = (
        {str(device.type) for device in made(tmp_path, clock, simulated_devices=which)[0].discover()}
        for which in ("usual", "every_kind")
    )
    assert every - usual == {"HPTS", "VGPU", "QAT"}
