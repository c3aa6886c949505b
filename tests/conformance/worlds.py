"""The state ("world") of each fixture of the suite.

Upstream's fixtures write to its database through its own objects; these build the same state through the public API.
`world` explains the sketches.
"""

from collections.abc import Callable

from tests.conformance.world import World


def blank(world: World) -> None:
    """No state; only names and UUIDs for the file."""
    world.fresh(
        "RP_UUID",
        "RP_NAME",
        "RP_UUID1",
        "RP_NAME1",
        "RP_UUID2",
        "RP_NAME2",
        "PROJECT_ID",
        "PROJECT_ID_ALT",
        "ADMIN_PROJECT_ID",
        "SERVICE_PROJECT_ID",
        "USER_ID",
        "USER_ID_ALT",
        "INSTANCE_UUID",
        "MIGRATION_UUID",
        "CONSUMER_UUID",
        "PARENT_PROVIDER_UUID",
        "ALT_PARENT_PROVIDER_UUID",
    )
    world.env.update(
        CUSTOM_RES_CLASS="CUSTOM_IRON_NFV", CUSTOM_RES_CLASS1="CUSTOM_IRON_NFV1", CUSTOM_RES_CLASS2="CUSTOM_IRON_NFV2"
    )


def consumers_on_one_host(world: World) -> None:
    """One provider, two consumers of one user and one of another user."""
    blank(world)
    world.fresh("ALT_USER_ID", "ALT_RP_UUID", "ALT_RP_NAME")
    env = world.env
    provider = world.provider(env["RP_NAME"], provider_uuid=env["RP_UUID"])
    world.inventory(provider, "DISK_GB", 2048, step_size=10, min_unit=10, max_unit=1000)
    world.inventory(provider, "VCPU", 10)
    for variable, user, amounts in (
        ("CONSUMER_0", "USER_ID", {"DISK_GB": 1000}),
        ("CONSUMER_ID", "USER_ID", {"VCPU": 6}),
        ("ALT_CONSUMER_ID", "ALT_USER_ID", {"DISK_GB": 20, "VCPU": 1}),
    ):
        env[variable] = world.use(provider, amounts, user=env[user], project=env["PROJECT_ID"])


def shared_storage(world: World) -> None:
    """Two hosts with NUMA and PF children, two shared disks, one aggregate."""
    blank(world)
    host = "VCPU=24,allocation_ratio=16.0 MEMORY_MB=131072,allocation_ratio=1.5"
    disk = "DISK_GB=2000,reserved=100,allocation_ratio=1.0"
    vfs = "SRIOV_NET_VF=8,allocation_ratio=1.0"
    world.draw(f"""
        cn1  @AGG_UUID {host} +HW_CPU_X86_SSE +HW_CPU_X86_SSE2
          numa1_1
            pf1_1  {vfs}
          numa1_2
            pf1_2  {vfs}
        cn2  @AGG_UUID {host} {disk}
          numa2_1
            pf2_1  {vfs}
          numa2_2
            pf2_2  {vfs}
        ss   @AGG_UUID {disk} +MISC_SHARES_VIA_AGGREGATE
        ss2  @AGG_UUID {disk} +MISC_SHARES_VIA_AGGREGATE
    """)
    # Upstream's fixture never writes the traits of the PFs, so neither does this one.


def numa_aggregates(world: World) -> None:
    """Shared disks reach one host by its root, one only by a NUMA child."""
    blank(world)
    cpu = "VCPU=24,allocation_ratio=16.0"
    disk = "DISK_GB=2000,reserved=100,allocation_ratio=1.0"
    world.draw(f"""
        cn1  @AGGA_UUID
          numa1_1  @AGGC_UUID {cpu}
          numa1_2  {cpu}
        cn2  @AGGA_UUID @AGGB_UUID
          numa2_1  {cpu}
          numa2_2  {cpu}
        ss1  @AGGA_UUID {disk} +MISC_SHARES_VIA_AGGREGATE
        ss2  @AGGC_UUID {disk} +MISC_SHARES_VIA_AGGREGATE
    """)


