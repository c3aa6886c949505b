"""The page on writing a driver names the methods, arguments and modules that exist.

`tests/unit/accelerator/drivers/test_conformance.py` runs the page's driver and its bench.
"""

import re
from pathlib import Path

from moorage.accelerator.drivers.base import AcceleratorDriver
from moorage.accelerator.model.devices import Health
from tests.unit.accelerator.drivers import page
from tests.unit.accelerator.drivers.test_conformance import BENCHES

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
