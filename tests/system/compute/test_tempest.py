"""Tempest's own tests of the Compute API against our plane: those that need no network and no volume.

By default it runs the modules of `QUICK`; TEMPEST=all (``make tempest``) also runs `SLOW`. `NOT_HERE` names the failing
tests with the reason; no other test may fail.
"""

import os

import pytest

from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneProcess, write_config

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

PREFIX = "tempest.api.compute."
QUICK = """
admin.test_aggregates_negative admin.test_availability_zone admin.test_availability_zone_negative admin.test_flavors
admin.test_flavors_access admin.test_flavors_access_negative admin.test_flavors_extra_specs
admin.test_flavors_extra_specs_negative admin.test_flavors_microversions admin.test_hosts admin.test_hypervisor
admin.test_hypervisor_negative admin.test_keypairs_v210 admin.test_server_external_events admin.test_services
admin.test_services_negative flavors.test_flavors flavors.test_flavors_negative images.test_list_image_filters
images.test_list_image_filters_negative images.test_list_images keypairs.test_keypairs keypairs.test_keypairs_negative keypairs.test_keypairs_v22 limits.test_absolute_limits
limits.test_absolute_limits_negative servers.test_availability_zone servers.test_multiple_create_negative
servers.test_server_group servers.test_server_metadata servers.test_server_metadata_negative servers.test_server_tags
test_extensions test_quotas test_versions
"""
SLOW = """
admin.test_create_server admin.test_delete_server admin.test_live_migration_negative admin.test_migrations
admin.test_quotas admin.test_quotas_negative admin.test_server_diagnostics admin.test_server_diagnostics_negative admin.test_servers
admin.test_servers_negative admin.test_servers_on_multinodes
admin.test_simple_tenant_usage admin.test_simple_tenant_usage_negative
servers.test_create_server servers.test_delete_server servers.test_disk_config servers.test_instance_actions
servers.test_instance_actions_negative servers.test_list_server_filters servers.test_list_servers_negative
servers.test_multiple_create servers.test_server_actions servers.test_server_addresses
servers.test_server_addresses_negative servers.test_server_password servers.test_server_rescue
servers.test_server_rescue_negative servers.test_servers servers.test_servers_microversions
servers.test_servers_negative
"""

#: {test or class below tempest.api.compute: why it fails}.
NOT_HERE = {
    **dict.fromkeys(
        (f"admin.test_quotas.QuotasAdminTest{version}.test_get_updated_quotas" for version in ("JSON", "V236", "V257")),
        "limits a user of a project; limits apply to projects",
    ),
    "admin.test_server_diagnostics.ServerDiagnosticsTest.test_get_server_diagnostics": (
        "below 2.48 diagnostics are in a hypervisor's own format, which is not supported"
    ),
    "admin.test_server_diagnostics.ServerDiagnosticsV248Test.test_get_server_diagnostics": (
        "expects a driver of Nova; the hosts of these tests are simulated"
    ),
    "admin.test_hypervisor.HypervisorAdminTestJSON.test_get_hypervisor_uptime": "hosts do not report their uptime",
    "test_extensions.ExtensionsTest.test_get_extension": "asks for an extension that Nova itself removed",
    "test_versions.TestVersions.test_list_api_versions": "expects v2.0 in the list",
    "servers.test_create_server.ServersV294TestFqdnHostnames": "expects security groups of a server",
    "servers.test_server_actions.ServerActionsTestOtherA.test_remove_server_all_security_groups": (
        "expects security groups of a server"
    ),
    "servers.test_server_actions.ServerActionsTestOtherB.test_create_backup": (
        "reads images by a path that only Glance has"
    ),
}
#: {reason: modules that are not run}.
EXCLUDED = {
    "are skipped without a network service": (
        """
        admin.test_auto_allocate_network admin.test_live_migration admin.test_security_groups admin.test_spice
        floating_ips.test_floating_ips_actions floating_ips.test_floating_ips_actions_negative
        floating_ips.test_list_floating_ips floating_ips.test_list_floating_ips_negative
        security_groups.test_security_group_rules security_groups.test_security_group_rules_negative
        security_groups.test_security_groups security_groups.test_security_groups_negative
        servers.test_create_server_multi_nic servers.test_device_tagging
        servers.test_novnc test_tenant_networks
        """
    ),
    "are run with a network, as said above": (
        """
        servers.test_attach_interfaces
        """
    ),
    "expect nova-network, which Nova removed (410)": (
        """
        admin.test_networks test_networks
        """
    ),
    "need a volume service": (
        """
        admin.test_assisted_volume_snapshots admin.test_volume admin.test_volume_swap
        admin.test_volumes_negative volumes.test_attach_volume volumes.test_attach_volume_negative
        volumes.test_volume_snapshots volumes.test_volumes_get volumes.test_volumes_list
        volumes.test_volumes_negative
        """
    ),
    "change images through the compute service instead of the image service (501), or are skipped without a network service": (
        """
        images.test_image_metadata images.test_image_metadata_negative images.test_images
        images.test_images_negative images.test_images_oneserver images.test_images_oneserver_negative
        """
    ),
    "start, stop and maintain hosts (501)": (
        """
        admin.test_hosts_negative
        """
    ),
    "need the audit log of usage (501)": (
        """
        admin.test_instance_usage_audit_log admin.test_instance_usage_audit_log_negative
        """
    ),
    "put files into a guest, which Nova removed in 2.57": (
        """
        servers.test_server_personality
        """
    ),
}
ALL = os.environ.get("TEMPEST") == "all"


def test_each_module_of_tempest_is_run_or_excluded():
    """A module that a newer Tempest adds makes this test fail."""
    there = set(tempest_rig.modules(PREFIX.rstrip(".")))
    named = [*QUICK.split(), *SLOW.split(), *" ".join(EXCLUDED.values()).split()]
    assert sorted(named) == sorted(there)


def test_every_compute_tempest_test_passes_except_the_listed_ones(tmp_path):
    modules = (QUICK + SLOW if ALL else QUICK).split()
    config = write_config(tmp_path / "state", server={"port": free_port()}, agent={"simulated_hosts": 2})
    with PlaneProcess(config.source) as plane:
        tempest_rig.add_people(plane)
        etc = tempest_rig.configure(plane, tmp_path / "tempest")
        names = [f"{PREFIX}{module}" for module in modules]
        outcome = tempest_rig.run(etc, names, timeout_s=900 if ALL else 400)
    failed = {name.removeprefix(PREFIX) for name in outcome.failed}
    assert failed - NOT_HERE.keys() == set(), outcome.text[-6000:]
    expected = {name for name in NOT_HERE if name.startswith(tuple(f"{module}." for module in modules))}
    assert expected - failed == set(), "passes by now: take it out of NOT_HERE"
    assert len(outcome.passed) > (150 if ALL else 70), outcome.text[-3000:]
