"""Builds the virt driver `libvirt` from the section [libvirt]. Imported only where it is configured."""

from pathlib import Path

from moorage.agent.jobs.plugged_ports import PluggedPorts
from moorage.agent.virt.libvirt_capabilities import HostShares
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.images.cache import DigestCache
from moorage.images.for_hosts import HostImageSource
from moorage.options.host import LibvirtOptions
from moorage.wiring.components import Components

try:
    from moorage.agent.virt.libvirt_connection import LibvirtConnection
    from moorage.agent.virt.libvirt_driver import LibvirtDriver
    from moorage.agent.virt.libvirt_guests import GuestFiles
    from moorage.agent.virt.libvirt_images import BaseImages
    from moorage.agent.virt.libvirt_node import LibvirtSettings
except ModuleNotFoundError as error:
    raise StartError(
        f"[agent] virt_driver is libvirt, but Python has no module {error.name}; install the extra: "
        "pip install 'moorage[libvirt]' (docs/guides/libvirt.md)"
    ) from error


def libvirt_driver(parts: Components, source: HostImageSource) -> LibvirtDriver:
    """`source`: where the host fetches images."""
    options = parts.config.libvirt
    # Guests use the real time, even if the plane rehearses another.
    clock = SystemClock()
    directory = Path(options.instances_path or parts.config.state / "host" / "instances")
    cache = DigestCache(directory / "cache", max_bytes=options.image_cache_bytes, clock=clock)
    images = BaseImages(directory, cache, source)
    connection = LibvirtConnection(options.uri, clock)
    parts.plane.stops.append(connection.close)
    host = parts.config.agent.host
    compute = ComputeClient(parts.host_client("compute", host))
    ports = PluggedPorts(host, compute, clock, options.vif_plugging_timeout_s)
    return LibvirtDriver(_libvirt_settings(host, options), connection, GuestFiles(directory, images), clock, ports.wait)


def _libvirt_settings(host: str, options: LibvirtOptions) -> LibvirtSettings:
    return LibvirtSettings(
        host=host,
        host_ip=options.host_ip,
        virt_type=options.virt_type,
        machine=options.machine,
        cpu_mode=options.cpu_mode,
        emulates_devices=options.devices == "emulated",
        shares=HostShares(
            reserved_cpus=options.reserved_host_cpus,
            reserved_memory_mb=options.reserved_host_memory_mb,
            reserved_disk_gb=options.reserved_host_disk_gb,
            cpu_allocation_ratio=options.cpu_allocation_ratio,
            ram_allocation_ratio=options.ram_allocation_ratio,
            disk_allocation_ratio=options.disk_allocation_ratio,
        ),
        shutdown_timeout_s=options.shutdown_timeout_s,
    )
