"""The common part of FPGA drivers: cards with programmable regions, and verified programming.

A driver discovers the regions of a card, reads the id that a region shows, and loads a file. This module has the order
of the steps: check the data, its header and its region type; record that loading begins; load; check the id that the
region shows; record the result. After a crash without the last record, the region's content is unknown.

An FPGA shows at most the id of its function, not the image that was loaded. So `RegionNotes` stores on disk what this
host has loaded, with the id that the card showed afterwards. A note is valid while the card shows that id.
"""

import hashlib
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from moorage.accelerator.drivers.base import CleaningFacts, DeviceGone, DriverError, RegionContent
from moorage.accelerator.drivers.bitstream_headers import BitstreamHeader
from moorage.accelerator.drivers.device_spec import VFIO, DeviceSpec, find_spec
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.sysfs import PciFunction, Sysfs
from moorage.accelerator.model.devices import Bitstream, Deployable, Device, Function, RegionState
from moorage.accelerator.model.naming import canonical_id, same_id
from moorage.core.errors import StartError
from moorage.durable import write_durably

#: Larger than any bitstream of today's FPGAs.
MAX_BITSTREAM_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class FpgaRegion:
    """A region of the card at `address`. `number` counts from 1."""

    address: str
    number: int
    region_type: str
    handles: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.address}_R{self.number}"


@dataclass(frozen=True, slots=True)
class RegionNote:
    region_type: str
    handles: tuple[str, ...] = ()
    seen: str = ""  #: the id that the card showed last, or right after something was loaded
    bitstream: Bitstream | None = None  #: loaded by this host
    blank: bool = False  #: the blank was loaded by this host
    loading: bool = False


@dataclass(frozen=True, slots=True)
class _RegionNotes:
    regions: Mapping[str, RegionNote] = field(default_factory=dict)


class RegionNotes:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get_note(self, deployable: str) -> RegionNote | None:
        return self._read().regions.get(deployable)

    def change_note(self, deployable: str, change: Callable[[RegionNote | None], RegionNote]) -> None:
        """Durable on return. A change without effect is not written."""
        with self._lock:
            notes = self._read()
            before = notes.regions.get(deployable)
            if (after := change(before)) != before:
                regions = {**notes.regions, deployable: after}
                write_durably(self._path, msgspec.json.encode(replace(notes, regions=regions)))

    def _read(self) -> _RegionNotes:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_RegionNotes)
        except FileNotFoundError:
            return _RegionNotes()
        except msgspec.MsgspecError as error:
            raise StartError(
                f"{self._path} cannot be read: {error}; it records the contents of FPGAs: restore it, or remove it and "
                "program them again"
            ) from error


