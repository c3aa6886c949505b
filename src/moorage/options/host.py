"""Sections [agent] and [libvirt]: the agent of a host, and its guests."""

from dataclasses import dataclass

from moorage.options.declaration import option


@dataclass(frozen=True)
class AgentOptions:
    host: str = option(
        "compute-1", "Name of the host, which is also the name of its compute service and its resource provider."
    )
    virt_driver: str = option(
        "simulated",
        "What runs the servers of this host: simulated domains, which are files, or QEMU through libvirt (see "
        "[libvirt]).",
        choices=("simulated", "libvirt"),
    )
    host_description: str = option(
        "", "YAML file that describes the simulated host. If empty, the built-in description."
    )
    socket: str = option(
        "", "Unix socket on which commands on this machine reach the agent. If empty, a socket in state_path."
    )
    simulated_hosts: int = option(
        1,
        "Number of hosts that this process simulates. The names of the additional hosts count up from the first "
        "(compute-2, compute-3 ...); these hosts have no accelerators.",
    )
    workers: int = option(4, "Maximum number of jobs that this host runs at the same time.")
    heartbeat_period_s: float = option(10.0, "Seconds between two heartbeats.")
    update_period_s: float = option(60.0, "Seconds between two comparisons of the provider tree with Placement.")
    poll_period_s: float = option(
        0.0,
        "Seconds between two requests for jobs, if no hint arrives. 0: 10 s where hints arrive ([plane] hints, or "
        "compute in this process), else 2 s.",
    )
    domain_report_period_s: float = option(
        10.0,
        "Seconds between two checks, on a host with real guests, for guests that stopped by themselves, wrote to "
        "their console or got an address from a DHCP server.",
    )
    resume_guests_state_on_host_boot: bool = option(
        False,
        "When the host boots, reboot the real guests that were running when it went down. If false, they stay off.",
    )
    job_lease_s: float = option(60.0, "Seconds after which the job of a silent worker is assigned again.")
    accelerators_on_stop: str = option(
        "keep",
        "What happens to the accelerators of a server that is stopped, or deleted in a way that can be undone: keep, "
        "or release (the server gets new ones when it starts or is restored).",
    )


@dataclass(frozen=True)
class LibvirtOptions:
    uri: str = option("qemu:///system", "Connection URI of libvirt. With ?socket=..., it names the socket of a daemon.")
    instances_path: str = option(
        "",
        "Directory of disks and images; the user that runs QEMU must be able to read it. If empty, host/instances "
        "in state_path.",
    )
    virt_type: str = option(
        "auto", "KVM, software emulation, or KVM where the host supports it.", choices=("auto", "kvm", "qemu")
    )
    machine: str = option("q35", "Machine type of the guests.", choices=("q35", "pc"))
    cpu_mode: str = option(
        "host-model",
        "CPU model of the guests. The traits of the host are those of host-model.",
        choices=("host-model", "host-passthrough", "maximum", "none"),
    )
    devices: str = option(
        "passthrough",
        "'passthrough' gives servers the host's own devices through VFIO. 'emulated' gives each an ivshmem device "
        "emulated by QEMU, for rehearsals on hosts without an IOMMU.",
        choices=("passthrough", "emulated"),
    )
    host_ip: str = option("127.0.0.1", "IP address of this host as shown by the compute service.")
    shutdown_timeout_s: float = option(60.0, "Seconds to wait for a guest to stop or reboot before it is powered off.")
    vif_plugging_timeout_s: float = option(
        300.0,
        "Seconds that a guest with ports of a Neutron waits, paused, until Neutron has plugged them; then its start "
        "fails. 0: it does not wait.",
    )
    image_cache_bytes: int = option(64 << 30, "Maximum size of the host's image cache, in bytes.")
    reserved_host_cpus: int = option(0, "Number of CPUs reserved for the host itself.")
    reserved_host_memory_mb: int = option(512, "Memory reserved for the host itself, in MiB.")
    reserved_host_disk_gb: int = option(0, "Disk reserved for the host itself, in GiB.")
    cpu_allocation_ratio: float = option(4.0, "Number of virtual CPUs per physical CPU.")
    ram_allocation_ratio: float = option(1.0, "Overcommit ratio of memory.")
    disk_allocation_ratio: float = option(1.0, "Overcommit ratio of disk. Disks grow as they fill.")
