"""QuickAssist cards: their virtual functions and states."""

import pytest

from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec
from moorage.accelerator.drivers.qat import QatDriver
from moorage.accelerator.model.devices import DeviceType, Health
from moorage.accelerator.model.naming import traits_of
from tests.unit.accelerator.drivers.sysfs_tree import Tree


@pytest.fixture
def tree(tmp_path):
    """A card of the fourth generation with two virtual functions, one of the second without any."""
    tree = Tree(tmp_path / "sys")
    tree.bind_nothing_to(VFIO)
    tree.add("0000:6b:00.0", "8086:4940", driver="4xxx", qat__state="up", qat__cfg_services="sym;dc")
    for number in (1, 2):
        tree.add(f"0000:6b:00.{number}", "8086:4941", of="0000:6b:00.0")
    tree.add("0000:3d:00.0", "8086:37c8", driver="c6xx", sriov_totalvfs="16", sriov_numvfs="0")
    return tree


def test_virtual_functions_are_the_handles_of_their_card(tree):
    """R4: one device with a fixed number of functions."""
    old, new = QatDriver((), tree.sysfs()).discover()
    assert (new.type, new.model, new.deployables[0].handles) == (
        DeviceType.QAT, "QuickAssist 4xxx", ("0000:6b:00.1", "0000:6b:00.2"),
    )  # fmt: skip
    assert (old.model, old.deployables[0].handles) == ("QuickAssist C62x", ())


def test_the_services_of_a_qat_card_are_traits(tree):
    new = QatDriver((), tree.sysfs()).discover()[1]
    assert {"CUSTOM_QAT_SERVICE_SYM", "CUSTOM_QAT_SERVICE_DC", "CUSTOM_QAT_INTEL"} <= traits_of(new, new.deployables[0])
    assert dict(new.details) == {"services": "sym;dc"}


def test_a_qat_card_can_be_attached_as_a_whole(tree):
    whole = DeviceSpec(vendor="8086", product="37c8", type="QAT")
    (old,) = QatDriver([whole], tree.sysfs()).discover()
    assert old.deployables[0].handles == ("0000:3d:00.0",)


def test_a_qat_card_in_state_down_has_failed(tree):
    driver = QatDriver((), tree.sysfs())
    assert driver.health("0000:6b:00.0") is Health.OK
    tree.write(tree.devices / "0000:6b:00.0" / "qat" / "state", "down")
    assert driver.health("0000:6b:00.0") is Health.FAILED
    assert driver.health("0000:3d:00.0") is Health.OK  # older cards have no such attribute
