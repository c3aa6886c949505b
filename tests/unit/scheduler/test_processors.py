"""Dedicated processors: each row of Nova's table about ``hw:cpu_policy``, and invalid combinations."""

import pytest

from moorage.core.errors import Invalid
from moorage.scheduler.flavor_resources import FlavorFields, request_for


def asked(specs, vcpus=4, **image):
    """({PCPU or VCPU: amount}, the group) of the group without a suffix."""
    group = request_for(FlavorFields(vcpus, 512, 0, extra_specs=specs), image).groups[""]
    return {name: group.resources[name] for name in ("PCPU", "VCPU") if name in group.resources}, group


def test_dedicated_processors_are_requested_as_pcpu():
    assert asked({"hw:cpu_policy": "dedicated"})[0] == {"PCPU": 4}
    assert asked({"hw:cpu_policy": "shared"})[0] == {"VCPU": 4}


def test_isolated_emulator_threads_request_one_more_processor():
    specs = {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"}
    assert asked(specs)[0] == {"PCPU": 5}


@pytest.mark.parametrize(
    ("mask", "dedicated"), [("2-3", 2), ("^0", 3), ("^0-1", 2), ("0-2,^1", 2), ("0,3", 2), (" 1 , 2 ", 2)]
)
def test_a_dedicated_mask_divides_the_processors_into_pcpu_and_vcpu(mask, dedicated):
    specs = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": mask}
    assert asked(specs)[0] == {"PCPU": dedicated, "VCPU": 4 - dedicated}


def test_the_thread_policy_requires_or_forbids_hyperthreading():
    _, isolated = asked({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "isolate"})
    assert (isolated.required, isolated.forbidden) == ((), ("HW_CPU_HYPERTHREADING",))
    _, together = asked({"hw:cpu_policy": "dedicated", "hw:cpu_thread_policy": "require"})
    assert (together.required, together.forbidden) == (("HW_CPU_HYPERTHREADING",), ())


def test_the_cpu_policy_of_the_image_applies_if_the_flavor_has_none():
    assert asked({}, hw_cpu_policy="dedicated")[0] == {"PCPU": 4}
    assert asked({"hw:cpu_policy": "dedicated"}, hw_cpu_policy="dedicated")[0] == {"PCPU": 4}
    with pytest.raises(Invalid, match="the flavor has hw:cpu_policy=shared"):
        asked({"hw:cpu_policy": "shared"}, hw_cpu_policy="dedicated")


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ({"hw:cpu_policy": "pinned"}, "hw:cpu_policy=pinned: use shared, dedicated or mixed"),
        ({"hw:cpu_policy": "dedicated", "resources:PCPU": "4"}, "keep one of them"),
        ({"hw:cpu_policy": "shared", "resources:VCPU": "0"}, "keep one of them"),
        ({"hw:cpu_policy": "mixed"}, "needs hw:cpu_dedicated_mask"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-3"}, "some but not all of the processors"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "7"}, "some but not all of the processors 0 to 3"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "one"}, "write numbers and ranges"),
        ({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-99999999999"}, "write numbers and ranges"),
        ({"hw:cpu_dedicated_mask": "1"}, "needs hw:cpu_policy=mixed"),
        ({"hw:emulator_threads_policy": "isolate"}, "add hw:cpu_policy=dedicated"),
        ({"hw:cpu_thread_policy": "isolate"}, "add hw:cpu_policy=dedicated"),
        (
            {
                "hw:cpu_policy": "dedicated",
                "hw:cpu_thread_policy": "isolate",
                "trait:HW_CPU_HYPERTHREADING": "required",
            },
            "HW_CPU_HYPERTHREADING is both required and forbidden",
        ),
    ],
)
def test_an_invalid_combination_of_cpu_options_is_refused_with_the_reason(specs, said):
    with pytest.raises(Invalid) as refusal:
        asked(specs)
    assert said in refusal.value.message


def test_each_name_of_persistent_memory_is_requested_as_its_own_class():
    request = request_for(FlavorFields(1, 512, 0, extra_specs={"hw:pmem": "4GB,4GB,1TB"}))
    amounts = request.groups[""].resources
    assert (amounts["CUSTOM_PMEM_NAMESPACE_4GB"], amounts["CUSTOM_PMEM_NAMESPACE_1TB"]) == (2, 1)
    with pytest.raises(Invalid, match="names consist of A-Z"):
        request_for(FlavorFields(1, 512, 0, extra_specs={"hw:pmem": "4gb"}))
