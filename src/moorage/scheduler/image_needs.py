"""What an image asks of its host, from its properties."""

from collections.abc import Mapping

from moorage.scheduler import processors

#: Properties that bear on scheduling, besides ``trait:``; what else an image has is not kept with the server.
_KEPT = frozenset(
    {
        "hw_architecture", "architecture", "img_hv_type", "hypervisor_type",
        processors.POLICY_KEY.replace(":", "_"), processors.THREADS_KEY.replace(":", "_"),
    }
)  # fmt: skip
_ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "i386": "i686", "i586": "i686"}
_HYPERVISORS = {"kvm": "qemu"}


def image_needs(properties: Mapping[str, str]) -> dict[str, str]:
    """Of an image's properties, those that bear on where a server of it may run."""
    return {key: value for key, value in properties.items() if key.startswith("trait:") or key in _KEPT}


def architecture(needs: Mapping[str, str]) -> str | None:
    """``x86_64``, ``aarch64``, however the image spells it."""
    name = (needs.get("hw_architecture") or needs.get("architecture") or "").lower()
    return _ARCHITECTURES.get(name, name) or None


def hypervisor_type(needs: Mapping[str, str]) -> str | None:
    """``qemu`` and so on, in lower case; KVM is QEMU here, as hosts report it."""
    name = (needs.get("img_hv_type") or needs.get("hypervisor_type") or "").lower()
    return _HYPERVISORS.get(name, name) or None
