"""The options of quotas: their defaults, and a start error for an invalid limit."""

from dataclasses import replace

import pytest

from moorage.config import Config
from moorage.core.errors import StartError
from moorage.wiring.services import _quotas


def quotas(**options):
    config = Config()
    return _quotas(replace(config, compute=replace(config.compute, **options)))


def test_the_default_limits_are_those_of_nova():
    limits = quotas()
    assert (limits["instances"], limits["cores"], limits["ram"]) == (10, 20, 51200)


def test_limits_of_resource_classes_are_read_from_one_option():
    limits = quotas(quota_cores=-1, quota_classes="CUSTOM_GOLD=4, VGPU = 2,")
    assert (limits["cores"], limits["class:CUSTOM_GOLD"], limits["class:VGPU"]) == (-1, 4, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"quota_classes": "gold=4"},
        {"quota_classes": "CUSTOM_GOLD"},
        {"quota_classes": "VGPU=x"},
        {"quota_instances": -2},
    ],
)
def test_an_invalid_limit_is_a_start_error(options):
    with pytest.raises(StartError, match=r"\[compute\]"):
        quotas(**options)
