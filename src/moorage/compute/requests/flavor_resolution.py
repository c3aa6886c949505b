"""What a flavor becomes for one server before it is asked for: the image's least sizes, the groups of a device profile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from moorage.compute.model.servers import Flavor
from moorage.compute.requests.server_request import ImageFacts
from moorage.core.errors import Invalid
from moorage.scheduler.device_profiles import specs_of_profile
from moorage.scheduler.flavor_resources import PROFILE_KEY

_GB = 1 << 30


class ProfileLookup(Protocol):
    def profile_groups(self, name: str) -> Sequence[Mapping[str, str]] | None:
        """``[{"resources:CUSTOM_ACCELERATOR_FPGA": "1", "trait:CUSTOM_X": "required", "accel:function_id": ...}]``;
        None where there is no such profile.
        """
        ...


def check_size(image: ImageFacts, flavor: Flavor) -> None:
    """Raises `Invalid` for a flavor that is too small for the image. A disk of 0 is as large as the image."""
    if flavor.ram_mb < image.min_ram_mb:
        raise Invalid(
            f"Flavor's memory is too small for requested image: it has {flavor.ram_mb} MB, the image needs "
            f"{image.min_ram_mb} MB."
        )
    if not flavor.disk_gb:
        return
    if flavor.disk_gb < image.min_disk_gb:
        raise Invalid(
            f"Flavor's disk is smaller than the minimum size specified in image metadata. Flavor disk is "
            f"{flavor.disk_gb * _GB} bytes, minimum size is {image.min_disk_gb * _GB} bytes."
        )
    if flavor.disk_gb * _GB < (image.size_bytes or 0):
        raise Invalid(
            f"Flavor's disk is too small for requested image. Flavor disk is {flavor.disk_gb * _GB} bytes, "
            f"image is {image.size_bytes} bytes."
        )


def with_device_profile(flavor: Flavor, profiles: ProfileLookup) -> Flavor:
    """The server's own copy of `flavor`, with the groups of its device profile as extra specs of it."""
    name = flavor.extra_specs.get(PROFILE_KEY)
    if name is None:
        return flavor
    groups = profiles.profile_groups(name)
    if groups is None:
        raise Invalid(f"{PROFILE_KEY}={name}: there is no device profile of this name; make it, or name another one")
    return replace(flavor, extra_specs={**flavor.extra_specs, **specs_of_profile(flavor.extra_specs, groups)})
