"""Wherever a flavor or an image comes in, a key that no component honours is refused by name; the server stays."""

from dataclasses import asdict, replace

import pytest

from moorage.compute.store import server_store
from moorage.core.errors import StartError
from tests.wire.operations.conftest import GPU

TPM = {"hw:tpm_version": "2.0"}
REFUSED = "=2.0: no host can apply this, because guests have no TPM"


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(2)


@pytest.fixture
def server_id(cloud):
    return cloud.boot("small")


def message(answer):
    status, body = answer[:2]
    assert status == 400, answer
    return body["badRequest"]["message"]


def make_old(cloud, server_id):
    """Gives the server a key, as if it had been created before such keys were refused."""
    with cloud.engine.begin() as connection:
        server = server_store.server(connection, server_id)
        flavor = replace(server.flavor, extra_specs={**server.flavor.extra_specs, **TPM})
        server_store.update_server(connection, server_id, cloud.clock.now(), flavor=asdict(flavor))


def test_a_new_server_is_refused(cloud):
    cloud.flavor("tpm", TPM)
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": "tpm", "networks": "none"}
    assert f"extra spec hw:tpm_version{REFUSED}" in message(cloud.send("POST", "/v2.1/servers", {"server": body}))
    body |= {"imageRef": cloud.make_image("tpm", hw_tpm_version="2.0"), "flavorRef": "small"}
    assert f"image property hw_tpm_version{REFUSED}" in message(cloud.send("POST", "/v2.1/servers", {"server": body}))


def test_a_resize_a_rebuild_and_a_rescue_are_refused(cloud, server_id):
    cloud.flavor("tpm", TPM)
    image = cloud.make_image("tpm", hw_tpm_version="2.0")
    before = cloud.show(server_id)
    assert f"extra spec hw:tpm_version{REFUSED}" in message(cloud.act(server_id, "resize", {"flavorRef": "tpm"}))
    for action, argument in (("rebuild", {"imageRef": image}), ("rescue", {"rescue_image_ref": image})):
        assert f"image property hw_tpm_version{REFUSED}" in message(cloud.act(server_id, action, argument))
    assert cloud.show(server_id) == before


def test_an_older_server_with_such_a_key_is_not_migrated_or_unshelved(cloud, server_id):
    make_old(cloud, server_id)
    for action, argument in (("migrate", None), ("os-migrateLive", {"host": None, "block_migration": "auto"})):
        assert REFUSED in message(cloud.admin_act(server_id, action, argument))
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)
    cloud.do(server_id, "shelve")
    assert REFUSED in message(cloud.act(server_id, "unshelve"))
    assert cloud.status(server_id)[:2] == ("SHELVED_OFFLOADED", None)


def test_an_older_server_is_not_evacuated(cloud, server_id):
    make_old(cloud, server_id)
    cloud.take_down(cloud.hosts[cloud.status(server_id)[2]])
    before = cloud.status(server_id)
    assert f"extra spec hw:tpm_version{REFUSED}" in message(cloud.admin_act(server_id, "evacuate", {}))
    assert cloud.status(server_id) == before


def test_an_older_server_is_evacuated_if_the_operator_ignores_its_keys_and_its_flavor_says_so(make_cloud):
    cloud = make_cloud(2, ignored_extra_specs="hw:tpm_version")
    server_id = cloud.boot("small")
    make_old(cloud, server_id)
    cloud.take_down(cloud.hosts[cloud.status(server_id)[2]])
    cloud.admin_do(server_id, "evacuate", {})
    assert cloud.status(server_id)[:2] == ("SHUTOFF", None)
    assert cloud.show(server_id)["flavor"]["extra_specs"] == {"ignored:hw:tpm_version": "2.0"}


def test_an_unknown_key_of_the_hypervisor_s_namespaces_is_refused_too(cloud):
    """Below microversion 2.86 a flavor may have a misspelt key; its servers would lack what it was meant to ask for."""
    specs = {"extra_specs": {"hw:mem_encyption": "true"}}
    flavor = cloud.flavor("typo")
    assert cloud.admin("POST", f"/v2.1/flavors/{flavor}/os-extra_specs", specs, version="2.61")[0] == 200
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": flavor, "networks": "none"}
    said = "hw:mem_encyption=true: no component knows such a key; remove it, or correct its name: there is hw:mem_encryption"
    assert said in message(cloud.send("POST", "/v2.1/servers", {"server": body}))
    server_id = cloud.boot("small")
    image = cloud.make_image("typo", hw_tpm_modle="tpm-crb")
    said = "image property hw_tpm_modle=tpm-crb: no component knows such a key; remove it, or correct its name: there is hw_tpm_model"
    assert said in message(cloud.act(server_id, "rebuild", {"imageRef": image}))


@pytest.mark.parametrize("action", ["resize", "unshelve"])
def test_the_alias_of_a_resized_or_unshelved_server_attaches_its_devices(make_cloud, action):
    cloud = make_cloud(1, pci_aliases=f"gpu={GPU}", allow_resize_to_same_host=True)
    flavor = cloud.flavor("alias", {"pci_passthrough:alias": "gpu:1"})
    if action == "resize":
        server_id = cloud.boot("small")
        cloud.do(server_id, "resize", {"flavorRef": flavor})
        cloud.do(server_id, "confirmResize")
    else:
        server_id = cloud.boot(flavor)
        cloud.do(server_id, "shelve")
        assert cloud.held(server_id) == {}
        cloud.do(server_id, "unshelve")
    status, _, name = cloud.status(server_id)
    assert status == "ACTIVE"
    assert cloud.held(server_id)[name][GPU] == 1
    assert len(cloud.hosts[name].plugged[server_id]) == 1


