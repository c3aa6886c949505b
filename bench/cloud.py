"""Synthetic clouds. They are deterministic: the same profile, number of hosts and servers per host give the same cloud.

flat     hosts with VCPU, MEMORY_MB, DISK_GB, some 24 traits, 8 aggregates; one unit of CUSTOM_SLOT_FULL each, all in use
nested   hosts with 2 NUMA nodes; every tenth has FPGAs, GPUs or CUSTOM_ACCELERATOR_GPU below them
sharing  hosts without disk; one provider per aggregate shares its disk
wide     hosts with 8 equal devices of one unit each: request groups have 8 * 7 * 6 ... assignments per host
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

Json = dict[str, Any]


# Cached: a claim needs three UUIDs at 5 us each, and forked clients inherit those created while the cloud was loaded.
@lru_cache(maxsize=1 << 16)
def identifier(*parts: object) -> str:
    return str(uuid.uuid5(_NAMESPACE, "bench/" + "/".join(map(str, parts))))


BASE_TRAITS = (
    "COMPUTE_ACCELERATORS", "COMPUTE_DEVICE_TAGGING", "COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW", "COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_NODE", "COMPUTE_RESCUE_BFV",
    "COMPUTE_STORAGE_BUS_VIRTIO", "COMPUTE_TRUSTED_CERTS", "COMPUTE_VOLUME_EXTEND", "COMPUTE_VOLUME_MULTI_ATTACH",
    "HW_CPU_X86_MMX", "HW_CPU_X86_SSE", "HW_CPU_X86_SSE2", "HW_CPU_X86_SSE41", "HW_CPU_X86_SSE42", "HW_CPU_X86_AESNI",
    "HW_CPU_HYPERTHREADING", "HW_CPU_X86_AVX",
)  # fmt: skip
GENERATION_TRAITS: tuple[tuple[str, ...], ...] = (
    (),
    ("HW_CPU_X86_AVX2", "HW_CPU_X86_FMA3"),
    ("HW_CPU_X86_AVX2", "HW_CPU_X86_FMA3", "HW_CPU_X86_AVX512F", "HW_CPU_X86_AVX512BW", "HW_CPU_X86_AVX512CD"),
    ("HW_CPU_X86_AVX2", "HW_CPU_X86_FMA3", "HW_CPU_X86_SGX"),
)
CUSTOM_TRAITS = (
    "CUSTOM_RACK_GOLD", "CUSTOM_GPU_NVIDIA", "CUSTOM_GPU_PRODUCT_ID_20B0", "CUSTOM_FPGA_INTEL_PAC_ARRIA10",
    "CUSTOM_FPGA_FUNCTION_ID_CRYPTO", "CUSTOM_ACC_GPU_MIG_1G5GB",
)  # fmt: skip
CUSTOM_CLASSES = (
    "CUSTOM_RARE_WIDGET", "CUSTOM_SLOT_FULL", "CUSTOM_HOT", "CUSTOM_HUGEPAGES_1G", "CUSTOM_ACCELERATOR_GPU",
)  # fmt: skip
AGGREGATES = tuple(identifier("aggregate", number) for number in range(8))

#: The provider from which all clients claim at the same time, with a capacity of a hundred million units.
HOT = identifier("hot")

#: Resources of one server by size, and the request for candidate queries.
SIZES = ((1, 2048, 20), (2, 4096, 40), (4, 8192, 80), (8, 16384, 160))
REQUEST = "resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20"


@dataclass(frozen=True)
class Provider:
    uuid: str
    name: str
    parent: str | None = None
    inventories: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cloud:
    profile: str
    hosts: int
    servers_per_host: int

    def size(self) -> int:
        """Approximate number of providers."""
        return {"flat": 1, "sharing": 1, "nested": 3, "wide": 9}[self.profile] * self.hosts

    def root(self, host: int) -> str:
        return identifier(self.profile, "host", host)

    def providers(self, host: int) -> list[Provider]:
        """Providers of one host, parents first."""
        inventories = {"VCPU": inventory(64, ratio=16.0), "MEMORY_MB": inventory(524288, reserved=4096, ratio=1.5)}
        if self.profile != "sharing":
            inventories["DISK_GB"] = inventory(4000, reserved=100)
        if self.profile == "flat":
            inventories["CUSTOM_SLOT_FULL"] = inventory(1)
            if host % 1000 == min(500, self.hosts // 2):
                inventories["CUSTOM_RARE_WIDGET"] = inventory(8)
        root = Provider(
            self.root(host), f"{self.profile}-{host:06}", None, inventories, _traits(host), (AGGREGATES[host % 8],)
        )
        return [root, *self._below(host, root)]

    def _below(self, host: int, root: Provider) -> Iterator[Provider]:
        if self.profile == "wide":
            for number in range(8):
                yield self._child(host, root, f"gpu{number}", {"PGPU": inventory(1)}, "CUSTOM_GPU_NVIDIA")
        if self.profile != "nested":
            return
        for node in (0, 1):
            numa = {"PCPU": inventory(16), "CUSTOM_HUGEPAGES_1G": inventory(64)}
            parent = self._child(host, root, f"numa{node}", numa, "HW_NUMA_ROOT")
            yield parent
            if host % 10 == 0:
                yield from self._devices(host, parent, node)

    def _devices(self, host: int, numa: Provider, node: int) -> Iterator[Provider]:
        kind = host // 10 % 3
        if kind == 0:
            traits = ("CUSTOM_FPGA_INTEL_PAC_ARRIA10", "CUSTOM_FPGA_FUNCTION_ID_CRYPTO")
            yield self._child(host, numa, f"fpga{node}", {"FPGA": inventory(1)}, *traits)
        elif kind == 1:
            traits = ("CUSTOM_GPU_NVIDIA", "CUSTOM_GPU_PRODUCT_ID_20B0")
            for number in (0, 1):
                yield self._child(host, numa, f"gpu{node}{number}", {"PGPU": inventory(1)}, *traits)
        else:
            traits = ("CUSTOM_GPU_NVIDIA", "CUSTOM_ACC_GPU_MIG_1G5GB")
            yield self._child(host, numa, f"mig{node}", {"CUSTOM_ACCELERATOR_GPU": inventory(8)}, *traits)

    def _child(
        self, host: int, parent: Provider, name: str, inventories: Mapping[str, Mapping[str, float]], *traits: str
    ) -> Provider:
        child = identifier(self.profile, "host", host, name)
        return Provider(child, f"{self.profile}-{host:06}-{name}", parent.uuid, inventories, traits)

    def others(self) -> list[Provider]:
        """Providers outside all host trees."""
        found = [Provider(HOT, "hot", None, {"CUSTOM_HOT": inventory(100_000_000)})]
        if self.profile == "sharing":
            disk = {"DISK_GB": inventory(10_000_000)}
            found += [
                Provider(identifier("store", number), f"store-{number}", None, disk, ("MISC_SHARES_VIA_AGGREGATE",), (one,))
                for number, one in enumerate(AGGREGATES)
            ]  # fmt: skip
        return found

    def servers(self, host: int) -> Iterator[tuple[str, Json]]:
        """[(consumer, its allocations)] of the initial servers."""
        for number in range(self.servers_per_host):
            vcpus, memory_mb, disk_gb = SIZES[(host * 31 + number * 17) % 4]
            allocations = self.held(host, {"VCPU": vcpus, "MEMORY_MB": memory_mb, "DISK_GB": disk_gb})
            if self.profile == "flat" and number == 0:
                allocations[self.root(host)]["CUSTOM_SLOT_FULL"] = 1
            if self.profile == "nested" and number == 0:
                numa = identifier(self.profile, "host", host, "numa0")
                allocations[numa] = {"PCPU": 2, "CUSTOM_HUGEPAGES_1G": 4}
            yield identifier(self.profile, "server", host, number), claim(allocations, host * 8 + number)

    def held(self, host: int, amounts: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """{provider: {class: amount}} for a server on that host; disk comes from the provider that has it."""
        if self.profile != "sharing":
            return {self.root(host): {**amounts}}
        own = {name: amount for name, amount in amounts.items() if name != "DISK_GB"}
        return {self.root(host): own, identifier("store", host % 8): {"DISK_GB": amounts["DISK_GB"]}}

    def consumer(self, host: int) -> str:
        return identifier(self.profile, "server", host, 0)

    def queries(self) -> dict[str, str]:
        """{name: query string of GET /allocation_candidates, without limit}"""
        if self.profile == "flat":
            return {
                "plain": REQUEST,
                "filtered": REQUEST + FILTER,
                "rare": f"{REQUEST},CUSTOM_RARE_WIDGET:1",
                "none": f"{REQUEST},CUSTOM_SLOT_FULL:1",
            }
        if self.profile == "nested":
            return {
                "plain": REQUEST,
                "subtree": f"{REQUEST}&resources_NUMA=PCPU:2&required_NUMA=HW_NUMA_ROOT&resources_ACC=PGPU:1"
                "&required_ACC=CUSTOM_GPU_PRODUCT_ID_20B0&group_policy=isolate&same_subtree=_NUMA,_ACC",
                "two_nodes": f"{REQUEST}&resources_N0=PCPU:4,CUSTOM_HUGEPAGES_1G:8"
                "&resources_N1=PCPU:4,CUSTOM_HUGEPAGES_1G:8&group_policy=isolate",
                "three_gpus": f"{REQUEST}&resources_A=PGPU:1&resources_B=PGPU:1&resources_C=PGPU:1&group_policy=isolate",
            }
        if self.profile == "sharing":
            return {"plain": REQUEST, "filtered": REQUEST + FILTER}
        return {"groups2": self.wide_query(2, one_host=True)}

    def wide_query(self, groups: int, *, one_host: bool) -> str:
        wanted = "".join(f"&resources_{number}=PGPU:1" for number in range(groups))
        only = f"&in_tree={self.root(self.hosts // 2)}" if one_host else ""
        return f"{REQUEST}{only}{wanted}&group_policy=isolate"


FILTER = (
    "&required=HW_CPU_X86_AVX2,COMPUTE_VOLUME_MULTI_ATTACH,!COMPUTE_STATUS_DISABLED"
    f"&member_of=in:{','.join(AGGREGATES[:3])}"
)
LIST_FILTER = f"resources=VCPU:2,MEMORY_MB:4096&required=HW_CPU_X86_AVX512F&member_of={AGGREGATES[2]}"


def inventory(total: int, *, reserved: int = 0, ratio: float = 1.0) -> dict[str, float]:
    return {
        "total": total, "reserved": reserved, "min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": ratio,
    }  # fmt: skip


def claim(allocations: Mapping[str, Mapping[str, int]], number: int) -> Json:
    """Body of PUT /allocations for a new consumer, of one of 40 projects and 97 users."""
    return {
        "allocations": {provider: {"resources": dict(held)} for provider, held in allocations.items()},
        "project_id": identifier("project", number % 40),
        "user_id": identifier("user", number % 97),
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }


def _traits(host: int) -> tuple[str, ...]:
    own = GENERATION_TRAITS[host * 7919 % 4]
    if host % 50 == 17:
        own += ("COMPUTE_STATUS_DISABLED",)
    if host % 20 == 3:
        own += ("CUSTOM_RACK_GOLD",)
    return BASE_TRAITS + own
