"""Sections [compute] and [scheduler]: servers, and the choice of their hosts."""

from dataclasses import dataclass

from moorage.options.declaration import option


@dataclass(frozen=True)
class ComputeOptions:
    provider_config_location: str = option(
        "",
        "Directory of YAML files with resource provider configuration, relative to state_path, read in order of their "
        "names. If empty, /etc/nova/provider_config/; for a simulated host, which is not this machine, "
        "provider_config in state_path.",
    )
    provider_config_writable_by_others: bool = option(
        False, "Accept provider configuration files that users other than their owner may write."
    )
    provider_config_remote_apply: bool = option(
        True,
        "Allow administrators to change these files through the compute API and the dashboard, with the same "
        "checks as on the host. If false, only plans are possible there.",
    )
    provider_config_watch_s: float = option(
        2.0,
        "Seconds between two checks of these files for changes. 0: never; the agent then reads them on SIGHUP and "
        "on `moorage provider-config apply`.",
    )
    poll_period_s: float = option(5.0, "Seconds between two searches for servers to place, if no hint arrives.")
    bare_metal_period_s: float = option(
        600.0, "Seconds between two comparisons of the allocations of bare-metal servers with their flavors."
    )
    finished_jobs_days: int = option(
        30,
        "Days for which finished jobs of hosts are kept. The instance actions that users see are not affected. 0: "
        "forever.",
    )
    host_down_after_s: int = option(60, "Seconds without a heartbeat after which a host counts as down.")
    allow_resize_to_same_host: bool = option(
        False,
        "Allow a resize to end on the host where it began. Both flavors hold resources there until the resize is "
        "confirmed.",
    )
    ignored_extra_specs: str = option(
        "",
        "Refused extra specs and image properties (docs/reference/extra-specs.md) to ignore, for example "
        "hw:vif_multiqueue_enabled, hw_vif_model. A server's copy of its flavor shows them as ignored:<key>. Servers "
        "with any other key that no component honours are refused.",
    )
    pci_aliases: str = option(
        "",
        "Meaning of the names in pci_passthrough:alias: a device profile, or a resource class "
        "CUSTOM_ACCELERATOR_<TYPE>: gpu=CUSTOM_ACCELERATOR_GPU, codec=gzip.",
    )
    port_device_profiles: str = option(
        "",
        "Device profiles that ports of a Neutron may have, for example fast-nic. Any project may use them, whatever "
        "its flavors; its limit class:CUSTOM_ACCELERATOR_NIC applies.",
    )
    shelved_offload_time: int = option(
        0,
        "Seconds for which a shelved server stays on its host. 0: it is offloaded at once. -1: it stays until a "
        "user offloads it.",
    )
    reclaim_instance_interval: int = option(
        0,
        "Seconds for which a deleted server can be restored. It keeps its resources during this time. 0: it is "
        "deleted at once.",
    )
    consoles: bool = option(
        True,
        "Offer serial consoles: run a proxy for them beside the compute service, on a port of its own. See "
        "docs/reference/consoles.md.",
    )
    console_port: int = option(
        0, "Port of this proxy, at the address of [server] address. 0: any free port, a different one at each start."
    )
    console_url: str = option(
        "",
        "URL at which people's clients and browsers reach this proxy, ws:// or wss://. If empty, the host of [server] "
        "public_url or address, with console_port.",
    )
    console_host_url: str = option(
        "",
        "URL at which hosts' agents reach this very process's proxy, not that of another process behind the same "
        "balancer. If empty, as console_url.",
    )
    console_idle_s: float = option(
        1800.0, "Seconds without input and output after which a serial console is closed. 0: never."
    )
    quota_consoles: int = option(
        20, "Maximum number of serial consoles of a project that are open or were asked for. -1: no limit."
    )
    quota_instances: int = option(
        10, "Maximum number of servers of a project that has no limit of its own. -1: no limit."
    )
    quota_cores: int = option(20, "The same as quota_instances, for VCPU and PCPU together.")
    quota_ram_mb: int = option(51200, "The same as quota_instances, for MEMORY_MB.")
    quota_key_pairs: int = option(100, "The same as quota_instances, for the key pairs of one user.")
    quota_metadata_items: int = option(128, "The same as quota_instances, for the metadata items of one server.")
    quota_server_groups: int = option(10, "The same as quota_instances, for server groups.")
    quota_server_group_members: int = option(10, "The same as quota_instances, for the servers in one group.")
    quota_classes: str = option(
        "", "Limits on resource classes for projects without limits of their own: CUSTOM_GOLD=4, VGPU=2."
    )


@dataclass(frozen=True)
class SchedulerOptions:
    max_placement_results: int = option(
        1000,
        "Maximum number of allocation candidates to compare. More are requested only if none of their hosts is "
        "suitable.",
    )
    sample_size: int = option(
        50,
        "Number of allocation candidates, from the whole cloud, to compare if hosts with more free capacity are "
        "preferred. 0: always max_placement_results.",
    )
    max_attempts: int = option(3, "Maximum number of hosts on which the build of a server is tried.")
    host_subset_size: int = option(1, "Number of best hosts from which one is chosen at random.")
    weight_multipliers: str = option(
        "",
        "Multipliers of weighers; a negative one reverses the order: ram=-1.0, soft_affinity=10. See the "
        "scheduling guide.",
    )
    filters: str = option(
        "",
        "Additional filters from other packages, comma-separated: names of entry points in the group "
        "moorage.scheduler.filters. See the scheduling guide.",
    )
    weighers: str = option(
        "",
        "Additional weighers from other packages, comma-separated: names of entry points in the group "
        "moorage.scheduler.weighers. weight_multipliers may name them. See the scheduling guide.",
    )
    limit_tenants_to_placement_aggregate: bool = option(
        False, "Restrict servers of a project to aggregates that name it as filter_tenant_id, if there are any."
    )
    placement_aggregate_required_for_tenants: bool = option(
        False, "With limit_tenants_to_placement_aggregate: refuse servers of projects that no aggregate names."
    )
    enable_isolated_aggregate_filtering: bool = option(
        False, "Restrict aggregates with trait:X=required to servers that require the trait."
    )
