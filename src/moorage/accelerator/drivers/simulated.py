"""Simulated devices in a file: regions that can be programmed, handles that get dirty, and injected faults.

``<directory>/devices.json`` is the state of the hardware. It survives the process: if the process is killed while it
programs a region, the region stays half-programmed (a power cut may lose the last steps). ``<directory>/control.json``
sets latencies and faults (`FaultControl`), and is read at each call. A person or a test may write both files while the
agent runs::

    {
        "latency_s": {"program": 5.0},
        "faults": [{"verb": "program", "at": "0000:3b:00.0_R1", "kind": "dies", "times": 1}],
    }
"""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from moorage.accelerator.drivers.base import Cleaned, CleaningFacts, DriverError, RegionContent, StillCleaning
from moorage.accelerator.model.devices import (
    PHYSICAL_NETWORK,
    Bitstream,
    Deployable,
    Device,
    DeviceType,
    Health,
    Mdev,
    RegionState,
)
from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.durable import write_atomically, write_durably

T = TypeVar("T")


#: Time after which a cleaning with the fault ``continues`` has failed.
CLEANING_ALLOWED_S = 600.0


DEFAULT_LATENCY_S: Mapping[str, float] = {"program": 0.5}


class FaultKind(StrEnum):
    FAILS = "fails"  #: the operation raises and changes nothing
    DIES = "dies"  #: for program: it stops half-way; the region stays half-programmed
    VANISHES = "vanishes"  #: for discover: the card is missing, and every other operation on it fails
    SICK = "sick"  #: for health: the card has failed
    CONTINUES = "continues"  #: for clean: the device still works on it


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """`times`: how often the fault occurs; 0: always."""

    verb: str  #: name of the driver's method
    kind: FaultKind
    at: str = "*"  #: the operation's deployable, handle or card; ``*``: any
    times: int = 0


@dataclass(frozen=True, slots=True)
class FaultControl:
    latency_s: Mapping[str, float] = field(default_factory=dict)
    faults: tuple[SimulatedFault, ...] = ()


@dataclass(frozen=True, slots=True)
class _Handle:
    prepared_for: str = ""
    dirty: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    regions: Mapping[str, RegionContent] = field(default_factory=dict)
    handles: Mapping[str, _Handle] = field(default_factory=dict)
    #: Occurrences of each fault in the control file, by the file's time and the fault's JSON.
    struck: Mapping[str, int] = field(default_factory=dict)


