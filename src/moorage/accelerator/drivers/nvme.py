"""Erases NVMe drives between two tenants, by the kernel's ioctl for admin commands.

::

    sanitize, crypto erase     the drive forgets its key; covers all namespaces, caches and unused blocks
    format, crypto erase       the same for each namespace
    sanitize, block erase
    format, user data erase
    sanitize, overwrite        takes hours

The first of these that the drive's Identify data offers is used. A drive that other controllers share (a virtual
function, or a subsystem with several controllers) must not be sanitized; only namespaces that belong to this
controller alone are formatted, and any other one is an error. Afterwards the sanitize log, or the answer to the
format, must report success, and sampled blocks that had content before must read differently.

A drive works for seconds to hours, so a thread runs the commands and `erase` tells its progress. A sanitize continues
in the drive while this process is gone; the next `erase` finds it in the log and waits for it.
Source: NVM Express Base Specification 2.0 (Identify, Format NVM, Sanitize, log page 81h), linux/nvme_ioctl.h.
"""

import ctypes
import fcntl
import mmap
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.accelerator.drivers.base import Cleaned, DriverError, StillCleaning
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs

#: ``_IOWR('N', 0x41, struct nvme_passthru_cmd)``
ADMIN_IOCTL = 0xC0484E41
#: struct nvme_passthru_cmd: opcode, flags, reserved, nsid, cdw2, cdw3, metadata, addr, metadata_len, data_len, cdw10
#: to cdw15, timeout_ms, result.
COMMAND = struct.Struct("=BBHIIIQQII6III")
IDENTIFY, GET_LOG, FORMAT, SANITIZE = 0x06, 0x02, 0x80, 0x84
SANITIZE_LOG = 0x81
ALL_NAMESPACES = 0xFFFFFFFF

BLOCK_ERASE, OVERWRITE, CRYPTO_ERASE = 2, 3, 4  # SANACT
USER_DATA_ERASE, CRYPTOGRAPHIC = 1, 2  # SES of a format
_ACTIONS = {BLOCK_ERASE: "block erase", OVERWRITE: "overwrite", CRYPTO_ERASE: "crypto erase"}
_STATUS = {0: "never sanitized", 1: "completed", 2: "in progress", 3: "failed", 4: "completed, blocks deallocated"}
#: Bytes of the log with the drive's estimate in seconds, and the time allowed if it gives none.
_ESTIMATE_AT = {OVERWRITE: 8, BLOCK_ERASE: 12, CRYPTO_ERASE: 16}
_ALLOWED_S = {OVERWRITE: 48 * 3600.0, BLOCK_ERASE: 4 * 3600.0, CRYPTO_ERASE: 900.0}
FORMAT_ALLOWED_S = 4 * 3600.0
ONE_COMMAND_MS = 60_000

SAMPLES, SAMPLE_BYTES = 64, 4096
#: How long `erase` waits for the drive before it reports progress, and how long a drive may take to appear.
PROGRESS_AFTER_S, APPEARS_S = 1.0, 20.0

Ioctl = Callable[[int, int, bytearray], int]


@dataclass(frozen=True, slots=True)
class SanitizeLog:
    progress: int  #: of 65536
    status: int  #: SSTAT; its low three bits are a key of `_STATUS`
    command: int  #: the command's dword 10
    estimates_s: tuple[tuple[int, int], ...]  #: (action, estimate)

    @property
    def is_running(self) -> bool:
        return self.status & 7 == 2

    def __str__(self) -> str:
        written = ", nothing written since" if self.status & 0x100 else ""
        return f"status {self.status:#06x} ({_STATUS.get(self.status & 7, 'reserved')}{written})"


@dataclass(frozen=True, slots=True)
class Identity:
    """The fields of Identify Controller that matter here."""

    can_crypto_sanitize: bool
    can_block_sanitize: bool
    can_overwrite: bool
    can_format: bool
    formats_all: bool  #: a format of one namespace formats all
    can_crypto_format: bool
    manages_namespaces: bool
    controller: int
    firmware: str