class FpgaDriver(PciDriver):
    """`directory` holds the notes of loaded bitstreams, and bitstreams while they are loaded."""

    suffix = ".bin"  #: of bitstream files
    cleaning = CleaningFacts(
        "the loaded function with its registers; memory of the card that the shell does not clear",
        "a reset by the kernel; the blank replaces a private bitstream once nobody uses the region",
        "the function answers after its reset; the region shows the id of what was loaded; memory is not read",
    )

    def __init__(self, directory: Path, specs: Sequence[DeviceSpec] = (), sysfs: Sysfs | None = None) -> None:
        super().__init__(specs, sysfs)
        self._directory = directory
        self._notes = RegionNotes(directory / "loaded.json")

    @abstractmethod
    def _discover_regions(self, card: PciFunction, spec: DeviceSpec) -> Sequence[FpgaRegion]:
        """The regions that the card shows; none if it is not an FPGA of this driver, or a guest has it."""

    @abstractmethod
    def _loaded_id(self, region: FpgaRegion) -> str:
        """The text, usually an id, with which `region` identifies its content; empty if it shows none now."""

    @abstractmethod
    def _load_file(self, region: FpgaRegion, path: Path, head: BitstreamHeader | None) -> None: ...

    def _read_header(self, path: Path) -> BitstreamHeader | None:
        """None if the file format has no header; then only the image's properties give the region type."""
        return None

    def identify(self, deployable: str) -> RegionContent:
        note = self._notes.get_note(deployable)
        if note is not None and note.loading:
            return RegionContent(RegionState.UNKNOWN)
        card, spec = self._card_of(deployable)
        region = next((one for one in self._current_regions(card, spec) if one.name == deployable), None)
        if region is None:
            raise DeviceGone(f"{card.address} no longer has region {deployable}")
        shown = self._loaded_id(region)
        if note is not None and note.seen and shown in ("", note.seen):
            shown = note.seen
            if note.blank or note.bitstream is not None:
                return RegionContent(RegionState.IDLE, note.bitstream)
        return RegionContent(RegionState.IDLE, self._foreign_bitstream(shown))

    def program(self, deployable: str, bitstream: Bitstream | None, data: BinaryIO | None) -> None:
        card, spec = self._card_of(deployable)
        region = next((one for one in self._discover_regions(card, spec) if one.name == deployable), None)
        if region is None:
            raise DriverError(f"{deployable} cannot be programmed: its card does not show the region now")
        with self._bitstream_file(region, spec, bitstream, data) as path:
            head = self._read_header(path)
            if head is not None and head.region_type and not same_id(head.region_type, region.region_type):
                raise DriverError(
                    f"the image is made for region type {head.region_type}, but {deployable} has type "
                    f"{region.region_type}"
                )
            self._notes.change_note(deployable, lambda note: replace(_note_of(region, "", None), loading=True))
            self._load_file(region, path, head)
            shown = self._loaded_id(region)
            if head is not None and not same_id(shown, head.shown):
                raise DriverError(f"{deployable} shows {shown or 'nothing'} after programming instead of {head.shown}")
        self._notes.change_note(deployable, lambda note: _note_of(region, shown, bitstream))

    def prepare(self, handle: str, instance_uuid: str) -> None:
        """First records the id that the card shows, because a card shows none while a guest has all of it."""
        function, spec = self._find_function(handle)
        card = self._card_behind(function)
        for region in self._discover_regions(card, spec) if VFIO not in (function.driver, card.driver) else ():
            self._notes.change_note(
                region.name, partial(_note_with_shown_id, region=region, shown=self._loaded_id(region))
            )
        super().prepare(handle, instance_uuid)

    def _bitstream_file(
        self, region: FpgaRegion, spec: DeviceSpec, bitstream: Bitstream | None, data: BinaryIO | None
    ) -> AbstractContextManager[Path]:
        if bitstream is not None:
            # The name comes from the region, never from the image, so a region has at most one file.
            path = self._directory / "staging" / f"{region.name.replace(':', '-')}{self.suffix}"
            return staged_bitstream(path, bitstream, data)
        if not spec.blank:
            raise DriverError(
                "the card's device spec names no blank bitstream (blank), so the region cannot be blanked"
            )
        if not (blank := Path(spec.blank)).is_file():
            raise DriverError(f"the blank bitstream {spec.blank} does not exist")
        return nullcontext(blank)

    def _foreign_bitstream(self, shown: str) -> Bitstream | None:
        """The bitstream for factory content or content that another program loaded, whose data is not known."""
        return Bitstream(digest="", functions=(Function(canonical_id(shown)),)) if shown else None

    def _device(self, function: PciFunction, spec: DeviceSpec) -> Device | None:
        device = super()._device(function, spec)
        regions = self._current_regions(function, spec)
        if device is None or not regions:
            return None
        parts = tuple(Deployable(one.name, one.handles, one.region_type) for one in regions)
        return replace(device, deployables=parts, shell_id=regions[0].region_type)

    def _current_regions(self, card: PciFunction, spec: DeviceSpec) -> Sequence[FpgaRegion]:
        """The regions that the card shows; while a guest has the whole card, those that were recorded last."""
        return self._recorded_regions(card) if card.driver == VFIO else self._discover_regions(card, spec)

    def _recorded_regions(self, card: PciFunction) -> Sequence[FpgaRegion]:
        found: list[FpgaRegion] = []
        while (note := self._notes.get_note(f"{card.address}_R{len(found) + 1}")) is not None:
            found.append(FpgaRegion(card.address, len(found) + 1, note.region_type, note.handles))
        return found

    def _card_of(self, deployable: str) -> tuple[PciFunction, DeviceSpec]:
        address = deployable.rpartition("_R")[0]
        function = self._sysfs.pci_function(address)
        if function is None:
            raise DeviceGone(f"PCI device {address} is no longer on this host")
        spec = find_spec(function, self._specs)
        if spec is None:
            raise DriverError(f"no device spec of this host matches {address} any more")
        return function, spec


def _note_of(region: FpgaRegion, shown: str, bitstream: Bitstream | None) -> RegionNote:
    return RegionNote(region.region_type, region.handles, shown, bitstream, blank=bitstream is None)


def _note_with_shown_id(note: RegionNote | None, region: FpgaRegion, shown: str) -> RegionNote:
    """`note` with the id that `region` shows; if that has changed, without the loaded bitstream."""
    if note is None or (shown and shown != note.seen and not note.loading):
        return RegionNote(region.region_type, region.handles, shown)
    return replace(note, region_type=region.region_type, handles=region.handles)


@contextmanager
def staged_bitstream(path: Path, bitstream: Bitstream, data: BinaryIO | None) -> Iterator[Path]:
    """Writes `data` to `path` for the body of the context. The next call removes a file that a kill left behind.

    Raises `DriverError` if the copied data does not match the digest of `bitstream`.
    """
    if data is None:
        raise DriverError(f"there is no data of image {bitstream.image_id or '(unnamed)'} to program with")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _copy_verified(data, file, bitstream)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _copy_verified(data: BinaryIO, file: BinaryIO, bitstream: Bitstream) -> None:
    digest, size = hashlib.sha512(), 0
    while chunk := data.read(1 << 20):
        size += len(chunk)
        if size > MAX_BITSTREAM_BYTES:
            raise DriverError(
                f"image {bitstream.image_id} has more than {MAX_BITSTREAM_BYTES} bytes, the limit for bitstreams"
            )
        digest.update(chunk)
        file.write(chunk)
    if digest.hexdigest() != bitstream.digest:
        raise DriverError(
            f"the data of image {bitstream.image_id} has sha512 {digest.hexdigest()[:16]}..., not "
            f"{bitstream.digest[:16]}...; nothing was programmed"
        )
