import pytest
from os_resource_classes import normalize_name

from moorage.core.names import custom_name, is_custom, is_reservation_class, reservation_class


@pytest.mark.parametrize("name", ["CUSTOM_A", "CUSTOM__", "CUSTOM_0", "CUSTOM_" + "A" * 248])
def test_valid_custom_names_are_accepted(name):
    assert is_custom(name)


@pytest.mark.parametrize(
    "name",
    ["", "CUSTOM_", "VCPU", "custom_a", "CUSTOM_a", "CUSTOM_A-B", "CUSTOM_A\n", "CUSTOM_É", "CUSTOM_" + "A" * 249],
)
def test_invalid_custom_names_are_not_accepted(name):
    assert not is_custom(name)


@pytest.mark.parametrize("text", ["baremetal.gold-2", "gold", "a--b", "LLC", "with space", "x_y", "ünï"])
def test_a_text_is_normalized_to_the_same_custom_name_as_in_nova(text):
    assert custom_name(text) == normalize_name(text)
    assert is_custom(custom_name(text))


def test_the_resource_class_of_a_reservation_is_recognised():
    name = reservation_class("4d17d41a-830d-47b2-91c7-4f9fc0ae611e")
    assert name == "CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E"
    assert is_custom(name)
    assert is_reservation_class(name)
    assert not is_reservation_class("CUSTOM_LLC")
