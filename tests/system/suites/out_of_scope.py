"""The suites of OpenStack's clients and peers, and their tests that do not pass here, each with its reason. The tests of
the suites fail if another test does not pass, if one of these passes, if a row matches no test, or if a number is wrong.

docs/wire/client-suites.md shows these tables; `python -m tests.system.suites.out_of_scope` writes them there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[3] / "docs" / "wire" / "client-suites.md"


class Suite(NamedTuple):
    """`parts`: which of its tests are run, by `file`; `tests`: their number; `passing`: how many of them pass."""

    name: str
    parts: str
    file: str
    tests: int
    passing: int


class Row(NamedTuple):
    """`pattern`: the end of the tests' names, as for `fnmatch`; the tests fail, or the suite skips them."""

    suite: str
    pattern: str
    reason: str


_NO_METADEFS = "metadata definitions are not provided"
_NO_EXTENSION = "expects extensions of Neutron (agents, pools of subnets) that the network service does not have"
_OWN_NETWORKS = "a member creates a network; only administrators do, because each is a bridge or VLAN of the hosts"
_NO_VOLUMES = "needs a volume service"
_NO_IMPORT = "images are uploaded; there is one store, and no import from elsewhere"
_NO_LOCATIONS = "the locations of an image's data are not shown or set"

_READS_ONLY = "the image proxy of the Compute API only reads ([501](compute.md#what-does-not-exist))"
_NO_SECURITY_GROUPS = "there are no security groups"
_NO_LIVE_MIGRATION = "the simulated hosts of this run do not migrate live"
_NO_GUESTS = "logs in to a guest; the hosts of this run are simulated"
_NO_CONSOLES = "there are no graphical consoles"
_NO_NOVA_NETWORK = "expects nova-network, which Nova removed (410)"
_NO_STABLE_RESCUE = "needs images that say how to attach the disk in a rescue"

_NO_ACCESS_RULES = "application credentials have no access rules, because no service would enforce them"
_NO_CACHE = "images are not cached beside the store"
_NO_FEDERATION = "there is no federation"
_NO_UNIFIED_LIMITS = "each service has quotas of its own, and the identity service has no limits"
_NO_ENDPOINT_FILTER = "all projects have the same catalogue"

_PLACEMENT = "osc-placement"
_OSC = "python-openstackclient"
_SDK = "openstacksdk"
_IMAGE = "tempest.api.image"
_COMPUTE = "tempest.api.compute"
_BLAZAR = "blazar-tempest-plugin"
_CYBORG = "cyborg-tempest-plugin"
_INTERFACES = "tempest: attached interfaces"

SUITES: tuple[Suite, ...] = (
    Suite(
        _PLACEMENT,
        "functional: all; in place of an OpenStack Placement they get an empty one of ours",
        "tests/system/suites/test_osc_placement.py",
        tests=160,
        passing=160,
    ),
    Suite(
        _OSC,
        "functional: accelerator, common, compute, identity v3, image; with one network",
        "tests/system/suites/test_openstackclient.py",
        tests=232,
        passing=146,
    ),
    Suite(
        _SDK,
        "functional: accelerator, compute, identity, image, placement, and of the cloud layer compute, identity, image,"
        " inventory, metadata and cleanup; with one network",
        "tests/system/suites/test_openstacksdk.py",
        tests=189,
        passing=138,
    ),
    Suite(_IMAGE, "all", "tests/system/images/test_tempest.py", tests=102, passing=48),
    Suite(
        _BLAZAR,
        "all, API and scenarios; time passes quickly, because the plane's clock is adjustable",
        "tests/system/reservation/test_tempest.py",
        tests=30,
        passing=30,
    ),
    Suite(_CYBORG, "API: all", "tests/system/accelerator/test_tempest.py", tests=42, passing=41),
    Suite(
        _INTERFACES,
        "of tempest.api.compute `servers.test_attach_interfaces`, without its waits for SSH",
        "tests/system/network/test_tempest.py",
        tests=5,
        passing=3,
    ),
    Suite(
        _COMPUTE, "all; with one network and two hosts", "tests/system/compute/test_tempest.py", tests=588, passing=376
    ),
)