class NvmeController:
    """The admin commands of one drive. `node`: its character device."""

    def __init__(self, node: Path, ioctl: Ioctl) -> None:
        self._node = node
        self._ioctl = ioctl

    def identity(self) -> Identity:
        raw = self._identify(cns=1)
        (oacs,), (sanicap,), fna = struct.unpack_from("<H", raw, 256), struct.unpack_from("<I", raw, 328), raw[524]
        return Identity(
            can_crypto_sanitize=bool(sanicap & 1),
            can_block_sanitize=bool(sanicap & 2),
            can_overwrite=bool(sanicap & 4),
            can_format=bool(oacs & 2),
            formats_all=bool(fna & 3),
            can_crypto_format=bool(fna & 4),
            manages_namespaces=bool(oacs & 8),
            controller=struct.unpack_from("<H", raw, 78)[0],
            firmware=raw[64:72].decode("ascii", "replace").strip("\0 "),
        )

    def namespaces(self, *, allocated: bool = False) -> list[int]:
        """The namespaces that are attached to this controller, or all that exist in the drive."""
        return [one for one in struct.unpack("<1024I", self._identify(cns=0x10 if allocated else 2)) if one]

    def controllers_of(self, namespace: int) -> list[int]:
        count, *found = struct.unpack("<2048H", self._identify(cns=0x12, namespace=namespace))
        return found[:count]

    def is_shareable(self, namespace: int) -> bool:
        return bool(self._identify(cns=0, namespace=namespace)[30] & 1)

    def format(self, namespace: int, like: int, erase: int) -> None:
        """Formats in the present format of the namespace `like`. Returns when the drive has finished."""
        raw = self._identify(cns=0, namespace=like)
        flbas, protection = raw[26], raw[29]
        dword = (flbas & 0xF) | (flbas >> 4 & 1) << 4 | (protection & 7) << 5 | (protection >> 3 & 1) << 8
        dword |= erase << 9 | (flbas >> 5 & 3) << 12
        self._send("format", FORMAT, namespace, cdw10=dword, timeout_ms=int(FORMAT_ALLOWED_S * 1000))

    def sanitize(self, command: int) -> None:
        """Starts it; the log tells the end. In restricted mode, so that a drive that fails gives out nothing."""
        self._send("sanitize", SANITIZE, 0, cdw10=command)

    def sanitize_log(self) -> SanitizeLog:
        raw = self._send("get log page", GET_LOG, ALL_NAMESPACES, 512, cdw10=SANITIZE_LOG | 127 << 16)
        progress, status, command = struct.unpack_from("<HHI", raw)
        estimates = tuple((action, struct.unpack_from("<I", raw, at)[0]) for action, at in _ESTIMATE_AT.items())
        return SanitizeLog(progress, status, command, estimates)

    def _identify(self, *, cns: int, namespace: int = 0) -> bytes:
        return self._send("identify", IDENTIFY, namespace, 4096, cdw10=cns)

    def _send(
        self, name: str, opcode: int, namespace: int, size: int = 0, *, cdw10: int, timeout_ms: int = ONE_COMMAND_MS
    ) -> bytes:
        data = ctypes.create_string_buffer(size or 1)
        address = ctypes.addressof(data) if size else 0
        command = bytearray(
            COMMAND.pack(opcode, 0, 0, namespace, 0, 0, 0, address, 0, size, cdw10, 0, 0, 0, 0, 0, timeout_ms, 0)
        )
        try:
            descriptor = os.open(self._node, os.O_RDWR | os.O_CLOEXEC)
            try:
                status = self._ioctl(descriptor, ADMIN_IOCTL, command)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DriverError(f"{self._node} does not take the command {name}: {error.strerror}") from error
        if status:
            raise DriverError(f"{self._node} refused the command {name} with NVMe status {status:#05x}")
        return data.raw[:size]


@dataclass
class _Erasure:
    """The state of one erasure; the thread writes it, `NvmeEraser.erase` reads it."""

    thread: threading.Thread | None = None
    progress: str = "waiting for the drive"
    allowed_s: float = FORMAT_ALLOWED_S
    proof: str = ""
    error: str = ""


