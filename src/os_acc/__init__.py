"""os_acc: what a compute service calls to attach accelerators to instances and take them back.

Three verbs, callable from any thread::

    os_acc.initialize()                                              once, at start
    os_acc.plug(instance_info, selected_rp, flavor_extra_specs)      -> [{"pci_id": "0000:3b:00.1"}]
    os_acc.unplug(instance_info)                                     -> 1

`plug` and `unplug` are only for flavors of which `refers_to_accelerators` is true. The accelerator agent of this host
does the work; `configure` (or the environment variable ``OS_ACC_SOCKET``) says where it listens. All errors are in
`os_acc.exception`. The retired project of the same name on PyPI had other functions; see the docs of the spec.

Spec: docs/evidence/specs/accelerator-attach.md
"""

from collections.abc import Mapping, Sequence

from moorage.accelerator.model.profile import refers_to_accelerators
from os_acc import exception
from os_acc.client import Client, configure, configured

__all__ = ["Client", "configure", "exception", "initialize", "plug", "refers_to_accelerators", "unplug"]


def initialize() -> None:
    """Return once the agent has found all devices and their traits are published.

    Raises `CyborgAgentUnavailable` when it cannot be contacted. Called again, it does no harm.
    """
    configured().initialize()


def plug(
    instance_info: Mapping[str, object],
    selected_rp: Mapping[str, str | Sequence[str]],
    flavor_extra_specs: Mapping[str, str],
) -> list[dict[str, str]]:
    """Attach what the flavor asks for; one ``{"pci_id": <bdf>}`` per accelerator, or an error and nothing attached.

    `instance_info` has ``uuid``, ``name``, ``project_id`` and ``image_id`` (of the VM). `selected_rp` is
    ``{"uuid": <rp>}`` or, for flavors with several groups, ``{<group suffix>: [<rp>, ...]}``. Nothing is modified.
    The same call again gives the same answer.
    """
    return configured().plug(instance_info, selected_rp, flavor_extra_specs)


def unplug(instance_info: Mapping[str, object]) -> int:
    """Release and clean all that the instance has; how many that were. 0 when it has nothing (any more)."""
    return configured().unplug(instance_info)
