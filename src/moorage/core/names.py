"""Rules for names of hosts, queues, custom resource classes and traits, which are the same in all four specs.

Source: placement API reference; `os_resource_classes.normalize_name` for the form that Nova gives Ironic's classes.
"""

import re

from moorage.core.errors import Invalid

CUSTOM_PREFIX = "CUSTOM_"
MAX_NAME_LENGTH = 255

#: Trait of the root provider of a reservable host. It keeps servers without a reservation off the host.
RESERVED_HOST_TRAIT = "CUSTOM_RESERVATION_HOST"
#: Trait of an FPGA region that is programmed for a reservation. It keeps servers of other reservations off the region.
RESERVED_REGION_TRAIT = "CUSTOM_RESERVATION_REGION"
#: Standard trait that Nova sets on the root provider of a host whose compute service is disabled.
DISABLED_HOST_TRAIT = "COMPUTE_STATUS_DISABLED"

#: Job queues that belong to no host. The agent of a host with such a name would receive their jobs.
QUEUES = frozenset({"audit", "compute-build", "compute-events", "compute-moves"})

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
_NAME = re.compile(r"[A-Z0-9_]+\Z")
_BITSTREAM_TRAIT = re.compile(r"CUSTOM_FPGA_([A-Z0-9]+_)?(REGION|FUNCTION|FUNCTION_ID)_[A-Z0-9_]+\Z")
_OTHER = re.compile(r"[^A-Z0-9_]+")


def check_not_queue_name(host: str) -> None:
    """Raises `Invalid` if `host` is the name of a queue."""
    if host in QUEUES:
        raise Invalid(f"{host} is the name of a job queue; give the host another name")


def check_host_name(name: str) -> None:
    """Raises `Invalid` if `name` cannot be the name of a host."""
    check_not_queue_name(name)
    if not _HOST.match(name):
        raise Invalid(
            f"{name!r} cannot be the name of a host: it has 1 to 255 letters, digits, '.', '_' and '-', and begins "
            "with a letter or a digit"
        )


def is_custom(name: str) -> bool:
    """Whether `name` is ``CUSTOM_`` and at least one more of A-Z, 0-9, ``_``, with at most 255 characters."""
    return (
        name.startswith(CUSTOM_PREFIX)
        and len(CUSTOM_PREFIX) < len(name) <= MAX_NAME_LENGTH
        and _NAME.match(name) is not None
    )


def custom_name(text: str) -> str:
    """`text` as a custom class or trait: the prefix, then upper case; each run of other characters becomes ``_``.

    >>> custom_name("baremetal.gold-2")
    'CUSTOM_BAREMETAL_GOLD_2'
    """
    return CUSTOM_PREFIX + _OTHER.sub("_", text.upper())


def reservation_provider(hypervisor_hostname: str) -> str:
    """The name of the child provider of a host that holds the inventories of its reservations."""
    return f"blazar_{hypervisor_hostname}"


def reservation_flavor(reservation_id: str) -> str:
    """The name of a reservation's private flavor, whose id is the reservation's."""
    return f"reservation:{reservation_id}"


def reservation_zone(reservation_id: str) -> str:
    """The availability zone that an older system (Blazar) gives the aggregate of a host reservation."""
    return f"blazar_{reservation_id}"


def reservation_class(reservation_id: str) -> str:
    """The class whose inventory is the capacity of one reservation.

    >>> reservation_class("4d17d41a-830d-47b2-91c7-4f9fc0ae611e")
    'CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E'
    """
    return custom_name(f"reservation_{reservation_id}")


def reservation_trait(reservation_id: str) -> str:
    """The trait of the FPGA regions programmed for one reservation. Traits and classes have separate namespaces.

    >>> reservation_trait("4d17d41a-830d-47b2-91c7-4f9fc0ae611e")
    'CUSTOM_RESERVATION_4D17D41A_830D_47B2_91C7_4F9FC0AE611E'
    """
    return reservation_class(reservation_id)


def is_reservation_class(name: str) -> bool:
    return name.startswith("CUSTOM_RESERVATION_")


def is_accelerator_class(name: str) -> bool:
    return name.startswith("CUSTOM_ACCELERATOR_")


def is_bitstream_trait(name: str) -> bool:
    """Whether the trait names an FPGA's region or function. These traits come and go with bitstreams."""
    return _BITSTREAM_TRAIT.match(name) is not None
