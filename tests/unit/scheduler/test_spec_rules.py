"""Keys that no component honours are refused by name, ignored by choice, or accepted with a value that is true anyway."""

import pytest

from moorage.core.errors import Invalid
from moorage.scheduler.filters import matches
from moorage.scheduler.spec_rules import NO_RULES, SpecRules, guest_settings, pci_alias_groups, refuse_unhonoured
from moorage.scheduler.spec_table import SPECS, HonouredBy


@pytest.mark.parametrize(
    ("specs", "image"),
    [
        ({"hw:mem_encryption": "true"}, {}),
        ({"hw:tpm_version": "2.0"}, {}),
        ({}, {"hw_tpm_model": "tpm-crb"}),
        ({"os:secure_boot": "required"}, {}),
        ({"hw:numa_nodes": "1"}, {}),
        ({"hw:numa_cpus.1": "0"}, {}),
        ({}, {"hw_numa_mem.0": "512"}),
        ({"hw:mem_page_size": "2MB"}, {}),
        ({"hw:pci_numa_affinity_policy": "socket"}, {}),
        ({"hw:cpu_policy": "dedicated"}, {}),
        ({"resources:PCPU": "1"}, {}),
        ({"resources_A:PCPU": "1"}, {}),
        ({"hw:ephemeral_encryption": "yes"}, {}),
        ({}, {"hw_firmware_stateless": "True"}),
        ({}, {"hw_firmware_type": "uefi"}),
        ({"capabilities:cpu_info:arch": "x86_64"}, {}),
        ({"vmware:hw_version": "19"}, {}),
        ({"quota:vif_inbound_peak": "5"}, {}),
    ],
)
def test_a_key_that_no_component_honours_is_refused_by_name(specs, image):
    [(key, value)] = (specs or image).items()
    with pytest.raises(Invalid) as refusal:
        refuse_unhonoured(NO_RULES, specs, image)
    assert f"{key}={value}: no host can apply this, because " in refusal.value.message
    honoured = refuse_unhonoured(SpecRules(frozenset({key})), specs, image)
    assert honoured.ignored == (key,)
    assert {**honoured.extra_specs, **honoured.image_properties} == {f"ignored:{key}": value}


@pytest.mark.parametrize(
    ("specs", "image", "remedy"),
    [
        ({"hw:mem_encyption": "true"}, {}, "correct its name: there is hw:mem_encryption"),
        ({"hw:nuam_nodes": "2"}, {}, "correct its name: there is hw:numa_nodes"),
        ({"quota:disk_bytes_sec": "5"}, {}, "or quota:disk_total_bytes_sec"),
        ({"os:secure_bot": "required"}, {}, "correct its name: there is os:secure_boot"),
        ({"pci_passthrough:aliases": "gpu:1"}, {}, "correct its name: there is pci_passthrough:alias"),
        ({"hw:x": "1"}, {}, "remove it, or correct its name"),
        ({}, {"hw_tpm_modle": "tpm-crb"}, "correct its name: there is hw_tpm_model"),
    ],
)
def test_an_unknown_key_of_a_known_namespace_is_refused_with_similar_keys(specs, image, remedy):
    [(key, value)] = (specs or image).items()
    with pytest.raises(Invalid) as refusal:
        refuse_unhonoured(NO_RULES, specs, image)
    assert f"{key}={value}: no component knows such a key; remove it, or " in refusal.value.message
    assert remedy in refusal.value.message


def test_every_refused_entry_of_the_table_is_refused():
    """With a value that the entry does not list as true of every guest."""
    entries = [entry for entry in SPECS if entry.by is HonouredBy.NOTHING and entry.key != "hw_video:ram_max_mb"]
    for entry in entries:
        for name, as_image in ((entry.key, False), *((one, False) for one in entry.aliases), (entry.image, True)):
            if not name or name in ("hw_rescue_bus", "hw_rescue_device"):
                continue
            given = {name.replace("#", "0").replace("<KEY>", "x"): "7"}
            with pytest.raises(Invalid):
                refuse_unhonoured(NO_RULES, *(({}, given) if as_image else (given, {})))


def test_values_that_are_true_of_every_guest_are_accepted():
    specs = {
        "hw:cpu_policy": "shared", "hw:mem_page_size": "small", "hw:mem_encryption": "False", "os:secure_boot": "disabled",
        "hw:pci_numa_affinity_policy": "preferred", "resources:PCPU": "0", "unknown:key": "1", "plain": "1",
        "unknown": "1",
    }  # fmt: skip
    image = {"hw_disk_bus": "virtio", "os_secure_boot": "optional", "os_distro": "debian", "anything": "x"}
    honoured = refuse_unhonoured(NO_RULES, specs, image)
    assert (honoured.extra_specs, honoured.image_properties, honoured.ignored) == (specs, image, ())


