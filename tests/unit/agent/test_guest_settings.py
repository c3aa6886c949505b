"""Every setting of a guest that the table gives to the virt driver is in the definition, which libvirt accepts."""

import shutil
import subprocess

import pytest

from moorage.agent.virt.domain_xml import RENDERERS, DomainDisk, GuestPaths, parse_domain, read_xml, render_domain
from moorage.agent.virt.driver import DomainSpec, VirtError
from moorage.scheduler.spec_table import SPECS, HonouredBy

A = "aaaaaaaa-0000-4000-8000-000000000000"
PARTS = GuestPaths(disks=(DomainDisk("/a", "qcow2"), DomainDisk("/b", "raw", read_only=True)))
ALL = {
    "hw:boot_menu": "true", "hw:hide_hypervisor_id": "Yes", "hw:pmu": "off", "hw:watchdog_action": "reset",
    "hw_rng:allowed": "1", "hw_rng:rate_bytes": "64", "hw_rng:rate_period": "10", "hw_rng_model": "virtio",
    "quota:cpu_shares": "100", "quota:cpu_period": "2000", "quota:cpu_quota": "1500",
    "os_type": "windows", "quota:disk_read_bytes_sec": "10", "quota:disk_write_iops_sec": "20",
}  # fmt: skip


def spec(settings):
    return DomainSpec(A, "a", 1, 64, settings=tuple(sorted(settings.items())))


def definition(settings):
    return read_xml(render_domain(spec(settings), parts=PARTS), "the definition")


def test_the_driver_renders_what_the_table_gives_it():
    assert {entry.key or entry.image for entry in SPECS if entry.by is HonouredBy.DRIVER} == set(RENDERERS)


def test_a_definition_is_read_back_with_its_settings():
    assert parse_domain(render_domain(spec(ALL), parts=PARTS)) == spec(ALL)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"hw:boot_menu": "on"}, "os/bootmenu[@enable='yes']"),
        ({"hw:hide_hypervisor_id": "true"}, "features/kvm/hidden[@state='on']"),
        ({"hw:pmu": "false"}, "features/pmu[@state='off']"),
        ({"hw:watchdog_action": "pause"}, "devices/watchdog[@action='pause']"),
        ({"quota:cpu_shares": "5"}, "cputune[shares='5']"),
        ({"quota:disk_total_bytes_sec": "5"}, "devices/disk[2]/iotune[total_bytes_sec='5']"),
        ({"os_type": "Windows"}, "clock[@offset='localtime']"),
        ({"hw_rng_model": "virtio"}, "devices/rng[backend='/dev/urandom']"),
        ({"hw_rng:allowed": "true", "hw_rng:rate_bytes": "5"}, "devices/rng/rate[@bytes='5']"),
    ],
)
def test_a_setting_becomes_an_element(settings, path):
    assert definition(settings).find(path) is not None
    assert definition({}).find(path) is None


def test_a_flavor_can_forbid_the_random_numbers_that_an_image_wants():
    assert definition({"hw_rng:allowed": "False", "hw_rng_model": "virtio"}).find("devices/rng") is None


def test_an_unknown_setting_ends_the_build():
    with pytest.raises(VirtError, match="hw:new=1; update the agent"):
        definition({"hw:new": "1"})


@pytest.mark.skipif(shutil.which("virt-xml-validate") is None, reason="libvirt's schema is not installed")
def test_the_schema_of_libvirt_accepts_all_settings(tmp_path):
    path = tmp_path / "domain.xml"
    path.write_bytes(render_domain(spec(ALL), parts=PARTS))
    subprocess.run(["virt-xml-validate", path, "domain"], check=True)