OUT_OF_SCOPE: tuple[Row, ...] = (
    Row(
        _OSC,
        "common.test_availability_zone.*",
        "expects the zone `internal` of Nova's own services; only hosts have zones here",
    ),
    Row(_OSC, "common.test_extension.ExtensionTests.test_extension_list_volume", _NO_VOLUMES),
    Row(_OSC, "common.test_extension.ExtensionTests.test_extension_*_network", _NO_EXTENSION),
    Row(
        _OSC, "common.test_quota.QuotaTests.test_quota_list_network_option", "all projects have the same limit of ports"
    ),
    Row(_OSC, "common.test_quota.QuotaTests.test_quota_list_volume_option", _NO_VOLUMES),
    Row(_OSC, "common.test_quota.QuotaTests.test_quota_set_*", _NO_VOLUMES),
    Row(_OSC, "common.test_quota.QuotaTests.test_quota_show*", _NO_VOLUMES),
    Row(_OSC, "compute.v2.test_server.ServerTests.test_*boot_from_volume", _NO_VOLUMES),
    Row(_OSC, "compute.v2.test_server.ServerTests.test_server_boot_with_bdm_*", _NO_VOLUMES),
    Row(_OSC, "compute.v2.test_server.ServerTests.test_server_add_remove_security_group", _NO_SECURITY_GROUPS),
    Row(_OSC, "compute.v2.test_server.ServerTests.test_server_add_remove_volume", _NO_VOLUMES),
    Row(
        _OSC,
        "compute.v2.test_server.ServerTests.test_server_attach_detach_floating_ip",
        "networks are flat: there are no floating IPs of servers",
    ),
    Row(_OSC, "compute.v2.test_server.ServerTests.test_server_create_with_security_group", _NO_SECURITY_GROUPS),
    Row(_OSC, "identity.v3.test_access_rule.*", _NO_ACCESS_RULES),
    Row(_OSC, "identity.v3.test_endpoint.EndpointTests.test_endpoint_add_remove_project", _NO_ENDPOINT_FILTER),
    Row(_OSC, "identity.v3.test_endpoint.EndpointTests.test_endpoint_list_filter", _NO_ENDPOINT_FILTER),
    Row(_OSC, "identity.v3.test_endpoint_group.*", _NO_ENDPOINT_FILTER),
    Row(_OSC, "identity.v3.test_idp.*", _NO_FEDERATION),
    Row(_OSC, "identity.v3.test_limit.*", _NO_UNIFIED_LIMITS),
    Row(_OSC, "identity.v3.test_mapping.*", _NO_FEDERATION),
    Row(_OSC, "identity.v3.test_policy.*", "the rules of who may do what are in the configuration of each service"),
    Row(_OSC, "identity.v3.test_registered_limit.*", _NO_UNIFIED_LIMITS),
    Row(
        _OSC,
        "identity.v3.test_role_assignment.RoleAssignmentTests.test_role_assignment_list_role_domain",
        "roles belong to no domain",
    ),
    Row(_OSC, "identity.v3.test_service_provider.*", _NO_FEDERATION),
    Row(_OSC, "image.v2.test_cache.*", _NO_CACHE),
    Row(_OSC, "image.v2.test_info.InfoTests.test_image_stores_list", "the suite skips it, because there is one store"),
    Row(_OSC, "image.v2.test_metadef_*", _NO_METADEFS),
    Row(_SDK, "accelerator.v2.test_attribute.*", "the suite skips it because of a fault of Cyborg"),
    Row(_SDK, "cloud.test_compute.TestCompute.test_*volume*", "the suite skips it"),
    Row(
        _SDK,
        "cloud.test_compute.TestCompute.test_create_and_delete_server_with_config_drive_none",
        "a server with networks always has a configuration drive, which tells its addresses",
    ),
    Row(_SDK, "cloud.test_compute.TestCompute.test_create_boot_from_*", "the suite skips it"),
    Row(_SDK, "cloud.test_compute.TestCompute.test_create_image_snapshot_wait_active", _NO_VOLUMES),
    Row(_SDK, "cloud.test_compute.TestCompute.test_get_compute_usage", _NO_VOLUMES),
    Row(_SDK, "cloud.test_compute.TestCompute.test_get_server_console", _NO_VOLUMES),
    Row(_SDK, "cloud.test_compute.TestCompute.test_get_server_console_name_or_id", _NO_VOLUMES),
    Row(_SDK, "cloud.test_compute.TestCompute.test_list_all_servers", _NO_VOLUMES),
    Row(_SDK, "cloud.test_compute.TestCompute.test_set_and_delete_metadata", _NO_VOLUMES),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_block_storage_cleanup", _NO_VOLUMES),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup", _OWN_NETWORKS),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_key_manager", "needs a service of keys"),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_load_balancer", "needs load balancers"),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_swift", "needs an object store"),
    Row(
        _SDK,
        "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_vpnaas",
        "networks are flat: there are no VPNs",
    ),
    Row(
        _SDK,
        "compute.v2.test_image.TestImage.test_image_metadata",
        _READS_ONLY,
    ),
    Row(_SDK, "compute.v2.test_server.TestServer.*", _OWN_NETWORKS),
    Row(_SDK, "compute.v2.test_server.TestServerAdmin.*", _NO_VOLUMES),
    Row(_SDK, "compute.v2.test_volume_attachment.*", _NO_VOLUMES),
    Row(_SDK, "identity.v3.test_access_rule.*", _NO_ACCESS_RULES),
    Row(_SDK, "identity.v3.test_domain_config.*", "the users of all domains are in the same database"),
    Row(_SDK, "identity.v3.test_endpoint_group.*", _NO_ENDPOINT_FILTER),
    Row(_SDK, "identity.v3.test_limit.*", _NO_UNIFIED_LIMITS),
    Row(_SDK, "identity.v3.test_registered_limit.*", _NO_UNIFIED_LIMITS),
    Row(_SDK, "image.v2.test_metadef_*", _NO_METADEFS),
    Row(_SDK, "image.v2.test_task.*", "the tasks of Glance are not provided"),
    Row(_IMAGE, "v2.admin.test_image_caching.*", _NO_CACHE),
    Row(_IMAGE, "v2.admin.test_image_task.*", "the tasks of Glance are not provided"),
    Row(_IMAGE, "v2.admin.test_images.ImageLocationsAdminTest.*", _NO_LOCATIONS),
    Row(_IMAGE, "v2.admin.test_images.ImportCopyImagesTest.*", _NO_IMPORT),
    Row(_IMAGE, "v2.admin.test_images.MultiStoresImagesTest.*", _NO_IMPORT),
    Row(_IMAGE, "v2.admin.test_images_metadefs_*", _NO_METADEFS),
    Row(_IMAGE, "v2.test_images.HashCalculationRemoteDeletionTest.*", _NO_IMPORT),
    Row(_IMAGE, "v2.test_images.ImageLocationsTest.*", _NO_LOCATIONS),
    Row(_IMAGE, "v2.test_images.ImportImagesTest.*", _NO_IMPORT),
    Row(_IMAGE, "v2.test_images.LocationImportTest.*", _NO_LOCATIONS),
    Row(_IMAGE, "v2.test_images.MultiStoresImportImagesTest.*", _NO_IMPORT),
    Row(_IMAGE, "v2.test_images.MultistoreLocationImportTest.*", _NO_IMPORT),
    Row(_IMAGE, "v2.test_images.StoreWeightTest.*", _NO_IMPORT),
    Row(
        _IMAGE,
        "v2.test_images_dependency.ImageDependencyTests.test_image_volume_server_snapshot_dependency",
        _NO_VOLUMES,
    ),
    Row(_IMAGE, "v2.test_images_formats.*", "needs files of each disk format, which Tempest does not contain"),
    Row(_IMAGE, "v2.test_images_metadefs_schema.*", _NO_METADEFS),
    Row(_IMAGE, "v2.test_images_negative.ImportImagesNegativeTest.*", _NO_IMPORT),
    Row(_COMPUTE, "compute.admin.test_assisted_volume_snapshots.*", _NO_VOLUMES),
    Row(
        _COMPUTE,
        "compute.admin.test_auto_allocate_network.*",
        "a project gets no network of its own; administrators create networks",
    ),
    Row(_COMPUTE, "compute.admin.test_create_server.ServersWithSpecificFlavorTestJSON.*", _NO_GUESTS),
    Row(
        _COMPUTE,
        "compute.admin.test_hosts_negative.HostsAdminNegativeTestJSON.test_*_host_with*",
        "hosts are not started, stopped or maintained over the API (501)",
    ),
    Row(
        _COMPUTE,
        "compute.admin.test_hosts_negative.HostsAdminNegativeTestJSON.test_*_nonexistent_host",
        "hosts are not started, stopped or maintained over the API (501)",
    ),
    Row(
        _COMPUTE,
        "compute.admin.test_hypervisor.HypervisorAdminTestJSON.test_get_hypervisor_uptime",
        "hosts do not report their uptime",
    ),
    Row(_COMPUTE, "compute.admin.test_instance_usage_audit_log*", "there is no audit log of usage (501)"),
    Row(_COMPUTE, "compute.admin.test_live_migration*.test_*", _NO_LIVE_MIGRATION),
    Row(_COMPUTE, "compute.admin.test_networks.*", _NO_NOVA_NETWORK),
    Row(
        _COMPUTE,
        "compute.admin.test_quotas.QuotasAdminTest*.test_get_updated_quotas",
        "limits a user of a project; limits apply to projects",
    ),
    Row(_COMPUTE, "compute.admin.test_quotas_negative.QuotasSecurityGroupAdminNegativeTest.*", _NO_SECURITY_GROUPS),
    Row(_COMPUTE, "compute.admin.test_security_groups.*", _NO_SECURITY_GROUPS),
    Row(
        _COMPUTE,
        "compute.admin.test_server_diagnostics.ServerDiagnosticsTest.*",
        "below 2.48 diagnostics are in a hypervisor's own format, which is not supported",
    ),
    Row(
        _COMPUTE,
        "compute.admin.test_server_diagnostics.ServerDiagnosticsV248Test.*",
        "expects a driver of Nova; the hosts of this run are simulated",
    ),
    Row(
        _COMPUTE,
        "compute.admin.test_servers.ServersAdminTestJSON.test_inject_network_info",
        "no hypervisor here can do it (501)",
    ),
    Row(_COMPUTE, "compute.admin.test_spice.*", _NO_CONSOLES),
    Row(_COMPUTE, "compute.admin.test_volume*", _NO_VOLUMES),
    Row(_COMPUTE, "compute.floating_ips.*", "networks are flat: there are no floating IPs of servers"),
    Row(_COMPUTE, "compute.images.test_image_metadata.*", _READS_ONLY),
    Row(
        _COMPUTE,
        "compute.images.test_image_metadata_negative.ImagesMetadataNegativeTestJSON.test_delete_*",
        _READS_ONLY,
    ),
    Row(_COMPUTE, "compute.images.test_image_metadata_negative.ImagesMetadataNegativeTestJSON.test_set_*", _READS_ONLY),
    Row(
        _COMPUTE,
        "compute.images.test_image_metadata_negative.ImagesMetadataNegativeTestJSON.test_update_*",
        _READS_ONLY,
    ),
    Row(_COMPUTE, "compute.images.test_images.*", _READS_ONLY),
    Row(_COMPUTE, "compute.images.test_images_negative.ImagesDeleteNegativeTestJSON.*", _READS_ONLY),
    Row(_COMPUTE, "compute.images.test_images_oneserver.ImagesOneServerTestJSON.test_create_delete_image", _READS_ONLY),
    Row(
        _COMPUTE,
        "compute.images.test_images_oneserver_negative.ImagesOneServerNegativeTestJSON.test_create_second_image_when_first_image_is_being_saved",
        _READS_ONLY,
    ),
    Row(
        _COMPUTE,
        "compute.images.test_images_oneserver_negative.ImagesOneServerNegativeTestJSON.test_delete_image_that_is_not_yet_active",
        _READS_ONLY,
    ),
    Row(_COMPUTE, "compute.security_groups.*", _NO_SECURITY_GROUPS),
    Row(
        _COMPUTE,
        "compute.servers.test_attach_interfaces.*",
        "waits for SSH; these run without it, as a suite of their own",
    ),
    Row(_COMPUTE, "compute.servers.test_create_server.ServersTestBootFromVolume.*", _NO_VOLUMES),
    Row(
        _COMPUTE,
        "compute.servers.test_create_server.ServersTestFqdnHostnames.*",
        "the suite skips it, because a name with a domain is not changed into a host name",
    ),
    Row(_COMPUTE, "compute.servers.test_create_server.ServersTest*.test_host_name_is_same_as_server_name", _NO_GUESTS),
    Row(_COMPUTE, "compute.servers.test_create_server.ServersTest*.test_verify_created_server_vcpus", _NO_GUESTS),
    Row(_COMPUTE, "compute.servers.test_create_server.ServersV294TestFqdnHostnames.*", _NO_GUESTS),
    Row(_COMPUTE, "compute.servers.test_create_server_multi_nic.*", _OWN_NETWORKS),
    Row(
        _COMPUTE,
        "compute.servers.test_delete_server.DeleteServersTestJSON.test_delete_server_while_in_attached_volume",
        _NO_VOLUMES,
    ),
    Row(_COMPUTE, "compute.servers.test_device_tagging.*", _NO_GUESTS),
    Row(_COMPUTE, "compute.servers.test_novnc.*", _NO_CONSOLES),
    Row(_COMPUTE, "compute.servers.test_server_actions.ServerActions*volume_*", _NO_VOLUMES),
    Row(
        _COMPUTE,
        "compute.servers.test_server_actions.ServerActionsTestOtherB.test_get_console_output_server_id_in_shutoff_status",
        "the suite skips it because of a fault of Nova",
    ),
    Row(_COMPUTE, "compute.servers.test_server_actions.ServerActionsTestOtherB.test_get_vnc_console", _NO_CONSOLES),
    Row(
        _COMPUTE,
        "compute.servers.test_server_actions.ServerActionsTestOtherA.test_remove_server_all_security_groups",
        _NO_SECURITY_GROUPS,
    ),
    Row(
        _COMPUTE,
        "compute.servers.test_server_actions.ServerActionsTestOtherA.test_rebuild_server_with_volume_attached",
        _NO_VOLUMES,
    ),
    Row(
        _COMPUTE,
        "compute.servers.test_server_actions.ServerActionsTestOtherB.test_resize_server_revert_with_volume_attached",
        _NO_VOLUMES,
    ),
    Row(_COMPUTE, "compute.servers.test_server_personality.*", "puts files into a guest, which Nova removed in 2.57"),
    Row(_COMPUTE, "compute.servers.test_server_rescue.Server*StableDeviceRescueTest*.*", _NO_STABLE_RESCUE),
    Row(_COMPUTE, "compute.servers.test_server_rescue.ServerBootFromVolumeStableRescueTest.*", _NO_VOLUMES),
    Row(
        _COMPUTE,
        "compute.servers.test_server_rescue.ServerRescueTestJSONUnderV235.*",
        "adds security groups and floating IPs",
    ),
    Row(
        _COMPUTE,
        "compute.servers.test_server_rescue_negative.ServerRescueNegativeTestJSON.test_rescued_vm_*tach_volume",
        _NO_VOLUMES,
    ),
    Row(_COMPUTE, "compute.servers.test_servers.ServerShowV263Test.*", "needs an image whose certificate is verified"),
    Row(
        _COMPUTE,
        "compute.servers.test_servers.ServersUpdatePinnedAZ2104Test.*",
        "needs microversion 2.104; 2.100 is the newest one",
    ),
    Row(
        _COMPUTE,
        "compute.servers.test_servers_negative.ServersNegativeTestJSON.test_create_server_from_non_bootable_volume",
        _NO_VOLUMES,
    ),
    Row(
        _COMPUTE,
        "compute.servers.test_servers_negative.ServersNegativeTestJSON.test_create_server_invalid_bdm_in_2nd_dict",
        _NO_VOLUMES,
    ),
    Row(
        _COMPUTE,
        "compute.servers.test_servers_negative.ServersNegativeTestJSON.test_personality_file_contents_not_encoded",
        "puts files into a guest, which Nova removed in 2.57",
    ),
    Row(
        _COMPUTE,
        "compute.test_extensions.ExtensionsTest.test_get_extension",
        "asks for an extension that Nova itself removed",
    ),
    Row(_COMPUTE, "compute.test_networks.*", _NO_NOVA_NETWORK),
    Row(_COMPUTE, "compute.test_tenant_networks.*", _NO_NOVA_NETWORK),
    Row(_COMPUTE, "compute.test_versions.TestVersions.test_list_api_versions", "expects v2.0 in the list"),
    Row(_COMPUTE, "compute.volumes.*", _NO_VOLUMES),
    Row(
        _CYBORG,
        "test_srbac.TestSRBACScopeEnforcement.*",
        "wants an administrator of the whole system; administrators are those of a project",
    ),
    Row(
        _INTERFACES,
        "AttachInterfacesTestJSON.test_create_list_show_delete_interfaces_by_fixed_ip",
        _OWN_NETWORKS,
    ),
    Row(_INTERFACES, "AttachInterfacesUnderV243Test.test_add_remove_fixed_ip", _OWN_NETWORKS),
)


def suites() -> Iterator[str]:
    """The table of the suites, line by line."""
    yield "| suite | which tests | number | of these pass | run by |"
    yield "|---|---|---|---|---|"
    for row in SUITES:
        yield f"| {row.name} | {row.parts} | {row.tests} | {row.passing} | `{row.file}` |"


def reasons() -> Iterator[str]:
    """The table of the tests that do not pass, line by line."""
    yield "| suite | tests | why they do not pass |"
    yield "|---|---|---|"
    for row in OUT_OF_SCOPE:
        yield f"| {row.suite} | `{row.pattern}` | {row.reason} |"


def page_with_tables(page: str) -> str:
    """`page` with these tables in place of those that it has."""
    for table in (list(suites()), list(reasons())):
        before, _, rest = page.partition(table[0])
        page = before + "\n".join(table) + "\n\n" + rest.partition("\n\n")[2]
    return page


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text()))
