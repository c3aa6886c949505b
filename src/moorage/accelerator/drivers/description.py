"""The built-in simulated hosts: two FPGA cards and four GPUs on two NUMA nodes, at addresses a real host could have;
and one that has a device of each other kind besides (`simulated_host_with_every_device_type`).

Card 0 has two regions (one with two PCI functions), card 1 cannot be partly reconfigured: it is one region, and
its only function is the card itself. The UUIDs of region types are constants: images are made for them.
"""

from moorage.accelerator.model.devices import Deployable, Device, DeviceType, Mdev

REGION_TYPE_CARD_0 = "9926ab6d-6c92-5a68-aabc-a7d84c545738"
REGION_TYPE_CARD_0_SMALL = "4f4b9a5a-1c1d-5f0e-8b1e-0c5b6a1d2e3f"
REGION_TYPE_CARD_1 = "69528db6-eb31-577a-8c36-68f9faa081f6"


def default_simulated_host() -> tuple[Device, ...]:
    return (
        Device(
            pci_id="0000:3b:00.0",
            type=DeviceType.FPGA,
            vendor="intel",
            vendor_id="8086",
            product_id="09c4",
            model="PAC Arria 10 GX",
            board="PAC_A10",
            shell_id="ce489693-98f0-5f33-946d-560708be108a",
            numa_node=0,
            deployables=(
                Deployable("0000:3b:00.0_R1", ("0000:3b:00.1", "0000:3b:00.2"), REGION_TYPE_CARD_0),
                Deployable("0000:3b:00.0_R2", ("0000:3b:00.3",), REGION_TYPE_CARD_0_SMALL),
            ),
        ),
        Device(
            pci_id="0000:af:00.0",
            type=DeviceType.FPGA,
            vendor="intel",
            vendor_id="8086",
            product_id="0b2b",
            model="PAC D5005",
            board="PAC_D5005",
            shell_id="bfac4d85-1ee8-56fe-8c95-865ce1bbaa2d",
            numa_node=1,
            deployables=(Deployable("0000:af:00.0_R1", ("0000:af:00.0",), REGION_TYPE_CARD_1),),
        ),
        _gpu_device("0000:17:00.0", 0),
        _gpu_device("0000:65:00.0", 0),
        _gpu_device("0000:ca:00.0", 1),
        _gpu_device("0000:e3:00.0", 1),
    )


def simulated_host_with_every_device_type() -> tuple[Device, ...]:
    """The built-in host with a time card, a GPU in four shares, and a QuickAssist card with two virtual functions."""
    shares = tuple(str(Mdev("0000:b1:00.0", "nvidia-592", slot)) for slot in range(4))
    return (
        *default_simulated_host(),
        Device(
            pci_id="0000:41:00.0",
            type=DeviceType.HPTS,
            vendor="meta",
            vendor_id="1d9b",
            product_id="0400",
            model="Time Card",
            numa_node=0,
            deployables=(Deployable("0000:41:00.0", ("0000:41:00.0",)),),
        ),
        Device(
            pci_id="0000:b1:00.0",
            type=DeviceType.VGPU,
            vendor="nvidia",
            vendor_id="10de",
            product_id="2236",
            model="A10",
            numa_node=1,
            deployables=(Deployable("0000:b1:00.0", shares),),
            traits=frozenset({"CUSTOM_NVIDIA_NVIDIA_592"}),
        ),
        Device(
            pci_id="0000:6b:00.0",
            type=DeviceType.QAT,
            vendor="intel",
            vendor_id="8086",
            product_id="4940",
            model="QuickAssist 4xxx",
            numa_node=0,
            deployables=(Deployable("0000:6b:00.0", ("0000:6b:00.1", "0000:6b:00.2")),),
        ),
    )


def _gpu_device(pci_id: str, numa_node: int) -> Device:
    return Device(
        pci_id=pci_id,
        type=DeviceType.GPU,
        vendor="nvidia",
        vendor_id="10de",
        product_id="27b8",
        model="L4",
        numa_node=numa_node,
        deployables=(Deployable(pci_id, (pci_id,)),),
    )