class SimulatedAccelerators:
    """Simulates `devices`, with their state in `directory`; latencies pass on `clock`."""

    cleaning = CleaningFacts("a mark in the file of the simulated devices", "the mark is removed", "none")

    def __init__(self, devices: Sequence[Device], directory: Path, clock: Clock, *, name: str = "simulated") -> None:
        self.name = name
        self._devices = tuple(replace(device, driver=name) for device in devices)
        self._deployables = {part.name: part for device in devices for part in device.deployables}
        #: The card's address, by card, deployable and handle.
        self._cards = {
            name: device.pci_id
            for device in devices
            for part in device.deployables
            for name in (device.pci_id, part.name, *part.handles)
        }
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def discover(self) -> Sequence[Device]:
        self._raise_if_faulty("discover", "", FaultKind.FAILS)
        self._sleep_latency("discover")
        return [
            device for device in self._devices if not self._has_fault("discover", device.pci_id, FaultKind.VANISHES)
        ]

    def identify(self, deployable: str) -> RegionContent:
        self._raise_if_faulty("identify", deployable, FaultKind.FAILS)
        region = self._read().regions.get(deployable)
        if region is None and deployable in self._deployables:
            return RegionContent(RegionState.IDLE, self._deployables[deployable].bitstream)
        if region is None:
            raise DriverError(f"there is no {deployable} on this host")
        # Hardware cannot distinguish programming in progress from interrupted programming.
        return region if region.state is RegionState.IDLE else RegionContent(RegionState.UNKNOWN)

    def program(self, deployable: str, bitstream: Bitstream | None, data: BinaryIO | None) -> None:
        self._card_of(deployable)
        if deployable not in self._deployables or not self._deployables[deployable].programmable:
            raise DriverError(f"{deployable} cannot be programmed")
        if bitstream is not None:
            _check_digest(deployable, bitstream, data)
        self._raise_if_faulty("program", deployable, FaultKind.FAILS)
        self._set_region(deployable, RegionContent(RegionState.PROGRAMMING))
        self._sleep_latency("program")
        if self._has_fault("program", deployable, FaultKind.DIES):
            raise DriverError(f"{deployable} died half-way through programming")
        self._set_region(deployable, RegionContent(RegionState.IDLE, bitstream))

    def prepare(self, pci_id: str, instance_uuid: str) -> None:
        self._raise_if_faulty("prepare", pci_id, FaultKind.FAILS)
        self._sleep_latency("prepare")
        self._set_handle(pci_id, _Handle(prepared_for=instance_uuid, dirty=True))

    def release(self, pci_id: str) -> None:
        self._raise_if_faulty("release", pci_id, FaultKind.FAILS)
        self._sleep_latency("release")
        self._set_handle(pci_id, _Handle(dirty=True))

    def clean(self, pci_id: str) -> Cleaned | StillCleaning:
        self._raise_if_faulty("clean", pci_id, FaultKind.FAILS)
        if self._has_fault("clean", pci_id, FaultKind.CONTINUES):
            return StillCleaning("simulated, 50 %", CLEANING_ALLOWED_S)
        self._sleep_latency("clean")
        self._set_handle(pci_id, _Handle())
        return Cleaned("simulated")

    def health(self, pci_id: str) -> Health:
        if self._has_fault("discover", self._card_of(pci_id), FaultKind.VANISHES):
            return Health.GONE
        return Health.FAILED if self._has_fault("health", pci_id, FaultKind.SICK) else Health.OK

    def is_dirty(self, pci_id: str) -> bool:
        """Whether a guest could find data of the previous guest. For rehearsals and tests."""
        return self._read().handles.get(pci_id, _Handle()).dirty

    def order(self, control: FaultControl) -> None:
        """Writes the control file."""
        write_durably(self._control_path, msgspec.json.encode(control))

    def _sleep_latency(self, verb: str) -> None:
        seconds = self._control().latency_s.get(verb, DEFAULT_LATENCY_S.get(verb, 0.0))
        if seconds > 0:
            self._clock.sleep(seconds)

    def _raise_if_faulty(self, verb: str, at: str, kind: FaultKind) -> None:
        if at and self._has_fault("discover", self._card_of(at), FaultKind.VANISHES):
            raise DriverError(f"{verb} of {at} failed: its card has vanished")
        if self._has_fault(verb, at, kind):
            raise DriverError(f"{verb} of {at or 'the host'} failed, as requested by {self._control_path.name}")

    def _has_fault(self, verb: str, at: str, kind: FaultKind) -> bool:
        for fault in self._control().faults:
            if fault.verb == verb and fault.kind is kind and fault.at in ("*", at) and self._count_fault(fault):
                return True
        return False

    def _count_fault(self, fault: SimulatedFault) -> bool:
        if fault.times == 0:
            return True
        # Counting starts again when the control file is rewritten, even with the same content.
        written = str(self._control_path.stat().st_mtime_ns)
        key = f"{written} {msgspec.json.encode(fault).decode()}"
        with self._lock:
            state = self._read()
            struck = {name: count for name, count in state.struck.items() if name.startswith(written)}
            if struck.get(key, 0) >= fault.times:
                return False
            self._write(replace(state, struck={**struck, key: struck.get(key, 0) + 1}))
            return True

    def _card_of(self, name: str) -> str:
        if name not in self._cards:
            raise DriverError(f"there is no {name} on this host")
        return self._cards[name]

    def _set_region(self, deployable: str, region: RegionContent) -> None:
        self._change(lambda state: replace(state, regions={**state.regions, deployable: region}))

    def _set_handle(self, pci_id: str, handle: _Handle) -> None:
        self._change(lambda state: replace(state, handles={**state.handles, pci_id: handle}))

    def _change(self, change: Callable[[_State], _State]) -> None:
        with self._lock:
            self._write(change(self._read()))

    @property
    def _control_path(self) -> Path:
        return self._directory / "control.json"

    @property
    def _state_path(self) -> Path:
        return self._directory / "devices.json"

    def _control(self) -> FaultControl:
        return _decode_file(self._control_path, FaultControl) or FaultControl()

    def _read(self) -> _State:
        return _decode_file(self._state_path, _State) or _State()

    def _write(self, state: _State) -> None:
        write_atomically(self._state_path, msgspec.json.encode(state))


def _decode_file(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise StartError(f"{path} cannot be read: {error}; correct or remove it") from error


def _check_digest(deployable: str, bitstream: Bitstream, data: BinaryIO | None) -> None:
    if data is None:
        raise DriverError(f"there is no data to program {deployable} with")
    found = hashlib.sha512()
    while chunk := data.read(1 << 20):
        found.update(chunk)
    if found.hexdigest() != bitstream.digest:
        raise DriverError(
            f"{deployable} was sent data with sha512 {found.hexdigest()[:16]}..., not {bitstream.digest[:16]}..."
        )


REGION_TYPE_CARD_0 = "9926ab6d-6c92-5a68-aabc-a7d84c545738"


REGION_TYPE_CARD_0_SMALL = "4f4b9a5a-1c1d-5f0e-8b1e-0c5b6a1d2e3f"


REGION_TYPE_CARD_1 = "69528db6-eb31-577a-8c36-68f9faa081f6"


def default_simulated_host() -> tuple[Device, ...]:
    """Two FPGA cards and four GPUs on two NUMA nodes, at addresses that a real host could have.

    Card 0 has two regions, one of them with two PCI functions. Card 1 has no partial reconfiguration: it is one region,
    and its only function is the card itself. The UUIDs of region types are constants, because images are made for them.
    """
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
    """The default host plus a time card, a GPU with four vGPUs, and a QuickAssist card and a network card with two
    virtual functions each.
    """
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
        Device(
            pci_id="0000:c1:00.0",
            type=DeviceType.NIC,
            vendor="mellanox",
            vendor_id="15b3",
            product_id="101d",
            model="ConnectX-6 Dx",
            numa_node=1,
            deployables=(Deployable("0000:c1:00.0", ("0000:c1:00.2", "0000:c1:00.3")),),
            details=((PHYSICAL_NETWORK, "fast"),),
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
