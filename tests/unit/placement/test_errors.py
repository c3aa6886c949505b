"""The shape of errors, down to the blanks. Source: reference/placement.md, section 5."""

import pytest

from moorage.core import errors as e
from moorage.placement.accept import quality
from moorage.placement.error_shape import error_shape
from moorage.wire.errors import problem_of
from moorage.wire.microversion import Version

NEWEST = Version(1, 39)


def shape(error, accept="*/*"):
    return error_shape(problem_of(error, "req-1", accept, NEWEST))


def detail(error):
    return shape(error).body["errors"][0]["detail"]


def test_tags_and_line_breaks_leave_the_message():
    start = "The server could not comply with the request since it is either malformed or otherwise incorrect."
    assert detail(e.Invalid("a\nb <class 'x'> c")) == f"{start}\n\n a b  c  "


def test_a_route_that_is_not_there_has_no_message():
    assert detail(e.NotFound("The resource could not be found.")) == "The resource could not be found.\n\n   "


def test_405_and_406_are_worded_differently():
    assert detail(e.MethodNotAllowed("The method PUT is not allowed for this resource.", allowed="GET")) == (
        "The method PUT is not allowed for this resource. \n\n The method specified is not allowed for this resource."
    )
    assert detail(e.NotAcceptable("no")) == (
        "The resource could not be generated that was acceptable to your browser (content of type */*. \n\n no"
    )


def test_only_codes_of_the_peer_leave_the_house():
    assert shape(e.Conflict("x")).body["errors"][0]["code"] == "placement.undefined_code"
    assert (
        shape(e.Conflict("x", code="placement.duplicate_name")).body["errors"][0]["code"] == "placement.duplicate_name"
    )


def test_html_is_escaped():
    reply = shape(e.Invalid('say "a" & b'), accept="text/html")
    assert b"say &quot;a&quot; &amp; b" in reply.body


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json", 1.0),
        ("*/*;q=0.5", 0.5),
        ("application/*;q=0.3,*/*", 0.3),
        ("text/html", 0.0),
        ("application/json;q=0,*/*", 0.0),
        ("application/json;q=x", 0.0),
    ],
)
def test_the_most_special_range_counts(accept, expected):
    assert quality(accept, "application/json") == expected
