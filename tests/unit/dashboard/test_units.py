"""Amounts are shown with the unit that people use."""

import pytest

from moorage.dashboard.views.units import amount_text, class_words, flavor_size


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("MEMORY_MB", 451_584, "441 GiB"), ("MEMORY_MB", 32_256, "31.5 GiB"), ("MEMORY_MB", 512, "512 MiB"),
        ("MEMORY_MB", 1536, "1.5 GiB"), ("MEMORY_MB", 0, "0"), ("DISK_GB", 500, "500 GiB"), ("DISK_GB", 1024, "1 TiB"),
        ("DISK_GB", 9_800, "9,800 GiB"), ("DISK_GB", 12_288, "12 TiB"), ("VCPU", 10_000, "10,000"),
        ("CUSTOM_LICENCE", 3, "3"),
    ],
)  # fmt: skip
def test_an_amount_has_the_unit_of_its_class(name, amount, text):
    assert amount_text(name, amount) == text


def test_a_class_is_named_in_words():
    assert [class_words(name) for name in ("MEMORY_MB", "HOSTS", "CUSTOM_FAST_SCRATCH")] == [
        "Memory", "Whole hosts", "Fast scratch"
    ]  # fmt: skip


def test_the_size_of_a_flavor_is_one_phrase():
    assert flavor_size(2, 4096, 20) == "2 VCPU, 4 GiB, 20 GiB disk"