def test_a_former_name_of_an_image_property_is_refused_too():
    with pytest.raises(Invalid, match="image property vm_mode=xen"):
        refuse_unhonoured(NO_RULES, {}, {"vm_mode": "xen"})


def test_properties_for_a_rescue_matter_in_a_rescue_only():
    image = {"hw_rescue_device": "cdrom"}
    assert refuse_unhonoured(NO_RULES, {}, image).ignored == ()
    with pytest.raises(Invalid, match="hw_rescue_device=cdrom"):
        refuse_unhonoured(NO_RULES, {}, image, is_rescue=True)


def test_one_name_lets_the_key_of_the_flavor_and_the_property_of_the_image_through():
    rules = SpecRules(frozenset({"hw:tpm_version"}))
    honoured = refuse_unhonoured(rules, {"hw:tpm_version": "2.0", "a": "b"}, {"hw_tpm_version": "2.0"})
    assert honoured.extra_specs == {"ignored:hw:tpm_version": "2.0", "a": "b"}
    assert honoured.image_properties == {"ignored:hw_tpm_version": "2.0"}
    assert honoured.ignored == ("hw:tpm_version", "hw_tpm_version")
    again = refuse_unhonoured(rules, honoured.extra_specs, honoured.image_properties)
    assert (again.extra_specs, again.ignored) == (honoured.extra_specs, ())


def test_settings_of_the_guest_come_from_flavor_and_image():
    specs = {"hide_hypervisor_id": "yes", "hw:boot_menu": "false", "quota:cpu_shares": " 7", "my:key": "1"}
    image = {
        "hw_watchdog_action": "reset",
        "hw_rng_model": "virtio",
        "img_hide_hypervisor_id": "Yes",
        "os_type": "linux",
    }
    assert guest_settings(specs, image) == {
        "hw:hide_hypervisor_id": "yes", "hw:watchdog_action": "reset", "hw_rng_model": "virtio", "quota:cpu_shares": "7",
    }  # fmt: skip
    assert refuse_unhonoured(NO_RULES, specs, image).ignored == ()
    assert guest_settings({}, {"os_type": "Windows"}) == {"os_type": "Windows"}


@pytest.mark.parametrize(
    ("specs", "image", "said"),
    [
        ({"hw:watchdog_action": "bite"}, {}, "hw:watchdog_action=bite: it takes one of none, pause"),
        ({}, {"hw_rng_model": "quantum"}, "hw_rng_model=quantum: it takes one of virtio"),
        ({"hw:pmu": "on"}, {"hw_pmu": "off"}, "the flavor has hw:pmu=on, the image off"),
    ],
)
def test_settings_that_no_guest_can_have_are_refused(specs, image, said):
    with pytest.raises(Invalid, match=said):
        refuse_unhonoured(NO_RULES, specs, image)


def test_a_pci_alias_becomes_one_group_for_each_device():
    rules = SpecRules(pci_aliases={"gpu": "CUSTOM_ACCELERATOR_GPU", "codec": "gzip"})
    profile = [{"resources:CUSTOM_ACCELERATOR_FPGA": "1"}, {"resources:CUSTOM_ACCELERATOR_NIC": "1"}]
    gpu = {"resources:CUSTOM_ACCELERATOR_GPU": "1"}
    assert pci_alias_groups(rules, "gpu:2, codec:1", {"gzip": profile}.__getitem__) == [gpu, gpu, *profile]


@pytest.mark.parametrize("value", ["gpu", "gpu:0", "gpu:x", "gpu:1,", "gpu:65", "gpu:\u0661", "other:1", ""])
def test_an_alias_that_is_not_configured_is_refused(value):
    with pytest.raises(Invalid, match="pci_passthrough:alias="):
        pci_alias_groups(SpecRules(pci_aliases={"gpu": "CUSTOM_ACCELERATOR_GPU"}), value, lambda _: [])


@pytest.mark.parametrize(
    ("offered", "wanted", "met"),
    [
        ("ssd", "ssd", True), ("ssd", "hdd", False), ("12", "= 10", True), ("9", "= 10", False), ("10", "== 10.0", True),
        ("10", "!= 10", False), ("x", "== 10", False), ("10", "<= 9", False), ("abc", "s== abc", True),
        ("abc", "s!= abc", False), ("b", "s< c", True), ("b", "s>= c", False), ("ssd-fast", "<in> fast", True),
        ("ssd-fast", "<in> slow", False), ("ssd fast", "<all-in> fast ssd", True), ("ssd", "<all-in> ssd fast", False),
        ("b", "<or> a <or> b", True), ("c", "<or> a <or> b", False),
    ],
)  # fmt: skip
def test_the_operators_of_aggregate_instance_extra_specs(offered, wanted, met):
    assert matches(offered, wanted) is met
