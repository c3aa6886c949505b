import pytest

from moorage.core.errors import Invalid, NotAcceptable
from moorage.wire.microversion import Version, VersionRange, parse_version

RANGE = VersionRange("placement", Version(1, 0), Version(1, 39))


@pytest.mark.parametrize("text", ["1.0", "1.39", "2.96", "10.100"])
def test_a_microversion_of_two_numbers_is_parsed(text):
    assert str(parse_version(text)) == text


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "01.1", "1.01", "0.1", "1.1.1", "v1.1", "1.1\n", "latest"])
def test_a_text_that_is_no_microversion_is_refused(text):
    with pytest.raises(Invalid):
        parse_version(text)


def test_microversions_are_compared_as_numbers():
    assert parse_version("1.10") > parse_version("1.9")


@pytest.mark.parametrize("header", [None, "", "compute 2.1", "placement", "1.5", "x placement 1.5"])
def test_without_a_version_for_the_service_the_minimum_applies(header):
    assert RANGE.negotiate(header) == (1, 0)


def test_of_several_versions_in_the_header_the_last_applies():
    assert RANGE.negotiate("placement 1.5, placement 1.6") == (1, 6)


@pytest.mark.parametrize("text", ["1.40", "2.0", "1.999"])
def test_an_unsupported_microversion_is_refused_with_the_range(text):
    with pytest.raises(NotAcceptable) as caught:
        RANGE.negotiate(f"placement {text}")
    assert caught.value.fields == {"min_version": "1.0", "max_version": "1.39"}


def test_a_version_without_service_name_applies_only_if_the_range_allows_it():
    bare = VersionRange("accelerator", Version(2, 0), Version(2, 3), bare_allowed=True, announces_range=True)
    assert bare.negotiate("2.1") == (2, 1)
    assert bare.response_headers(Version(2, 1)) == {
        "openstack-api-version": "accelerator 2.1",
        "vary": "openstack-api-version",
        "openstack-api-minimum-version": "2.0",
        "openstack-api-maximum-version": "2.3",
    }
