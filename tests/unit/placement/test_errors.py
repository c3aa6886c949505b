"""The exact format of errors in OpenStack Placement. Source: reference/placement.md, section 5."""

import pytest

from moorage.core import errors as e
from moorage.placement.api.error_shape import error_shape
from moorage.placement.api.schemas.allocation import POST
from moorage.wire.errors import problem_of
from moorage.wire.microversion import Version, VersionRange

NEWEST = Version(1, 39)


def shape(error, accept="*/*"):
    return error_shape(problem_of(error, "req-1", accept, NEWEST))


def detail(error):
    return shape(error).body["errors"][0]["detail"]


def test_tags_and_line_breaks_are_removed_from_a_message():
    start = "The server could not comply with the request since it is either malformed or otherwise incorrect."
    assert detail(e.Invalid("a\nb <class 'x'> c")) == f"{start}\n\n a b  c  "


def test_the_error_of_an_unknown_route_has_only_the_standard_text():
    assert detail(e.NotFound("The resource could not be found.")) == "The resource could not be found.\n\n   "


def test_the_errors_405_406_and_415_have_their_own_texts():
    assert detail(e.MethodNotAllowed("The method PUT is not allowed for this resource.", allowed="GET")) == (
        "The method PUT is not allowed for this resource. \n\n The method specified is not allowed for this resource."
    )
    assert detail(e.NotAcceptable("no")) == (
        "The resource could not be generated that was acceptable to your browser (content of type application/json. \n\n no"
    )
    assert detail(e.UnsupportedMedia("use JSON", media_type="text/csv")) == (
        "The request media type text/csv is not supported by this server. \n\n use JSON"
    )


def test_the_error_of_an_unsupported_microversion_has_the_range_in_separate_fields():
    versions = VersionRange("placement", Version(1, 0), NEWEST, loose=True)
    with pytest.raises(e.NotAcceptable) as caught:
        versions.negotiate("placement 0.5")
    error = shape(caught.value).body["errors"][0]
    assert error["detail"].endswith("\n\n Invalid microversion: Unacceptable version header: 0.5")
    assert (error["min_version"], error["max_version"]) == ("1.0", "1.39")
    with pytest.raises(e.Invalid) as caught:
        versions.negotiate("placement 1.2.3")
    assert detail(caught.value).endswith("\n\n Invalid microversion: invalid version string: 1.2.3  ")


def test_an_error_in_html_keeps_the_line_breaks_of_the_message():
    body = shape(e.Invalid("a\nb"), accept="text/html").body.decode()
    assert body.endswith("otherwise incorrect.<br /><br />\na\nb\n\n\n </body>\n</html>")
    body = shape(e.NotAcceptable("no"), accept="text/html,<script>").body.decode()
    assert body.endswith("browser\n(content of type text/html,&lt;script&gt;. <br /><br />\nno\n </body>\n</html>")


def test_of_two_faults_in_an_allocation_the_unexpected_field_is_reported():
    schema = POST.for_version(NEWEST)
    with pytest.raises(e.Invalid, match="'cow' was unexpected"):
        schema.validate({"01234567-89ab-4def-8123-456789abcdef": {"cow": 1}}, str)


def test_error_codes_that_openstack_placement_does_not_have_are_replaced():
    assert shape(e.Conflict("x")).body["errors"][0]["code"] == "placement.undefined_code"
    assert (
        shape(e.Conflict("x", code="placement.duplicate_name")).body["errors"][0]["code"] == "placement.duplicate_name"
    )


def test_the_message_of_an_html_error_is_escaped():
    reply = shape(e.Invalid('say "a" & b'), accept="text/html")
    assert b"say &quot;a&quot; &amp; b" in reply.body
