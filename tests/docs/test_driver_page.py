"""The page on writing a driver names the methods, arguments and modules that exist.

`tests/unit/accelerator/drivers/test_conformance.py` runs the page's driver and its bench.
"""

import re
from pathlib import Path

from moorage.accelerator.drivers.base import AcceleratorDriver, CleaningFacts
from moorage.accelerator.drivers.fpga_dfl import FpgaDflDriver
from moorage.accelerator.drivers.fpga_manager import FpgaManagerDriver
from moorage.accelerator.drivers.nvidia import NvidiaDriver
from moorage.accelerator.drivers.opae import OpaeDriver
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.qat import QatDriver
from moorage.accelerator.drivers.simulated import SimulatedAccelerators
from moorage.accelerator.drivers.xrt import XrtDriver
from moorage.accelerator.model.devices import Health
from tests.unit.accelerator.drivers import page
from tests.unit.accelerator.drivers.test_conformance import BENCHES
from tests.unit.accelerator.drivers.test_options import NAMES

ROOT = Path(__file__).parents[2]
TEXT = page.PAGE.read_text()


def test_the_methods_on_the_page_are_those_of_the_driver_interface():
    verbs = {name for name, value in vars(AcceleratorDriver).items() if callable(value) and not name.startswith("_")}
    assert {row.split("(")[0] for row in re.findall(r"^\| `(\w+\([\w, ]*\))` \|", TEXT, re.MULTILINE)} == verbs


def test_the_arguments_on_the_page_are_those_of_the_driver_interface():
    for name, arguments in re.findall(r"^\| `(\w+)\(([\w, ]*)\)` \|", TEXT, re.MULTILINE):
        code = getattr(AcceleratorDriver, name).__code__
        assert ["self", *filter(None, arguments.split(", "))] == list(code.co_varnames[: code.co_argcount])


def test_the_modules_that_the_page_names_exist():
    modules = re.findall(r"^\| `(\w+)\.(\w+)` \|", TEXT, re.MULTILINE)
    assert modules
    for module, name in modules:
        assert re.search(
            rf"^class {name}\b", (ROOT / f"src/moorage/accelerator/drivers/{module}.py").read_text(), re.MULTILINE
        )
    for path in re.findall(r"`((?:src|tests)/[\w./]+)`", TEXT):
        assert (ROOT / path).exists(), path


def test_the_driver_of_the_page_passes_the_conformance_tests():
    assert page.timecard in BENCHES


def test_the_driver_of_the_page_does_not_report_a_card_without_a_satellite(tmp_path, clock):
    bench = page.timecard(tmp_path, clock)
    (gnss,) = tmp_path.rglob("gnss_sync")
    assert bench.driver.health(bench.card) is Health.OK
    gnss.write_text("LOST @ 2026-03-01\n")
    assert bench.driver.health(bench.card) is Health.FAILED


DRIVERS = (
    SimulatedAccelerators, PciDriver, NvidiaDriver, QatDriver, FpgaDflDriver, FpgaManagerDriver, OpaeDriver, XrtDriver
)  # fmt: skip


def cleaning_table() -> str:
    """The table of docs/reference/accelerator-drivers.md, from the drivers; drivers with the same answers share a row."""
    names: dict[CleaningFacts, list[str]] = {}
    for driver in DRIVERS:
        name = getattr(driver, "name", "simulated")
        names.setdefault(driver.cleaning, []).append(f"`{name}`")
    rows = [
        f"| {', '.join(drivers)} | {facts.remains} | {facts.removal} | {facts.check} |"
        for facts, drivers in names.items()
    ]
    head = "| driver | what remains of the last tenant | what removes it | how that is verified |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def test_the_page_of_the_drivers_tells_what_remains_of_a_tenant_what_removes_it_and_how_that_is_verified():
    """Issue 18.5: one answer for each driver, the one in its class."""
    assert cleaning_table() in (ROOT / "docs/reference/accelerator-drivers.md").read_text()
    assert {getattr(driver, "name", "simulated") for driver in DRIVERS} == set(NAMES)
    for driver in DRIVERS:
        facts = driver.cleaning
        assert all((facts.remains, facts.removal, facts.check))
