"""The tests of the suites of OpenStack's clients and peers that do not pass here, each with its reason. The tests of the
suites fail if another test does not pass, if one of these passes, or if a row matches no test.

docs/wire/client-suites.md shows this table; `python -m tests.system.suites.out_of_scope` writes it there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[3] / "docs" / "wire" / "client-suites.md"


class Row(NamedTuple):
    """`pattern`: the end of the tests' names, as for `fnmatch`; the tests fail, or the suite skips them."""

    suite: str
    pattern: str
    reason: str


_NO_METADEFS = "metadata definitions are not provided"
_NO_NETWORK = "needs a network service"
_NO_VOLUMES = "needs a volume service"
_NO_IMPORT = "images are uploaded; there is one store, and no import from elsewhere"
_NO_LOCATIONS = "the locations of an image's data are not shown or set"

_SDK = "openstacksdk"
_IMAGE = "tempest.api.image"

OUT_OF_SCOPE: tuple[Row, ...] = (
    Row(_SDK, "accelerator.v2.test_attribute.*", "the suite skips it because of a fault of Cyborg"),
    Row(_SDK, "cloud.test_compute.TestCompute.test_*volume*", "the suite skips it"),
    Row(_SDK, "cloud.test_compute.TestCompute.test_create_and_delete_server*", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_create_boot_from_*", "the suite skips it"),
    Row(_SDK, "cloud.test_compute.TestCompute.test_create_image_snapshot_wait_active", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_create_server_image_flavor_dict", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_get_compute_usage", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_get_server_console", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_get_server_console_name_or_id", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_list_all_servers", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_set_and_delete_metadata", _NO_NETWORK),
    Row(_SDK, "cloud.test_compute.TestCompute.test_update_server", _NO_NETWORK),
    Row(_SDK, "cloud.test_inventory.TestInventory.test_get_host*", _NO_NETWORK),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_block_storage_cleanup", _NO_VOLUMES),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup", _NO_NETWORK),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_key_manager", "needs a service of keys"),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_load_balancer", _NO_NETWORK),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_swift", "needs an object store"),
    Row(_SDK, "cloud.test_project_cleanup.TestProjectCleanup.test_cleanup_vpnaas", _NO_NETWORK),
    Row(
        _SDK,
        "compute.v2.test_image.TestImage.test_image_metadata",
        "the image proxy of the Compute API only reads ([501](compute.md#what-does-not-exist))",
    ),
    Row(_SDK, "compute.v2.test_server.TestServer.*", _NO_NETWORK),
    Row(_SDK, "compute.v2.test_server.TestServerAdmin.*", _NO_VOLUMES),
    Row(_SDK, "compute.v2.test_volume_attachment.*", _NO_VOLUMES),
    Row(_SDK, "image.v2.test_metadef_*", _NO_METADEFS),
    Row(_SDK, "image.v2.test_task.*", "the tasks of Glance are not provided"),
    Row(_IMAGE, "v2.admin.test_image_caching.*", "images are not cached beside the store"),
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
)


def table() -> Iterator[str]:
    """The table of the page, line by line."""
    yield "| suite | tests | why they do not pass |"
    yield "|---|---|---|"
    for row in OUT_OF_SCOPE:
        yield f"| {row.suite} | `{row.pattern}` | {row.reason} |"


def page_with_table(page: str) -> str:
    """`page` with the table in place of the one that it has."""
    before, _, rest = page.partition("| suite | tests |")
    _, _, after = rest.partition("\n\n")
    return before + "\n".join(table()) + "\n\n" + after


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
