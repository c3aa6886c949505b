"""docs/wire/differences.md and the comparisons that it explains name the same differences. The test of its table of
reservations is in `tests/wire/reservation/test_recorded.py`.
"""

import json
import re
from pathlib import Path

import pytest

from tests.conformance.explained import EXPLAINED
from tests.differential.known import KNOWN

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "wire" / "differences.md"

#: {directory below tests/wire: its section, and the peer}
SERVICES = {
    "reservation": ("Reservations", "Blazar"),
    "compute": ("Compute", "Nova"),
    "accelerator": ("Accelerators", "Cyborg"),
    "images": ("Images", "Glance"),
}


def test_the_page_explains_exactly_the_differences_that_the_comparisons_allow():
    assert re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE) == [one.heading for one in (*EXPLAINED, *KNOWN)]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_without_recorded_requests_says_so(service):
    heading, peer = SERVICES[service]
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    is_recorded = any((ROOT / "tests" / "wire" / service).glob("recorded*"))
    assert (f"No requests were recorded with {peer}" in section) is not is_recorded
    assert section


def test_the_page_has_the_number_of_requests_of_compute():
    """`tests/wire/compute/test_recorded.py` fails if one of them differs."""
    rows = json.loads((ROOT / "tests" / "wire" / "compute" / "recorded.json").read_text())
    assert f"the {len(rows)} requests that were recorded with OpenStack Nova" in PAGE.read_text().replace("\n", " ")