def test_a_key_that_the_operator_lets_through_has_no_effect_and_says_so(make_cloud):
    cloud = make_cloud(2, ignored_extra_specs="hw:tpm_version, hw_vif_model")
    cloud.flavor("tpm", TPM)
    image = cloud.make_image("nic", hw_vif_model="e1000", hw_tpm_version="2.0")
    server_id = cloud.boot("tpm", imageRef=image)
    assert cloud.status(server_id)[0] == "ACTIVE"
    assert cloud.show(server_id)["flavor"]["extra_specs"] == {"ignored:hw:tpm_version": "2.0"}
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id)[0] == "VERIFY_RESIZE"


def test_an_image_of_a_server_asks_for_what_the_server_s_image_asked_for(make_cloud):
    """Otherwise servers of the copy would lack it silently."""
    cloud = make_cloud(1, ignored_extra_specs="hw:tpm_version")
    asked = {"hw_watchdog_action": "reset", "hw_tpm_version": "2.0", "img_config_drive": "mandatory"}
    server_id = cloud.boot("small", imageRef=cloud.make_image("origin", os_distro="debian", img_signature="x", **asked))
    copy = cloud.do(server_id, "createImage", {"name": "copy", "metadata": {"hw_watchdog_action": "pause"}})["image_id"]
    record = cloud.image_record(copy)
    shown = {name: value for name, value in record.properties.items() if name.startswith(("hw_", "img_", "os_", "ign"))}
    assert shown == {**asked, "hw_watchdog_action": "pause"}
    assert cloud.show(cloud.boot("small", imageRef=copy))["config_drive"] == "True"


def test_an_image_that_needs_a_config_drive_gets_one(cloud):
    image = cloud.make_image("drive", img_config_drive="mandatory")
    assert cloud.show(cloud.boot("small", imageRef=image))["config_drive"] == "True"
    server_id = cloud.boot("small")
    assert cloud.show(server_id)["config_drive"] == ""
    cloud.do(server_id, "rebuild", {"imageRef": image})
    assert cloud.show(server_id)["config_drive"] == "True"


def test_a_pci_alias_attaches_a_device_of_its_class(make_cloud):
    cloud = make_cloud(1, pci_aliases=f"gpu={GPU}")
    server_id = cloud.boot(cloud.flavor("alias", {"pci_passthrough:alias": "gpu:1"}))
    name = cloud.status(server_id)[2]
    assert cloud.held(server_id) == {name: {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}}
    assert len(cloud.hosts[name].plugged[server_id]) == 1
    cloud.flavor("other", {"pci_passthrough:alias": "nic:1"})
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": "other", "networks": "none"}
    refusal = message(cloud.send("POST", "/v2.1/servers", {"server": body}))
    assert "no alias 'nic' is configured (there are: gpu)" in refusal


def test_a_host_needs_the_metadata_of_an_aggregate_that_the_flavor_demands(cloud):
    cloud.flavor("ssd", {"aggregate_instance_extra_specs:ssd": "true"})
    server_id = cloud.boot("ssd")
    assert "aggregate_instance_extra_specs:ssd demands" in cloud.show(server_id)["fault"]["message"]
    aggregate = cloud.admin("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "fast"}})[1]["aggregate"]["id"]
    for action in ({"add_host": {"host": "compute-2"}}, {"set_metadata": {"metadata": {"ssd": "true"}}}):
        assert cloud.admin("POST", f"/v2.1/os-aggregates/{aggregate}/action", action)[0] == 200
    assert cloud.status(cloud.boot("ssd"))[::2] == ("ACTIVE", "compute-2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ignored_extra_specs": "hw:tpm_versoin"}, "there is no such key; .* its name: there is hw:tpm_version"),
        ({"ignored_extra_specs": "hw_vif_mdoel"}, "there is no such key; .* its name: there is hw_vif_model"),
        ({"ignored_extra_specs": "resources:VCPU"}, "servers with it are not refused"),
        ({"pci_aliases": "gpu"}, "write <alias>=<device profile>"),
        ({"pci_aliases": "gpu=CUSTOM_GPU"}, "hosts attach devices of such classes only"),
    ],
)
def test_options_that_mean_nothing_end_the_start(make_cloud, options, said):
    with pytest.raises(StartError, match=said):
        make_cloud(1, **options)


def test_settings_of_the_guest_reach_its_definition_also_after_a_resize(cloud):
    cloud.flavor("watched", {"hw:watchdog_action": "reset"})
    cloud.flavor("slow", {"quota:cpu_shares": "10"})
    image = cloud.make_image("random", hw_rng_model="virtio")
    server_id = cloud.boot("watched", imageRef=image)

    def settings():
        jobs = cloud.hosts[cloud.status(server_id)[2]].driver.domains()
        return dict(jobs[server_id].spec.settings)

    assert settings() == {"hw:watchdog_action": "reset", "hw_rng_model": "virtio"}
    cloud.do(server_id, "resize", {"flavorRef": "slow"})
    assert settings() == {"hw_rng_model": "virtio", "quota:cpu_shares": "10"}
    cloud.do(server_id, "confirmResize")
    cloud.do(server_id, "rebuild", {"imageRef": cloud.image})
    assert settings() == {"quota:cpu_shares": "10"}
