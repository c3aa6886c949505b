"""The guide to reservations and its reference agree with the code."""

import re

import pytest

from moorage.core.errors import Invalid
from moorage.reservation.api.schemas.reservation import decode_affinity
from moorage.reservation.capacity.resource_types.registry import TYPES
from moorage.reservation.model import property_query
from moorage.reservation.model.leases import HOST_PROPERTIES
from moorage.reservation.service import PLACEMENT_VERSION
from tests.docs.named import ROOT

PAGE = "".join((ROOT / "docs" / part / "reservations.md").read_text() for part in ("guides", "reference"))


def test_the_page_describes_every_value_of_affinity():
    """R37 (instance-reservation): it is optional, and the guide describes each value."""
    rows = dict(re.findall(r"^\| (not given.*|`true`|`false`) \| (are|go) ", PAGE, re.MULTILINE))
    assert len(rows) == 3
    assert [decode_affinity(value) for value in (None, "None", True, False, "True", "no", "0")] == [
        None, None, True, False, True, False, False,
    ]  # fmt: skip
    with pytest.raises(Invalid):
        decode_affinity("sometimes")


def test_the_queries_of_the_page_are_valid():
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    found = [property_query.parse(line) for line in block.splitlines()]
    assert len(found) == 4


def test_the_page_lists_the_operators_limits_and_properties_of_the_code():
    (said,) = re.findall(r"^Operators: (.*)\. Two numbers", PAGE, re.MULTILINE)
    assert re.findall(r"`([^`]+)`", said) == [*property_query.OPERATORS, "in", "and", "or", "not"]
    bounds = f"At most {property_query.MAX_DEPTH} levels, {property_query.MAX_COMPARISONS} comparisons and {property_query.MAX_TEXT} characters"
    assert bounds in PAGE
    (columns,) = re.findall(r"own columns \((.*?)\)", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", columns)) == HOST_PROPERTIES


def test_the_page_lists_the_resource_types_and_the_required_microversion():
    assert all(f"`{kind}`" in PAGE for kind in TYPES)
    assert f"Placement must speak {PLACEMENT_VERSION} or newer" in PAGE