class NvmeEraser:
    """Erases drives that the kernel's NVMe driver has. `devices`: the directory of device nodes."""

    def __init__(
        self,
        sysfs: Sysfs,
        devices: Path = Path("/dev"),
        ioctl: Ioctl = fcntl.ioctl,
        *,
        poll_s: float = 2.0,
        read_flags: int = os.O_DIRECT,
    ) -> None:
        self._sysfs = sysfs
        self._devices = devices
        self._ioctl = ioctl
        self._poll_s = poll_s
        self._read_flags = read_flags
        self._pause = threading.Event()  # never set: its `wait` is a sleep
        self._erasures: dict[str, _Erasure] = {}

    def erase(self, function: PciFunction) -> Cleaned | StillCleaning:
        """Starts to erase the drive, or waits shortly for an erasure that runs. Raises `DriverError`."""
        erasure = self._erasures.get(function.address)
        if erasure is None:
            erasure = self._erasures[function.address] = _Erasure()
            erasure.thread = threading.Thread(
                target=self._run, args=(function, erasure), name=f"erase {function.address}", daemon=True
            )
            erasure.thread.start()
        if erasure.thread is not None:
            erasure.thread.join(PROGRESS_AFTER_S)
            if erasure.thread.is_alive():
                return StillCleaning(erasure.progress, erasure.allowed_s)
        del self._erasures[function.address]
        if erasure.error:
            raise DriverError(erasure.error)
        return Cleaned(erasure.proof)

    def check_idle(self, function: PciFunction) -> None:
        """Call it before a guest gets the drive. Raises `DriverError` while the drive is being erased."""
        erasure = self._erasures.get(function.address)
        if erasure is not None and erasure.thread is not None and erasure.thread.is_alive():
            raise DriverError(f"{function.address} is still being erased ({erasure.progress})")
        self._erasures.pop(function.address, None)  # its result says nothing about the data of the next guest

    def _run(self, function: PciFunction, erasure: _Erasure) -> None:
        try:
            erasure.proof = self._erase(function, erasure)
        except DriverError as error:
            erasure.error = error.message
        except Exception as error:  # noqa: BLE001 - the top of a thread: the drive is quarantined with the reason
            erasure.error = f"{function.address} could not be erased: {error!r}"

    def _erase(self, function: PciFunction, erasure: _Erasure) -> str:
        name = self._wait_until_live(function)
        drive = NvmeController(self._devices / name, self._ioctl)
        identity = drive.identity()
        if self._is_shared(function, name):
            attached = drive.namespaces()
            _check_exclusive(drive, identity, attached, function.address)
            steps: Sequence[tuple[str, int]] = [("format", CRYPTOGRAPHIC if identity.can_crypto_format else 1)]
        else:
            attached = None
            steps = _methods(identity)
        if not steps:
            raise DriverError(f"{function.address} can neither be sanitized nor formatted, so it cannot be erased")
        verb, how = steps[0]
        samples = {} if self._is_sanitizing(drive, identity) else dict(self._read_samples(function))
        if verb == "sanitize":
            done = self._sanitize(drive, how, erasure)
        else:
            done = self._format(drive, identity, how, attached, erasure)
        return f"NVMe {done}; firmware {identity.firmware}; {self._compare(function, samples)}"

    def _sanitize(self, drive: NvmeController, action: int, erasure: _Erasure) -> str:
        log = drive.sanitize_log()
        if log.is_running and log.command & 7 != action:  # a guest started another one
            self._wait_for_log(drive, erasure)
            log = drive.sanitize_log()
        estimate = dict(log.estimates_s).get(action, ALL_NAMESPACES)
        erasure.allowed_s = _ALLOWED_S[action] if estimate == ALL_NAMESPACES else max(900.0, 3.0 * estimate)
        if not log.is_running:
            drive.sanitize(action | (1 << 4 if action == OVERWRITE else 0))
        log = self._wait_for_log(drive, erasure)
        if log.status & 7 not in (1, 4):
            raise DriverError(f"the sanitize ({_ACTIONS[action]}) did not succeed: {log}")
        return f"sanitize ({_ACTIONS[action]}), {log}"

    def _wait_for_log(self, drive: NvmeController, erasure: _Erasure) -> SanitizeLog:
        """Has no limit of its own: the caller of `erase` quarantines the drive after `allowed_s`."""
        while (log := drive.sanitize_log()).is_running:
            erasure.progress = f"sanitize, {log.progress * 100 // 65536} %"
            self._pause.wait(self._poll_s)
        return log

    def _format(
        self, drive: NvmeController, identity: Identity, erase: int, only: list[int] | None, erasure: _Erasure
    ) -> str:
        erasure.progress, erasure.allowed_s = "format", FORMAT_ALLOWED_S
        kind = "crypto erase" if erase == CRYPTOGRAPHIC else "user data erase"
        attached = drive.namespaces() if only is None else only
        everything = drive.namespaces(allocated=True) if only is None and identity.manages_namespaces else attached
        if hidden := set(everything) - set(attached):
            raise DriverError(f"namespace {min(hidden)} is not attached to the controller, so it cannot be formatted")
        if only is None and identity.formats_all and attached:
            drive.format(ALL_NAMESPACES, attached[0], erase)
        else:
            for namespace in attached:
                drive.format(namespace, namespace, erase)
        names = ", ".join(str(one) for one in attached) or "none attached"
        return f"format ({kind}) of namespaces {names}: status 0x000"

    def _is_sanitizing(self, drive: NvmeController, identity: Identity) -> bool:
        """Meanwhile no block can be read."""
        return any((identity.can_crypto_sanitize, identity.can_block_sanitize, identity.can_overwrite)) and (
            drive.sanitize_log().is_running
        )

    def _is_shared(self, function: PciFunction, name: str) -> bool:
        if function.physical_function or function.virtual_functions:
            return True
        subsystems = (self._sysfs.root / "class" / "nvme-subsystem").glob(f"*/{name}")
        return any(
            other.name != name
            for one in subsystems
            for other in one.parent.glob("nvme*")
            if re.fullmatch(r"nvme\d+", other.name)
        )

    def _wait_until_live(self, function: PciFunction) -> str:
        """The controller's name, as ``nvme0``. The kernel probes drives in the background."""
        state = None
        for _ in range(max(1, int(APPEARS_S / self._poll_s))):
            for path in self._sysfs.paths_below(function.address, "nvme/nvme*"):
                state = self._sysfs.read_text(path / "state")
                if state == "live" and re.fullmatch(r"nvme\d+", path.name):
                    return path.name
            self._pause.wait(self._poll_s)
        raise DriverError(
            f"{function.address} cannot be erased: its NVMe controller is {state or 'not shown by the kernel'}; is the "
            "module nvme loaded, and the controller online?"
        )

    # ------------------------------------------------------------------------------------------- samples

    def _read_samples(self, function: PciFunction) -> Iterator[tuple[tuple[Path, int], bytes]]:
        """Blocks with content, at equal distances over each namespace that the kernel shows as a block device."""
        for directory in self._sysfs.paths_below(function.address, "nvme/nvme*/nvme*n*"):
            match = re.fullmatch(r"(nvme\d+)(?:c\d+)?(n\d+)", directory.name)
            sectors = self._sysfs.read_text(directory / "size") or "0"
            blocks = int(sectors) * 512 // SAMPLE_BYTES if sectors.isdecimal() else 0
            if match is None or not blocks:
                continue
            node = self._devices / f"{match[1]}{match[2]}"
            for number in sorted({index * (blocks - 1) // (SAMPLES - 1) for index in range(SAMPLES)}):
                content = self._read(node, number * SAMPLE_BYTES)
                if content and content.count(content[:1]) != len(content):
                    yield (node, number * SAMPLE_BYTES), content

    def _read(self, node: Path, offset: int) -> bytes:
        """Empty if the block cannot be read, as on a drive that a guest has locked."""
        try:
            descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC | self._read_flags)
            try:
                with mmap.mmap(-1, SAMPLE_BYTES) as page:  # aligned, as direct reads require
                    return page[: os.preadv(descriptor, [page], offset)]
            finally:
                os.close(descriptor)
        except OSError:
            return b""

    def _compare(self, function: PciFunction, before: dict[tuple[Path, int], bytes]) -> str:
        unreadable = 0
        for (node, offset), content in before.items():
            now = self._read(node, offset)
            if now == content:
                raise DriverError(f"{function.address} was erased, but {node.name} still has its content at {offset}")
            unreadable += not now
        if not before:
            return "no sampled block had content before"
        changed = f"{len(before) - unreadable} of {len(before)} sampled blocks with content have changed"
        return f"{changed}, the others cannot be read any more" if unreadable else changed


def _methods(identity: Identity) -> list[tuple[str, int]]:
    """The ways in which the drive can be erased as a whole, the best first."""
    offered = [
        (identity.can_crypto_sanitize, "sanitize", CRYPTO_ERASE),
        (identity.can_format and identity.can_crypto_format, "format", CRYPTOGRAPHIC),
        (identity.can_block_sanitize, "sanitize", BLOCK_ERASE),
        (identity.can_format, "format", USER_DATA_ERASE),
        (identity.can_overwrite, "sanitize", OVERWRITE),
    ]
    return [(verb, how) for is_offered, verb, how in offered if is_offered]


def _check_exclusive(drive: NvmeController, identity: Identity, attached: Sequence[int], address: str) -> None:
    """Raises `DriverError` if erasing the namespaces of this controller could erase data of another one's tenant."""
    if identity.manages_namespaces:
        raise DriverError(f"{address} shares its drive and may attach each of its namespaces: its data can be anywhere")
    if attached and (identity.formats_all or not identity.can_format):
        raise DriverError(f"{address} shares its drive, whose namespaces cannot be formatted one by one")
    for namespace in attached:
        if drive.is_shareable(namespace) and drive.controllers_of(namespace) != [identity.controller]:
            raise DriverError(f"{address} shares namespace {namespace} with another controller of its drive")
