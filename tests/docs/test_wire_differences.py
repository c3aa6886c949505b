"""docs/wire/differences.md and the comparisons that it explains name the same differences."""

import re
from pathlib import Path

from tests.conformance.explained import EXPLAINED
from tests.differential.known import KNOWN

PAGE = Path(__file__).parents[2] / "docs" / "wire" / "differences.md"


def test_the_page_explains_exactly_the_differences_that_the_comparisons_allow():
    assert re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE) == [one.heading for one in (*EXPLAINED, *KNOWN)]
