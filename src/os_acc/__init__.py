"""os_acc: attaches accelerators to instances and releases them, for compute services.

Three verbs, callable from any thread::

    os_acc.initialize()                                              once, at start
    os_acc.plug(instance_info, selected_rp, flavor_extra_specs)      -> [{"pci_id": "0000:3b:00.1"}]
    os_acc.unplug(instance_info)                                     -> 1

Call `plug` and `unplug` only for flavors for which `refers_to_accelerators` is true. The accelerator agent of this
host does the work. If the agent has default settings, nothing has to be configured here; otherwise `configure` (or the
environment variable ``OS_ACC_SOCKET``) sets the socket that it listens on. Only the agent's user may open the
socket. All errors are in `os_acc.exception`. The retired project of the same name on PyPI had other functions; see the
spec.

Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Mapping, Sequence

from moorage.accelerator.model.profile import refers_to_accelerators
from os_acc import exception
from os_acc.client import Client, configure, configured

__all__ = ["Client", "configure", "exception", "initialize", "plug", "refers_to_accelerators", "unplug"]


def initialize() -> None:
    """Return once the agent has discovered all devices and published their traits.

    Raises `CyborgAgentUnavailable` if the agent cannot be contacted. Repeated calls are harmless.
    """
    configured().initialize()


def plug(
    instance_info: Mapping[str, object],
    selected_rp: Mapping[str, str | Sequence[str]],
    flavor_extra_specs: Mapping[str, str],
) -> list[dict[str, str]]:
    """Attach the accelerators that the flavor requests; returns one entry per accelerator. On an error, none is
    attached.

    The entry of a PCI function is ``{"pci_id": "0000:3b:00.1"}``. That of a share of a card is ``{"pci_id":
    "0000:17:00.0", "mdev": <uuid>, "mdev_type": "nvidia-63"}``: give the guest the mediated device ``mdev``, not the
    card `pci_id` that it is a share of. That of a virtual function of a network card with a physical network has
    also ``group``, the suffix of its request group, and ``physical_network``.

    `instance_info` has ``uuid``, ``name``, ``project_id`` and ``image_id`` (of the server). `selected_rp` is
    ``{"uuid": <rp>}`` or, for flavors with several groups, ``{<group suffix>: [<rp>, ...]}``. The arguments are not
    modified. A repeated call returns the same answer.
    """
    return configured().plug(instance_info, selected_rp, flavor_extra_specs)


def unplug(instance_info: Mapping[str, object]) -> int:
    """Release and clean all accelerators of the instance; returns their number, 0 if it has none."""
    return configured().unplug(instance_info)
