"""Extra specs of known namespaces, accepted and refused as in Nova 34 from microversion 2.86 on."""

import pytest

from moorage.core.errors import Invalid
from moorage.scheduler.extra_specs import check_known_specs


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:boot_menu": "Yes"},
        {"hw:cpu_cores": " 1"},
        {"hw:numa_mem.1": "5", "hw:numa_cpus.0": "0-3,^1"},
        {"hw:pmem": "4GB,"},
        {"hw:mem_page_size": "2MB"},
        {"hw:redirected_usb_ports": "15"},
        {"accel:device_profile": "fpga-1"},
        {"unknown:namespace": "1", "no_namespace": "1", "quota:cpu_shares": "5"},
    ],
)
def test_extra_specs_that_nova_accepts_are_accepted(specs):
    check_known_specs(specs)


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ({"hw:boot_menu": "enabled"}, "hw:boot_menu=enabled: this extra spec takes true or false"),
        ({"hw:cpu_cores": "0"}, "takes a whole number from 1"),
        ({"hw:cpu_policy": "x"}, "takes one of shared, dedicated, mixed"),
        ({"hw:numa_cpus.0": "0-"}, "takes processors"),
        ({"hw:redirected_usb_ports": "16"}, "from 0 to 15"),
        ({"hw:cpu_polcy": "shared"}, "there is no such extra spec; there is hw:cpu_policy"),
        ({"hw:foo": "1"}, "hw:foo: there is no such extra spec"),
        ({"hw:numa_mem.x": "1"}, "there is no such extra spec; there is hw:numa_mem.#"),
        ({"accel:x": "1"}, "accel:x: there is no such extra spec"),
        ({"quota:x": "1"}, "quota:x: there is no such extra spec"),
        ({"os:x": "1"}, "os:x: there is no such extra spec"),
        ({"hw_rng:x": "1"}, "hw_rng:x: there is no such extra spec"),
    ],
)
def test_extra_specs_that_nova_refuses_are_refused_with_advice(specs, said):
    with pytest.raises(Invalid) as refusal:
        check_known_specs(specs)
    assert said in refusal.value.message