_NUMA_HOST = """
    cn1  @AGGA_UUID +COMPUTE_VOLUME_MULTI_ATTACH
      numa0  VCPU=4 MEMORY_MB=2048,min_unit=512,step_size=256 \
             used:VCPU=2 +HW_NUMA_ROOT
        fpga0  FPGA=1
        pgpu0  VGPU=8
      numa1  VCPU=4 MEMORY_MB=2048,min_unit=256,max_unit=1024 \
             +HW_NUMA_ROOT +CUSTOM_FOO
        fpga1_0  FPGA=1
        fpga1_1  FPGA=1
      sriov_agent  +CUSTOM_VNIC_TYPE_DIRECT
        esn1  NET_BW_EGR_KILOBIT_PER_SEC=10000 +CUSTOM_PHYSNET1
        esn2  NET_BW_EGR_KILOBIT_PER_SEC=20000 +CUSTOM_PHYSNET2
      ovs_agent  +CUSTOM_VNIC_TYPE_NORMAL
        br_int  NET_BW_EGR_KILOBIT_PER_SEC=1000 +CUSTOM_PHYSNET0
"""

_NIC_HOST = """
    cn2  @AGGA_UUID VCPU=8 MEMORY_MB=2048,min_unit=1024,step_size=128 \
         DISK_GB=1000 used:VCPU=3 +CUSTOM_FOO
      nic1  +CUSTOM_HW_NIC_ROOT
        pf1_1  CUSTOM_VF=4 +CUSTOM_PHYSNET1
        pf1_2  CUSTOM_VF=4 +CUSTOM_PHYSNET2
      nic2  +CUSTOM_HW_NIC_ROOT
        pf2_1  CUSTOM_VF=2 +CUSTOM_PHYSNET1
        pf2_2  CUSTOM_VF=2 +CUSTOM_PHYSNET2
        pf2_3  CUSTOM_VF=2 +CUSTOM_PHYSNET1
        pf2_4  CUSTOM_VF=2 +CUSTOM_PHYSNET2
      nic3  +CUSTOM_HW_NIC_ROOT
        pf3_1  CUSTOM_VF=8 +CUSTOM_PHYSNET1
"""

_NUMA_DISK = "ss1  @AGGA_UUID DISK_GB=2000 +MISC_SHARES_VIA_AGGREGATE\n"


def numa_network(world: World) -> None:
    """A NUMA host, a host of NICs, and a disk shared by both."""
    blank(world)
    world.draw(_NUMA_DISK)
    world.draw(_NUMA_HOST)
    world.draw(_NIC_HOST)


def deep_numa_network(world: World) -> None:
    """The same two hosts, each below a parent, both below one grandparent."""
    blank(world)
    world.draw("gp1\n  p1\n" + _NUMA_HOST + "  p2\n" + _NIC_HOST)
    world.draw(_NUMA_DISK)


def local_disks(world: World) -> None:
    """Three plain hosts; three aggregate UUIDs not used yet."""
    blank(world)
    world.fresh("AGGA_UUID", "AGGB_UUID", "AGGC_UUID")
    world.draw("\n".join(f"cn{n} VCPU=24 MEMORY_MB=131072 DISK_GB=2000" for n in (1, 2, 3)))


