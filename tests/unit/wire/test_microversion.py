import pytest

from moorage.core.errors import Invalid, NotAcceptable
from moorage.wire.microversion import Version, VersionRange, parse_version

RANGE = VersionRange("placement", Version(1, 0), Version(1, 39))


@pytest.mark.parametrize("text", ["1.0", "1.39", "2.96", "10.100"])
def test_versions_are_two_numbers(text):
    assert str(parse_version(text)) == text


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "01.1", "1.01", "0.1", "1.1.1", "v1.1", "1.1\n", "latest"])
def test_other_texts_are_no_versions(text):
    with pytest.raises(Invalid):
        parse_version(text)


def test_versions_compare_as_numbers():
    assert parse_version("1.10") > parse_version("1.9")


@pytest.mark.parametrize("header", [None, "", "compute 2.1", "placement", "1.5", "x placement 1.5"])
def test_a_header_that_says_nothing_to_us_gives_the_minimum(header):
    assert RANGE.negotiate(header) == (1, 0)


def test_the_last_word_counts():
    assert RANGE.negotiate("placement 1.5, placement 1.6") == (1, 6)


@pytest.mark.parametrize("text", ["1.40", "2.0", "1.999"])
def test_a_version_outside_is_refused_with_the_range(text):
    with pytest.raises(NotAcceptable) as caught:
        RANGE.negotiate(f"placement {text}")
    assert caught.value.fields == {"min_version": "1.0", "max_version": "1.39"}


def test_a_bare_version_counts_only_where_the_peer_takes_it():
    bare = VersionRange("accelerator", Version(2, 0), Version(2, 3), bare_allowed=True, announces_range=True)
    assert bare.negotiate("2.1") == (2, 1)
    assert bare.response_headers(Version(2, 1)) == {
        "openstack-api-version": "accelerator 2.1",
        "vary": "openstack-api-version",
        "openstack-api-minimum-version": "2.0",
        "openstack-api-maximum-version": "2.3",
    }