def granular(world: World) -> None:
    """Three hosts; two shared disks and a shared network between them."""
    blank(world)
    world.draw("""
        cn_left $CN_LEFT @AGGA VCPU=8 MEMORY_MB=4096 DISK_GB=500 VGPU=8 \
            SRIOV_NET_VF=8 CUSTOM_NET_MBPS=4000 \
            +HW_CPU_X86_AVX +HW_CPU_X86_AVX2 +HW_GPU_API_DXVA \
            +HW_NIC_DCB_PFC +CUSTOM_FOO
        cn_middle $CN_MIDDLE @AGGA @AGGB VCPU=8 MEMORY_MB=4096 \
            SRIOV_NET_VF=8 CUSTOM_NET_MBPS=4000 \
            +HW_CPU_X86_AVX +HW_CPU_X86_AVX2 +HW_CPU_X86_SSE \
            +HW_NIC_ACCEL_TLS
        cn_right $CN_RIGHT @AGGB @AGGC VCPU=8 MEMORY_MB=4096 DISK_GB=500 \
            VGPU=8,max_unit=2 \
            +HW_CPU_X86_MMX +HW_GPU_API_DXVA +CUSTOM_DISK_SSD
        shr_disk_1 $SHR_DISK_1 @AGGA DISK_GB=1000 \
            +MISC_SHARES_VIA_AGGREGATE +CUSTOM_DISK_SSD
        shr_disk_2 $SHR_DISK_2 @AGGA @AGGB DISK_GB=1000 \
            +MISC_SHARES_VIA_AGGREGATE
        shr_net $SHR_NET @AGGC SRIOV_NET_VF=16 CUSTOM_NET_MBPS=40000 \
            +MISC_SHARES_VIA_AGGREGATE
    """)


def multi_segment_network(world: World) -> None:
    """Four hosts with an OVS and an SR-IOV agent on various physical networks; two of these are segments of the
    requested one.

    Host 0 has another network, 1 and 2 one segment each, 3 both segments (and little bandwidth).
    """
    blank(world)
    world.draw(_segment_host("compute0", ["OTHER"]))
    world.draw(_segment_host("compute1", ["MSN_S1"]))
    world.draw(_segment_host("compute2", ["MSN_S2"]))
    world.draw(_segment_host("compute3", ["MSN_S1", "MSN_S2"]))


def _segment_host(name: str, networks: list[str]) -> str:
    direct = "+CUSTOM_VNIC_TYPE_DIRECT +CUSTOM_VNIC_TYPE_DIRECT_PHYSICAL +CUSTOM_VNIC_TYPE_MACVTAP"
    few = len(networks) > 1
    ovs = _bandwidth(1000 if few else 5000)
    sriov = _bandwidth(1000 if few else 10000)
    lines = [
        f"{name} ${name} VCPU=8 MEMORY_MB=4096 DISK_GB=500",
        f"  {name}:ovs_agent ${name}:ovs_agent NET_PACKET_RATE_KILOPACKET_PER_SEC=1000 +CUSTOM_VNIC_TYPE_NORMAL",
    ]
    for number, network in enumerate(networks):
        bridge = f"{name}:br_ex{number + 1 if number else ''}"
        lines.append(f"    {bridge} ${bridge} {ovs} +CUSTOM_VNIC_TYPE_NORMAL +CUSTOM_PHYSNET_{network}")
    lines.append(f"  {name}:sriov_agent ${name}:sriov_agent {direct}")
    for number, network in enumerate(networks):
        lines.append(f"    {name}:pf{number} ${name}:pf{number} {sriov} {direct} +CUSTOM_PHYSNET_{network}")
    return "\n".join(lines)


def _bandwidth(kilobits: int) -> str:
    return f"NET_BW_EGR_KILOBIT_PER_SEC={kilobits} NET_BW_IGR_KILOBIT_PER_SEC={kilobits}"


#: {fixture: what builds its state}
WORLDS: dict[str, Callable[[World], None]] = {
    "APIFixture": blank,
    "AllocationFixture": consumers_on_one_host,
    "SharedStorageFixture": shared_storage,
    "NUMAAggregateFixture": numa_aggregates,
    "NUMANetworkFixture": numa_network,
    "DeepNUMANetworkFixture": deep_numa_network,
    "NonSharedStorageFixture": local_disks,
    "GranularFixture": granular,
    "NeutronQoSMultiSegmentFixture": multi_segment_network,
    "CORSFixture": blank,
    "OpenPolicyFixture": blank,
    "SecureRBACPolicyFixture": blank,
    "LegacyRBACPolicyFixture": blank,
}
